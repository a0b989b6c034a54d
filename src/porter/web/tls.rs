//! TLS with the root certificates of the machine, which are read when they are first needed.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The server proves that it is this host.
pub(super) async fn over(stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = match CONFIG.get() {
        Some(config) => config.clone(),
        None => {
            // A few files, and some hundred certificates: milliseconds that nobody else waits for.
            let made = tokio::task::spawn_blocking(config).await.map_err(io::Error::other)??;
            CONFIG.get_or_init(|| made.into()).clone()
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

fn config() -> io::Result<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(io::Error::other(format!(
            "this machine trusts no certificates{why}: install ca-certificates, or set SSL_CERT_FILE"
        )));
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
