//! `logs`: what a member has written to stdout and stderr.

use std::io::IsTerminal;

use clap::Args;

use super::patience::Patience;
use super::{Failed, NOT_FOUND, Target, print};
use crate::control::{Client, ClientError, GOES_ON_AT, STARTS_AT, Streamed};
use crate::model::Entry;
use crate::process::gap;

/// Show what a member wrote to stdout and stderr
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  guild-hall logs weather\n  guild-hall logs weather -n 20 -f")]
pub(super) struct Logs {
    /// The member's name, as in the roster
    name: String,
    /// So many of the last lines
    #[arg(short = 'n', long, default_value_t = 100, value_name = "LINES")]
    lines: usize,
    /// Stay and show what comes, also after a restart of the member or the hall
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

/// Whether somebody still reads what is printed.
#[derive(PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

impl Logs {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let client = self.target.client();
        let logs = format!("/v1/members/{}/logs", Client::segment(&self.name));
        let mut printed = Printed { on_terminal: std::io::stdout().is_terminal(), last: b'\n' };
        let at = match client.stream(&format!("{logs}?lines={}", self.lines)).await {
            Ok(mut lines) => {
                let at = lines.position(GOES_ON_AT).unwrap_or_default();
                if printed.all_of(&mut lines, &mut 0).await == Reader::Gone {
                    return Ok(());
                }
                if lines.is_broken_off() && !self.follow {
                    return Err(Failed::new("the hall broke off"));
                }
                at
            }
            // A member that was never launched has no log, but may be waited for.
            Err(error) if self.follow && is_not_found(&error) => {
                self.must_be_known(&client).await.map(|()| 0)?
            }
            Err(error) => return Err(error.into()),
        };
        if self.follow { self.go_on(&client, &logs, at, printed).await } else { Ok(()) }
    }

    /// Shows what follows a position, for as long as somebody reads it.
    async fn go_on(
        &self, client: &Client, logs: &str, mut at: u64, mut printed: Printed,
    ) -> Result<(), Failed> {
        let mut patience = Patience::new();
        loop {
            match client.stream(&format!("{logs}?from={at}&follow=true")).await {
                Ok(mut pieces) => {
                    patience.over();
                    let begin = pieces.position(STARTS_AT).unwrap_or(at);
                    // Where it is not beyond, the log was emptied and begins anew.
                    if let Some(missed @ 1..) = begin.checked_sub(at)
                        && printed.piece(&gap(missed, Some(&printed.last))) == Reader::Gone
                    {
                        return Ok(());
                    }
                    at = begin;
                    if printed.all_of(&mut pieces, &mut at).await == Reader::Gone {
                        return Ok(());
                    }
                    // A whole answer ends where bytes are missing: the next one says how many.
                    if pieces.is_broken_off() {
                        patience.wait().await;
                    }
                }
                Err(error) if Patience::helps(&error) => patience.wait().await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn must_be_known(&self, client: &Client) -> Result<(), Failed> {
        let known: Result<Entry, _> =
            client.get(&format!("/v1/roster/{}", Client::segment(&self.name))).await;
        known.map(drop).map_err(Failed::from)
    }
}

fn is_not_found(error: &ClientError) -> bool {
    Failed::code_of(error) == NOT_FOUND
}

/// What has gone to stdout.
struct Printed {
    on_terminal: bool,
    last: u8,
}

impl Printed {
    /// Prints an answer to its end, and counts its bytes.
    async fn all_of(&mut self, pieces: &mut Streamed, count: &mut u64) -> Reader {
        while let Some(piece) = pieces.next().await {
            *count += piece.len() as u64;
            if self.piece(&piece) == Reader::Gone {
                return Reader::Gone;
            }
        }
        Reader::There
    }

    fn piece(&mut self, piece: &[u8]) -> Reader {
        self.last = piece.last().copied().unwrap_or(self.last);
        // A terminal gets no escape sequences of a member's making.
        let shown = self.on_terminal.then(|| print::without_escapes(piece));
        if print::raw(shown.as_deref().unwrap_or(piece)) { Reader::There } else { Reader::Gone }
    }
}
