//! `tools`: what can be called.

use clap::Args;
use serde_json::Value;

use super::print::{self, BOLD, DIM};
use super::table::{Table, cell};
use super::{Failed, NOT_FOUND, Target};
use crate::control::Client;

/// List the tools of all members, or of one, under the names that agents use
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  guild-hall tools\n  guild-hall tools toolbox/clock --json")]
pub(super) struct Tools {
    /// Only this member's
    name: Option<String>,
    /// JSON as the API has it, schemas included
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Tools {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let client = self.target.client();
        let mut tools: Vec<Value> = client.get("/v1/tools").await?;
        if let Some(name) = &self.name {
            let entry: crate::model::Entry =
                client.get(&format!("/v1/roster/{}", Client::segment(name))).await?;
            tools.retain(|tool| tool["member"] == entry.name.as_str());
            if tools.is_empty() && !self.json {
                let why = entry.error.map(|error| format!(": {error}")).unwrap_or_default();
                return Err(Failed {
                    code: NOT_FOUND,
                    message: format!("{name} is {} and offers no tools{why}", entry.phase),
                });
            }
        }
        if self.json {
            return print::json(&tools);
        }
        if tools.is_empty() {
            return print::out("No tools: no member is connected. See `guild-hall roster`.\n");
        }
        let mut table = Table::default();
        table.row(["TOOL", "MEMBER", "DESCRIPTION"].map(|title| cell(title, DIM)).into());
        let text = |tool: &Value, field: &str| print::first_line(tool[field].as_str().unwrap_or_default());
        for tool in &tools {
            let member = text(tool, "member");
            table.row(vec![
                cell(text(tool, "name"), BOLD),
                cell(member, anstyle::Style::new()),
                cell(text(tool, "description"), DIM),
            ]);
        }
        print::out(&table.render())
    }
}
