//! `register` and `unregister`: the API for plugins that register themselves, from the shell.

use std::fs::File;
use std::io::{self, Read};

use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

use super::print::{self, phase_style, styled};
use super::{Failed, NOT_FOUND, Target};
use crate::control::Streamed;
use crate::model::{MemberKey, PhaseName, Status};

/// Register a HomeClaw plugin: it becomes a member, now and after every restart of the hall
///
/// FILE holds the descriptor that such a plugin would send to POST /api/plugins/register. What is
/// registered already is changed. Prints which member it is, and how it is once it has settled.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall register slack-bot.json\n  jq .plugin descriptors.json | guild-hall register -"
)]
pub(super) struct Register {
    /// The descriptor, a JSON object; - for standard input
    file: String,
    /// Return at once, not when the member has settled
    #[arg(long)]
    no_wait: bool,
    /// The answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Unregister a HomeClaw plugin: its member is stopped and leaves the roster
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  guild-hall unregister slack-bot")]
pub(super) struct Unregister {
    /// The plugin's id; case, and -, _ or space, do not matter
    #[arg(value_name = "ID")]
    id: String,
    /// The answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(serde::Deserialize)]
struct Answer {
    plugin_id: String,
    member: MemberKey,
    status: Option<Status>,
    phase: Option<PhaseName>,
    error: Option<String>,
}

/// More is not read, and the hall says that it is too large; bytes.
const LARGEST: u64 = 1024 * 1024;
/// An answer is a few lines; bytes.
const LARGEST_ANSWER: usize = 1024 * 1024;

impl Register {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let (source, descriptor) = self.descriptor()?;
        let path = format!("/api/plugins/register?wait={}", !self.no_wait);
        let answer = self.target.client().exchange(Method::POST, &path, &[], descriptor).await?;
        let answer = read(answer, &source).await?;
        if self.json {
            return print::json(&answer);
        }
        let Answer { plugin_id, member, status, phase, error } = understood(answer)?;
        let is = match (status, phase) {
            (Some(status), Some(phase)) => format!(": {}", styled(phase_style(phase), status)),
            _ => String::new(),
        };
        let why = error.map(|error| format!(", {}", print::safe(&error))).unwrap_or_default();
        print::out(&format!("registered {} as {member}{is}{why}\n", print::safe(&plugin_id)))
    }

    fn descriptor(&self) -> Result<(String, Vec<u8>), Failed> {
        let mut bytes = Vec::new();
        let (source, read) = if self.file == "-" {
            ("standard input".to_owned(), io::stdin().take(LARGEST).read_to_end(&mut bytes))
        } else {
            let read = File::open(&self.file).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
            (self.file.clone(), read)
        };
        read.map_err(|error| Failed::new(format!("cannot read {source}: {error}")))?;
        Ok((source, bytes))
    }
}

impl Unregister {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let body = json!({"plugin_id": self.id}).to_string();
        let answer =
            self.target.client().exchange(Method::POST, "/api/plugins/unregister", &[], body).await?;
        let answer = read(answer, "ID").await?;
        if self.json {
            return print::json(&answer);
        }
        let Answer { plugin_id, member, .. } = understood(answer)?;
        print::out(&format!("unregistered {}, which was {member}\n", print::safe(&plugin_id)))
    }
}

/// The answer, or what is wrong: each field on a line of its own, with where it was written.
async fn read(mut answer: Streamed, source: &str) -> Result<Value, Failed> {
    let status = answer.status();
    let mut body: Vec<u8> = Vec::new();
    while let Some(piece) = answer.next().await.filter(|_| body.len() < LARGEST_ANSWER) {
        body.extend_from_slice(&piece);
    }
    let body: Value = serde_json::from_slice(&body)
        .map_err(|_| Failed::new(format!("the hall answered {status} without saying why")))?;
    let message = match &body["detail"] {
        _ if status.is_success() => return Ok(body),
        Value::Array(fields) => {
            fields.iter().map(|field| wrong(source, field)).collect::<Vec<_>>().join("\n")
        }
        detail => print::safe(detail.as_str().unwrap_or("the hall does not say why")),
    };
    let failed = Failed::new(message);
    Err(if status == 404 { Failed { code: NOT_FOUND, ..failed } } else { failed })
}

/// `slack-bot.json: capabilities[0].id: is missing`.
fn wrong(source: &str, fault: &Value) -> String {
    let mut field = String::new();
    for part in fault["loc"].as_array().into_iter().flatten().skip(1) {
        match part.as_str() {
            Some(name) if field.is_empty() => field.push_str(name),
            Some(name) => field.push_str(&format!(".{name}")),
            None => field.push_str(&format!("[{part}]")),
        }
    }
    let field = if field.is_empty() { field } else { format!(" {field}:") };
    print::safe(&format!("{source}:{field} {}", fault["msg"].as_str().unwrap_or_default()))
}

fn understood(answer: Value) -> Result<Answer, Failed> {
    serde_json::from_value(answer)
        .map_err(|error| Failed::new(format!("the answer of the hall cannot be read: {error}")))
}
