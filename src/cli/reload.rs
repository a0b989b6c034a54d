//! `reload`: read the members directory again.

use clap::Args;

use super::{Failed, Target, print};
use crate::model::{Changes, MemberKey};

/// Rescan the members directory now and say what has changed
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  guild-hall reload")]
pub(super) struct Reload {
    /// JSON as the API has it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Reload {
    pub(super) async fn execute(self) -> Result<(), Failed> {
        let changes: Changes = self.target.client().post("/v1/reload", "").await?;
        if self.json {
            return print::json(&changes);
        }
        let mut out = String::new();
        for (what, style, keys) in [
            ("added", print::GREEN, &changes.added),
            ("changed", print::YELLOW, &changes.changed),
            ("removed", print::RED, &changes.removed),
        ] {
            let names: Vec<&str> = keys.iter().map(MemberKey::as_str).collect();
            if !names.is_empty() {
                out.push_str(&format!("{} {}\n", print::styled(style, what), names.join(", ")));
            }
        }
        print::out(&format!("{out}{} unchanged\n", changes.unchanged))
    }
}
