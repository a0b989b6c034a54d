//! The doors of a running hall: its socket, and the TCP port of the gateway. Both lead to the API and to the
//! gateway.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use axum::Router;

use crate::control::{self, Door, Handed, Lanes, Paused, Place, Server};
use crate::gateway::{Gateway, Guard, SavedVisitors, guarded};
use crate::hall::Hall;

/// Where the gateway listens besides the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listen {
    At(SocketAddr),
    Nowhere,
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let at = text.replacen("localhost:", "127.0.0.1:", 1).parse();
        at.map(Self::At)
            .map_err(|_| "not an address with a port, like 127.0.0.1:4180 or [::1]:4180, and not none".into())
    }
}

/// Whether who comes in over TCP needs the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Auth {
    Token,
    /// Then only the gateway is there, and not the API.
    None,
}

pub(super) struct Doors {
    socket: Server,
    tcp: Option<(Server, SocketAddr)>,
    gateway: Gateway,
}

/// Both doors, answering nobody.
pub(super) struct PausedDoors {
    socket: Paused,
    tcp: Option<(Paused, SocketAddr)>,
    visitors: SavedVisitors,
}

/// What the next image of the hall must know of them.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct HandedDoors {
    socket: Handed,
    tcp: Option<(Handed, SocketAddr)>,
    #[serde(default)]
    visitors: SavedVisitors,
}

/// Who may do what behind each door.
struct Routes {
    socket: Router,
    tcp: Router,
    gateway: Gateway,
}

impl Routes {
    fn new(
        hall: &Hall, auth: Auth, address: Option<SocketAddr>, visitors: SavedVisitors,
    ) -> Result<Self, String> {
        let gateway = Gateway::start(hall.clone(), visitors)
            .map_err(|error| format!("cannot keep the key of sessions: {error}"))?;
        let api = || control::router(hall.clone());
        let socket = api().merge(gateway.router());
        let Some(address) = address else { return Ok(Self { socket, tcp: Router::new(), gateway }) };
        let any_host = !address.ip().is_loopback();
        let (token, open) = match auth {
            Auth::Token => {
                let token = hall.run_dir().token();
                (
                    Some(token.map_err(|error| format!("cannot keep the token of the gateway: {error}"))?),
                    api(),
                )
            }
            Auth::None => {
                tracing::warn!("--no-auth: whoever reaches {address} can call every tool of every member");
                (None, control::health_router(hall.clone()))
            }
        };
        let tcp = guarded(open.merge(gateway.router()), Guard { token, any_host });
        Ok(Self { socket, tcp, gateway })
    }
}

fn lanes() -> Result<Arc<Lanes>, String> {
    let lanes =
        Lanes::open().map_err(|error| format!("cannot start the threads that answer clients: {error}"));
    lanes.map(Arc::new)
}

impl Doors {
    /// Opens both.
    pub(super) fn start(socket: Door, tcp: Option<Door>, auth: Auth, hall: &Hall) -> Result<Self, String> {
        let address = tcp.as_ref().and_then(Door::address);
        let routes = Routes::new(hall, auth, address, SavedVisitors::default())?;
        let lanes = lanes()?;
        let tcp =
            tcp.zip(address).map(|(door, at)| (Server::start(door, routes.tcp, &lanes, hall.clone()), at));
        let socket = Server::start(socket, routes.socket, &lanes, hall.clone());
        Ok(Self { socket, tcp, gateway: routes.gateway })
    }

    /// Goes on with what the image before has handed over.
    pub(super) fn resume(handed: HandedDoors, auth: Auth, hall: &Hall) -> Result<Self, String> {
        let routes = Routes::new(hall, auth, handed.address(), handed.visitors.clone())?;
        let failed = |error| format!("cannot take up the API: {error}");
        let lanes = lanes()?;
        let path = hall.run_dir().socket();
        let socket = Server::resume(handed.socket, Place::Socket(&path), routes.socket, &lanes, hall.clone());
        let tcp = match handed.tcp {
            Some((handed, at)) => Some((
                Server::resume(handed, Place::Tcp, routes.tcp, &lanes, hall.clone()).map_err(failed)?,
                at,
            )),
            None => None,
        };
        Ok(Self { socket: socket.map_err(failed)?, tcp, gateway: routes.gateway })
    }

    pub(super) async fn pause(&self) -> PausedDoors {
        let tcp = async {
            match &self.tcp {
                Some((tcp, at)) => Some((tcp.pause().await, *at)),
                None => None,
            }
        };
        let (socket, tcp) = tokio::join!(self.socket.pause(), tcp);
        PausedDoors { socket, tcp, visitors: self.gateway.save() }
    }

    /// They were not handed over after all.
    pub(super) async fn unpause(&self, paused: PausedDoors) {
        self.socket.unpause(paused.socket).await;
        if let (Some((tcp, _)), Some((paused, _))) = (&self.tcp, paused.tcp) {
            tcp.unpause(paused).await;
        }
    }

    /// Says its last words, and closes both.
    pub(super) async fn finish(self) {
        let tcp = async {
            if let Some((tcp, _)) = self.tcp {
                tcp.finish().await;
            }
        };
        tokio::join!(self.socket.finish(), tcp);
    }
}

impl PausedDoors {
    pub(super) fn handed(&self) -> HandedDoors {
        HandedDoors {
            socket: self.socket.handed(),
            tcp: self.tcp.as_ref().map(|(tcp, at)| (tcp.handed(), *at)),
            visitors: self.visitors.clone(),
        }
    }
}

impl HandedDoors {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, at)| *at)
    }

    /// What must stay open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.socket.descriptors().chain(self.tcp.iter().flat_map(|(tcp, _)| tcp.descriptors()))
    }
}
