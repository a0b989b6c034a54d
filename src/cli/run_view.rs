//! What `run` shows a person: each change as it happens, the roster once all have settled, and how
//! to go on from there.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::output::Output;
use super::print::{self, BOLD, CYAN, DIM, phase_style, styled};
use super::roster::overview;
use super::table::{Table, cell};
use crate::hall::{Change, Hall, named_tools};
use crate::model::{PhaseName, Tool};

pub(super) struct View {
    hall: Hall,
    output: Output,
    started: Instant,
    introduced: bool,
    /// Width of the column of names.
    longest_name: usize,
}

/// A member that needs longer than this to settle is not waited for with the introduction.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

impl View {
    pub(super) fn new(hall: Hall, output: Output) -> Self {
        let longest = hall.roster().members.iter().map(|entry| entry.name.as_str().len()).max();
        Self {
            hall,
            output,
            started: Instant::now(),
            introduced: false,
            longest_name: longest.unwrap_or(0).min(40),
        }
    }

    /// Runs until the hall ends.
    pub(super) async fn show(mut self) {
        let mut changes = self.hall.changes();
        let roster = self.hall.roster();
        let members = roster.members.len();
        self.output.say(&format!(
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
                    Err(RecvError::Lagged(missed)) => self.output.say(&styled(DIM, format!("… {missed} changes\n"))),
                    Err(RecvError::Closed) => return,
                },
                () = &mut longest_wait, if !self.introduced => self.introduce(),
            }
        }
    }

    fn change(&self, change: &Change) {
        let Some(entry) = &change.entry else {
            self.output.say(&format!(
                "{}  {} left: {}\n",
                self.clock(),
                styled(BOLD, &change.key),
                change.why
            ));
            return;
        };
        // A launch is worth a line when it is not the first; a handshake when it is done.
        let quiet = match entry.phase {
            PhaseName::Starting => entry.attempts < 2,
            PhaseName::Greeting => true,
            // The failure itself follows in a moment.
            PhaseName::Stopping => entry.error.is_some(),
            PhaseName::Stopped => change.from == Some(PhaseName::Stopped) || change.from.is_none(),
            phase => change.from == Some(phase),
        };
        if !quiet {
            self.line(change.key.as_str(), entry.phase, &change.why);
        }
    }

    fn line(&self, name: &str, phase: PhaseName, why: &str) {
        let phase = styled(phase_style(phase), format!("{phase:<9}"));
        let name = styled(BOLD, format!("{name:<width$}", width = self.longest_name));
        self.output.say(&format!("{}  {phase}  {name}  {}\n", self.clock(), styled(DIM, print::safe(why))));
    }

    /// Seconds since the hall came up.
    fn clock(&self) -> String {
        styled(DIM, format!("{:>8.2}s", self.started.elapsed().as_secs_f64()))
    }

    fn introduce(&mut self) {
        self.introduced = true;
        let roster = self.hall.roster();
        let socket = self.hall.run_dir().socket();
        let program = program();
        let call = named_tools(&roster)
            .iter()
            .find_map(|named| Some(example_call(named.entry.name.as_str(), named.tool()?)));
        let call = call.unwrap_or_else(|| "call MEMBER TOOL '{…}'".into());
        let mut steps = Table::default();
        for (command, what) in [
            (format!("{program} roster"), "who is connected, and why another is not"),
            (format!("{program} tools"), "what can be called"),
            (format!("{program} {call}"), "call it"),
            (
                format!("curl --unix-socket {} http://hall/v1/roster", socket.display()),
                "the same for programs",
            ),
        ] {
            steps.row(vec![cell(format!("  {command}"), CYAN), cell(what, DIM)]);
        }
        self.output.say(&format!(
            "\n{}\nThe hall listens on {}. From another terminal:\n{}{}\nCtrl-C stops all members.\n\n",
            overview(&roster),
            styled(CYAN, socket.display()),
            steps.render(),
            styled(
                DIM,
                format!("  elsewhere than here, first: export GUILD_HALL_SOCKET={}", socket.display())
            ),
        ));
    }
}

/// This program, as a person would write it: by its name where the search path leads to it.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "guild-hall".into() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first =
        std::env::split_paths(&path).map(|dir| dir.join("guild-hall")).find(|candidate| candidate.is_file());
    if first.and_then(|found| found.canonicalize().ok()) == own.canonicalize().ok() {
        return "guild-hall".into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    own.strip_prefix(&here).unwrap_or(&own).display().to_string()
}

/// `call MEMBER TOOL ARGS`, with something of the right type for each parameter that is required.
fn example_call(member: &str, tool: &Tool) -> String {
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let arguments = required.iter().filter_map(Value::as_str).map(|name| {
        let example = match schema["properties"][name]["type"].as_str() {
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([1, 2]),
            Some("object") => json!({}),
            _ => json!("hello"),
        };
        (name.to_owned(), example)
    });
    let arguments: serde_json::Map<String, Value> = arguments.collect();
    let arguments = if arguments.is_empty() {
        String::new()
    } else {
        format!(" '{}'", print::safe(&Value::from(arguments).to_string()))
    };
    format!("call {member} {}{arguments}", print::first_line(&tool.name))
}
