//! `logs`: what a member has written to stdout and stderr.

use std::io::IsTerminal;

use clap::Args;

use super::{Failed, Target, print};
use crate::control::Client;

/// Show what a member wrote to stdout and stderr
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  guild-hall logs weather\n  guild-hall logs weather -n 20 -f")]
pub(super) struct Logs {
    /// The member's name, as in the roster
    name: String,
    /// So many of the last lines
    #[arg(short = 'n', long, default_value_t = 100, value_name = "LINES")]
    lines: usize,
    /// Stay and show what comes
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

impl Logs {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let client = self.target.client();
        let path = format!(
            "/v1/members/{}/logs?lines={}&follow={}",
            Client::segment(&self.name),
            self.lines,
            self.follow
        );
        let mut pieces = client.stream(&path).await?;
        let on_terminal = std::io::stdout().is_terminal();
        while let Some(piece) = pieces.next().await {
            // A terminal gets no escape sequences of a member's making.
            let shown = if on_terminal { print::without_escapes(&piece).into() } else { piece };
            if !print::raw(&shown) {
                break;
            }
        }
        Ok(())
    }
}
