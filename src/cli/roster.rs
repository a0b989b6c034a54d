//! `roster`: who is connected, and why another is not.

use anstyle::Style;
use clap::Args;
use futures_util::FutureExt;

use super::patience::Patience;
use super::print::{self, BOLD, DIM, phase_style, styled};
use super::table::{Table, cell, plain};
use super::{Failed, Target};
use crate::control::{Client, ClientError, Streamed};
use crate::model::{Entry, Roster as Snapshot, Status, Timestamp};

/// Show the members: who is connected, and why another is not
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall roster\n  guild-hall roster toolbox/clock\n  guild-hall roster --json | jq -r '.members[] | select(.status == \"error\") | .name'"
)]
pub(super) struct Roster {
    /// One member, with all that is known of it
    name: Option<String>,
    /// Stay and show every change
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// JSON as the API has it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Roster {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let client = self.target.client();
        if self.watch {
            return self.live(&client).await;
        }
        match &self.name {
            Some(name) => {
                let entry: Entry = client.get(&format!("/v1/roster/{}", Client::segment(name))).await?;
                if self.json { print::json(&entry) } else { print::out(&details(&entry)) }
            }
            None => {
                let roster: Snapshot = client.get("/v1/roster").await?;
                if self.json { print::json(&roster) } else { print::out(&overview(&roster)) }
            }
        }
    }

    /// Draws anew after each change, and once a second for the times. Waits for a hall that is gone,
    /// but not for one that was never there.
    async fn live(&self, client: &Client) -> Result<(), Failed> {
        let mut patience = Patience::new();
        let mut events = client.stream("/v1/events").await?;
        loop {
            match self.text(client).await {
                Ok(text) => {
                    patience.over();
                    // To the top, each line to its end, then whatever is left below.
                    let drawn = text.replace('\n', "\x1b[K\n");
                    print::out(&format!("\x1b[H{drawn}{}\x1b[J", styled(DIM, "Ctrl-C to leave\x1b[K")))?;
                    if something_new(&mut events).await {
                        continue;
                    }
                }
                Err(error) if Patience::helps(&error) => {}
                Err(error) => return Err(error.into()),
            }
            events = loop {
                patience.wait().await;
                match client.stream("/v1/events").await {
                    Ok(events) => break events,
                    Err(error) if Patience::helps(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            };
        }
    }

    async fn text(&self, client: &Client) -> Result<String, ClientError> {
        Ok(match &self.name {
            Some(name) => details(&client.get(&format!("/v1/roster/{}", Client::segment(name))).await?),
            None => overview(&client.get("/v1/roster").await?),
        })
    }
}

/// Waits for a change, a second at most; false when the hall is gone.
async fn something_new(events: &mut Streamed) -> bool {
    tokio::select! {
        event = events.next() => {
            // What came at the same time is drawn at once.
            while let Some(Some(_)) = events.next().now_or_never() {}
            event.is_some()
        }
        () = tokio::time::sleep(std::time::Duration::from_secs(1)) => true,
    }
}

/// All members, a row each, the reason of an error beside it.
pub(super) fn overview(roster: &Snapshot) -> String {
    if roster.members.is_empty() {
        return "No members. Put a directory with a guild-member.json into the members directory, then `guild-hall reload`.\n".into();
    }
    let measured = roster.members.iter().any(|entry| entry.memory_bytes.is_some());
    let mut table = rows(roster, measured);
    if measured && table.width() > print::width() {
        table = rows(roster, false);
    }
    let count = |status| roster.members.iter().filter(|entry| entry.status == status).count();
    let (connected, disconnected, error) =
        (count(Status::Connected), count(Status::Disconnected), count(Status::Error));
    let mut summary = vec![format!("{connected} connected")];
    summary.extend((disconnected > 0).then(|| format!("{disconnected} disconnected")));
    summary.extend(
        (error > 0)
            .then(|| styled(print::RED, format!("{error} error{}", if error == 1 { "" } else { "s" }))),
    );
    format!("{}{}\n", table.render(), summary.join(", "))
}

/// With memory and CPU where `measured` says so.
fn rows(roster: &Snapshot, measured: bool) -> Table {
    let now = Timestamp::now();
    let mut table = Table::default();
    let mut titles = vec!["NAME", "STATUS", "PORT", "PID", "TOOLS", "RESTARTS"];
    titles.extend(["MEMORY", "CPU"].into_iter().filter(|_| measured));
    titles.push("SINCE");
    table.row(titles.into_iter().map(|title| cell(title, DIM)).collect());
    for entry in &roster.members {
        let number = |number: Option<String>| plain(number.unwrap_or_else(|| "-".into()));
        let mut cells = vec![
            cell(&entry.name, BOLD),
            cell(status(entry), phase_style(entry.phase)),
            number(entry.port.map(|port| port.to_string())),
            number(entry.pid.map(|pid| pid.to_string())),
            number((entry.status == Status::Connected).then(|| entry.tools.len().to_string())),
            plain(entry.restarts),
        ];
        if measured {
            cells.push(number(entry.memory_bytes.map(memory)));
            cells.push(number(entry.cpu_seconds.map(cpu)));
        }
        cells.push(plain(ago(now, entry.since)));
        table.row(cells);
        for line in reason(entry, now) {
            table.below(line);
        }
    }
    table
}

/// `connected`; with the phase where it says more: `error (waiting)`.
fn status(entry: &Entry) -> String {
    if entry.status.as_str() == entry.phase.as_str() {
        entry.status.to_string()
    } else {
        format!("{} ({})", entry.status, entry.phase)
    }
}

/// Why an entry is not connected, and when that will change.
fn reason(entry: &Entry, now: Timestamp) -> Vec<String> {
    let Some(error) = &entry.error else { return Vec::new() };
    let mut text = print::safe(error);
    if let Some(at) = entry.retry_at {
        text = format!("{text}; next attempt in {}", length(at.0 - now.0));
    }
    let style = if entry.status == Status::Error { print::RED } else { print::YELLOW };
    let lines = print::wrap(&text, print::width().saturating_sub(4));
    lines.into_iter().map(|line| format!("    {}", styled(style, line))).collect()
}

/// One member, all that is known.
fn details(entry: &Entry) -> String {
    let now = Timestamp::now();
    let mut table = Table::default();
    let mut line =
        |title: &str, value: String, style: Style| table.row(vec![cell(title, DIM), cell(value, style)]);
    line("name", entry.name.to_string(), BOLD);
    line(
        "status",
        format!("{}, for {}", status(entry), length(now.0 - entry.since.0)),
        phase_style(entry.phase),
    );
    if entry.dialect.is_some() {
        line(
            "about",
            format!(
                "{} {}: {}",
                print::safe(&entry.display_name),
                print::safe(&entry.version),
                print::first_line(&entry.description)
            ),
            Style::new(),
        );
    }
    let some = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    line("port", some(entry.port.map(|port| port.to_string())), Style::new());
    line("pid", some(entry.pid.map(|pid| pid.to_string())), Style::new());
    line("memory", some(entry.memory_bytes.map(memory)), Style::new());
    line("cpu", some(entry.cpu_seconds.map(cpu)), Style::new());
    line("attempts", entry.attempts.to_string(), Style::new());
    line("restarts", entry.restarts.to_string(), Style::new());
    if let Some(exit) = &entry.last_exit {
        let how = match (&exit.code, &exit.signal) {
            (Some(code), _) => format!("code {code}"),
            (_, Some(signal)) => signal.clone(),
            _ => "unknown".into(),
        };
        line("last exit", format!("{how}, {}", ago(now, exit.at)), Style::new());
    }
    line("directory", entry.dir.display().to_string(), Style::new());
    let mut out = table.render();
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            out.push_str(&format!("\n{}\n{}\n", styled(DIM, title), lines.join("\n")));
        }
    };
    section("why", reason(entry, now));
    section(
        "last lines of its log",
        entry.stderr_tail.iter().map(|line| format!("    {}", print::safe(line))).collect(),
    );
    section(
        "tools",
        entry
            .tools
            .iter()
            .map(|tool| {
                format!(
                    "    {}  {}",
                    styled(print::CYAN, print::first_line(&tool.name)),
                    styled(DIM, print::first_line(&tool.description))
                )
            })
            .collect(),
    );
    out
}

