//! `start`, `stop`, `restart`.

use clap::Args;
use futures_util::future::join_all;

use super::print::{self, phase_style, styled};
use super::{Failed, Target};
use crate::control::{Client, ClientError};
use crate::lifecycle::Wish;
use crate::model::{Entry, Status};

#[derive(Debug, Args)]
pub(super) struct Names {
    /// Names as in the roster
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Return at once, not when they have settled
    #[arg(long)]
    no_wait: bool,
    /// The entries as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Names {
    /// Succeeds if every member is then where it was wanted.
    pub(super) async fn execute(self, wish: Wish) -> Result<(), Failed> {
        let client = self.target.client();
        let verb = match wish {
            Wish::Start => "start",
            Wish::Stop => "stop",
            Wish::Restart => "restart",
        };
        let asked = self.names.iter().map(|name| {
            let path = format!("/v1/members/{}/{verb}?wait={}", Client::segment(name), !self.no_wait);
            let client = &client;
            async move { client.post::<Entry>(&path, "").await }
        });
        let mut entries = Vec::new();
        let mut failed: Option<Failed> = None;
        for (name, answer) in self.names.iter().zip(join_all(asked).await) {
            match answer {
                Ok(entry) => {
                    if wish != Wish::Stop && !self.no_wait && entry.status != Status::Connected {
                        let why = entry.error.clone().unwrap_or_else(|| format!("it is {}", entry.phase));
                        add(&mut failed, Failed::new(format!("{name} did not come up: {why}")));
                    }
                    entries.push(entry);
                }
                Err(error @ ClientError::NoHall { .. }) => return Err(error.into()),
                Err(error) => {
                    let Failed { code, message } = error.into();
                    add(&mut failed, Failed { code, message: format!("cannot {verb} {name}: {message}") });
                }
            }
        }
        if self.json {
            print::json(&entries)?;
        } else {
            for entry in &entries {
                let on = entry.port.map(|port| format!(" on port {port}")).unwrap_or_default();
                print::out(&format!(
                    "{} is {}{on}\n",
                    entry.name,
                    styled(phase_style(entry.phase), entry.phase)
                ))?;
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The first failure's code, and a line for each.
fn add(failed: &mut Option<Failed>, more: Failed) {
    match failed {
        Some(first) => first.message = format!("{}\n{}", first.message, more.message),
        None => *failed = Some(more),
    }
}
