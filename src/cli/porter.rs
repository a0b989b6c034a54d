//! `porter`, hidden: what the hall starts in front of a plugin that does not speak MCP on a port.

use std::process::ExitCode;

use clap::Args;

use super::Failed;
use crate::model::{Exit, Port};
use crate::porter::{End, stand};
use crate::process::die_as;

/// Stand in front of a plugin; the hall tells on stdin which
#[derive(Debug, Args)]
pub(super) struct Porter {
    #[arg(long, value_parser = port)]
    port: Port,
}

impl Porter {
    pub(super) fn execute(self) -> ExitCode {
        let mut end = None;
        let outcome = super::client_runtime(async {
            end = Some(stand(self.port).await);
            Ok(())
        });
        let failed = |code, message| {
            super::exit(Err(Failed { code, message: format!("guild-hall porter: {message}") }))
        };
        match end {
            None | Some(End::Asked) => super::exit(outcome),
            Some(End::PortTaken(error)) => failed(2, format!("port {} is taken: {error}", self.port)),
            Some(End::Failed(why)) => failed(1, why),
            // Of a porter it would mean that its port is taken.
            Some(End::Plugin(Exit::PORT_TAKEN)) => failed(1, "the plugin exited with code 2".into()),
            Some(End::Plugin(exit)) => die_as(exit),
        }
    }
}

fn port(text: &str) -> Result<Port, String> {
    text.parse().ok().and_then(Port::new).ok_or_else(|| "a port is a number from 1 to 65535".into())
}