fn ago(now: Timestamp, then: Timestamp) -> String {
    format!("{} ago", length(now.0 - then.0))
}

/// Bytes as a person says them.
fn memory(bytes: u64) -> String {
    let tenths = |unit: u64| (bytes.saturating_mul(10) + unit / 2) / unit;
    let short = |tenths: u64, unit: &str| match tenths {
        0..100 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        _ => format!("{} {unit}", (tenths + 5) / 10),
    };
    match bytes {
        0..999_950_000 => short(tenths(1_000_000), "MB"),
        _ => short(tenths(1_000_000_000), "GB"),
    }
}

/// Seconds of CPU time as a person says them.
fn cpu(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..100.0 => format!("{seconds:.0} s"),
        #[allow(clippy::cast_possible_truncation, reason = "it saturates")]
        _ => length((seconds * 1000.0) as i64),
    }
}

/// Milliseconds as a person says them.
pub(super) fn length(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_said_shortly() {
        let said = [640_000, 4_250_000, 17_800_000, 999_900_000, 1_250_000_000].map(memory);
        assert_eq!(said, ["0.6 MB", "4.3 MB", "18 MB", "1000 MB", "1.3 GB"]);
        assert_eq!([0.21, 12.4, 150.0, 7300.0].map(cpu), ["0.2 s", "12 s", "2 min", "2 h"]);
    }
}
