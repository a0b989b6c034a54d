//! What `run` shows a person: each change as it happens, the roster once all have settled, and how
//! to go on from there.

use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;

use super::print::{self, BOLD, CYAN, DIM, phase_style, styled};
use super::roster::overview;
use crate::hall::{Change, Hall};
use crate::model::PhaseName;

pub(super) struct View {
    hall: Hall,
    started: Instant,
    introduced: bool,
}

/// A member that needs longer than this to settle is not waited for with the introduction.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

impl View {
    pub(super) fn new(hall: Hall) -> Self {
        Self { hall, started: Instant::now(), introduced: false }
    }

    /// Runs until the hall ends.
    pub(super) async fn show(mut self) {
        let mut changes = self.hall.changes();
        let roster = self.hall.roster();
        let members = roster.members.len();
        say(&format!(
            "{} {}, {members} member{} in {}\n",
            styled(BOLD, "Guild Hall"),
            env!("CARGO_PKG_VERSION"),
            if members == 1 { "" } else { "s" },
            self.hall.members_dir().display()
        ));
        for entry in roster.members.iter().filter(|entry| entry.phase == PhaseName::Invalid) {
            self.line(entry.name.as_str(), PhaseName::Invalid, entry.error.as_deref().unwrap_or_default());
        }
        let longest_wait = tokio::time::sleep(LONGEST_WAIT);
        tokio::pin!(longest_wait);
        loop {
            if !self.introduced && self.hall.is_ready() {
                self.introduce();
            }
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) => self.change(&change),
                    // So much happened at once that it could not be read either.
                    Err(RecvError::Lagged(missed)) => say(&styled(DIM, format!("… {missed} changes\n"))),
                    Err(RecvError::Closed) => return,
                },
                () = &mut longest_wait, if !self.introduced => self.introduce(),
            }
        }
    }

    fn change(&self, change: &Change) {
        let Some(entry) = &change.entry else {
            say(&format!("{}  {} left: {}\n", self.clock(), styled(BOLD, &change.key), change.why));
            return;
        };
        // A launch is worth a line when it is not the first; a handshake when it is done.
        let quiet = match entry.phase {
            PhaseName::Starting => entry.attempts < 2,
            PhaseName::Greeting => true,
            PhaseName::Stopped => change.from == Some(PhaseName::Stopped) || change.from.is_none(),
            phase => change.from == Some(phase),
        };
        if !quiet {
            self.line(change.key.as_str(), entry.phase, &change.why);
        }
    }

    fn line(&self, name: &str, phase: PhaseName, why: &str) {
        let phase = styled(phase_style(phase), format!("{phase:<9}"));
        say(&format!(
            "{}  {phase}  {}  {}\n",
            self.clock(),
            styled(BOLD, name),
            styled(DIM, print::safe(why))
        ));
    }

    /// Seconds since the hall came up.
    fn clock(&self) -> String {
        styled(DIM, format!("{:>8.2}s", self.started.elapsed().as_secs_f64()))
    }

    fn introduce(&mut self) {
        self.introduced = true;
        let roster = self.hall.roster();
        let socket = self.hall.run_dir().socket();
        let example = roster.members.iter().find_map(|entry| Some((entry, entry.tools.first()?)));
        let call = match example {
            Some((entry, tool)) => {
                format!("guild-hall call {} {}", entry.name, print::first_line(&tool.name))
            }
            None => "guild-hall call MEMBER TOOL '{…}'".into(),
        };
        let step =
            |command: &str, what: &str| format!("  {:<44} {}\n", styled(CYAN, command), styled(DIM, what));
        say(&format!(
            "\n{}\nThe hall listens on {}\n{}{}{}{}Ctrl-C stops all members.\n\n",
            overview(&roster),
            styled(CYAN, socket.display()),
            step("guild-hall roster", "who is connected, and why another is not"),
            step("guild-hall tools", "what can be called"),
            step(&call, "call it"),
            step(
                &format!("curl --unix-socket {} http://hall/v1/roster", socket.display()),
                "the same for programs"
            ),
        ));
    }
}

fn say(text: &str) {
    // A terminal that is gone must not end the hall.
    let _ = print::out(text);
}
