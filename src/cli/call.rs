//! `call`: one tool, once.

use std::fs;
use std::io::{self, Read};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Failed, TOOL_ERROR, Target, print};

/// Call a tool and print what it answers
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall call example echo '{\"text\":\"hello\"}'\n  guild-hall call toolbox/calc evaluate @expression.json\n  echo '{\"zone\":\"Europe/Paris\"}' | guild-hall call toolbox/clock now -"
)]
pub(super) struct Call {
    /// The member's name, as in the roster
    member: String,
    /// The tool's own name
    tool: String,
    /// A JSON object, @FILE, or - for standard input
    #[arg(default_value = "{}")]
    args: String,
    /// Give up after so many seconds [default: the member's callTimeoutMs]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<u64>,
    /// The whole result, not its text alone
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Seconds, also in fractions, as milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it must be a number of seconds".to_owned())?;
    let millis = Duration::try_from_secs_f64(seconds).map_or(0, |length| length.as_millis());
    let sensible = u64::try_from(millis).ok().filter(|millis| (1..=86_400_000).contains(millis));
    sensible.ok_or_else(|| "it must be between 0.001 and 86400".into())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    member: &'a str,
    tool: &'a str,
    arguments: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Answer {
    result: Box<RawValue>,
}

impl Call {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let (text, source) = self.arguments()?;
        // Kept as they stand: a large number must reach the member as it was written.
        let arguments: Box<RawValue> = serde_json::from_str(text.trim())
            .map_err(|error| Failed::usage(format!("{source} is not JSON: {error}")))?;
        if !arguments.get().starts_with('{') {
            return Err(Failed::usage(format!(
                "{source} must be a JSON object, such as '{{\"text\":\"hello\"}}'"
            )));
        }
        let body =
            Body { member: &self.member, tool: &self.tool, arguments: &arguments, timeout_ms: self.timeout };
        let body = serde_json::to_string(&body).map_err(Failed::new)?;
        let Answer { result: raw } = self.target.client().post("/v1/call", body).await?;
        let result: &Value = &serde_json::from_str(raw.get()).map_err(Failed::new)?;
        let is_error = result["isError"] == true;
        if self.json {
            print::out(&format!("{raw}\n"))?;
        } else if !is_error {
            print::out(&content(result))?;
        }
        if is_error {
            let message = format!("the tool reported: {}", content(result).trim_end());
            return Err(Failed { code: TOOL_ERROR, message });
        }
        Ok(())
    }

    fn arguments(&self) -> Result<(String, String), Failed> {
        if self.args == "-" {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failed::new(format!("cannot read standard input: {error}")))?;
            return Ok((text, "standard input".into()));
        }
        if let Some(path) = self.args.strip_prefix('@') {
            let text = fs::read_to_string(path)
                .map_err(|error| Failed::new(format!("cannot read {path}: {error}")))?;
            return Ok((text, path.into()));
        }
        Ok((self.args.clone(), "ARGS".into()))
    }
}

/// Text content as it is; of anything else, what it is; structured content where there is nothing else.
fn content(result: &Value) -> String {
    let mut out = String::new();
    for item in result["content"].as_array().into_iter().flatten() {
        match (item["type"].as_str(), item["text"].as_str()) {
            (Some("text"), Some(text)) => out.push_str(&print::safe(text)),
            (kind, _) => out
                .push_str(&format!("[{}; --json shows it]", print::safe(kind.unwrap_or("unknown content")))),
        }
        out.push('\n');
    }
    if out.is_empty() {
        let whole = if result["structuredContent"].is_null() { result } else { &result["structuredContent"] };
        out = format!("{whole:#}\n");
    }
    out
}
