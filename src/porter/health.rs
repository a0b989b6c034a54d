//! The health check of a plugin: a URL that answers 2xx while the plugin is well. HomeClaw, "Plugin Standard" §3.3.
//! Called by `toolbox`, and by `service` for MCP servers.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Request, Uri};

use super::rest::refusal;
use super::web;
use crate::model::porter::Plugin;

/// A plugin that is well says so within this time, which is less than the hall waits for a porter's word.
const PATIENCE: Duration = Duration::from_secs(4);
/// Nobody reads what it says beside.
const LARGEST: usize = 1024 * 1024;

/// See the module's page.
pub(super) struct Health {
    url: Option<String>,
}

impl Health {
    pub(super) fn of(plugin: &Plugin) -> Self {
        Self { url: plugin.health_check_url.clone() }
    }

    /// The error says what is wrong with the plugin.
    pub(super) async fn check(&self) -> Result<(), String> {
        let Some(url) = &self.url else { return Ok(()) };
        let uri: Uri = url.parse().map_err(|error| format!("health_check_url is no URL: {error}"))?;
        let place = web::place(&uri);
        let request = Request::get(uri).body(Bytes::new()).map_err(|error| error.to_string())?;
        let answer = web::send(request, LARGEST, PATIENCE).await;
        let answer = answer.map_err(|fault| format!("the plugin's health check {place} {fault}"))?;
        if answer.status.is_success() {
            return Ok(());
        }
        Err(format!("the plugin is not well: {}", refusal(&place, &answer)))
    }
}
