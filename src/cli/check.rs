//! `check`: are these manifests right? Starts nothing, needs no hall.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::print::{self, GREEN, RED, YELLOW, styled};
use super::{FAILED, Failed};
use crate::dialect::REGISTRY_FILE;
use crate::discovery::{check_registry, discover, read_manifest, read_member};
use crate::model::{Diagnosis, Manifest, Rejection};

/// Validate manifests without starting anything
///
/// A PATH is a manifest, a registry.yaml, a member's directory, or a directory of members.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  guild-hall check\n  guild-hall check guild-members/weather\n  guild-hall check --json | jq '.[] | select(.level == \"error\")'"
)]
pub(super) struct Check {
    #[arg(default_value = "guild-members", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The findings as JSON
    #[arg(long)]
    json: bool,
}

/// One line of the report.
#[derive(Serialize)]
struct Finding {
    level: &'static str,
    file: PathBuf,
    line: Option<usize>,
    column: Option<usize>,
    field: Option<String>,
    message: String,
}

#[derive(Default)]
struct Report {
    findings: Vec<(Finding, Diagnosis)>,
    valid: usize,
    invalid: usize,
}

impl Check {
    pub(super) fn execute(self) -> Result<(), Failed> {
        let mut report = Report::default();
        for path in &self.paths {
            report.look_at(path)?;
        }
        let Report { findings, valid, invalid } = report;
        if self.json {
            print::json(&findings.iter().map(|(finding, _)| finding).collect::<Vec<_>>())?;
        } else {
            for (finding, diagnosis) in &findings {
                let level = styled(if finding.level == "error" { RED } else { YELLOW }, finding.level);
                print::out(&format!("{level} {}\n", print::safe(&diagnosis.to_string())))?;
            }
            let counted = format!("{valid} valid, {invalid} invalid\n");
            print::out(&if invalid == 0 { styled(GREEN, counted) } else { counted })?;
        }
        if invalid == 0 { Ok(()) } else { Err(Failed { code: FAILED, message: String::new() }) }
    }
}

impl Report {
    fn look_at(&mut self, path: &Path) -> Result<(), Failed> {
        if path.is_file() && path.file_name().is_some_and(|name| name == REGISTRY_FILE) {
            for read in check_registry(path) {
                self.add(&read);
            }
        } else if path.is_file() {
            self.add(&read_manifest(path));
        } else if let Some(read) = read_member(path) {
            self.add(&read);
        } else {
            for paper in discover(path)
                .map_err(|error| {
                    Failed::new(error.to_string().replace(", or name another with --members", ""))
                })?
                .papers
                .values()
            {
                match paper {
                    Ok(manifest) => self.valid(manifest),
                    Err(rejection) => self.invalid(rejection),
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, read: &Result<Manifest, Rejection>) {
        match read {
            Ok(manifest) => self.valid(manifest),
            Err(rejection) => self.invalid(rejection),
        }
    }

    fn valid(&mut self, manifest: &Manifest) {
        self.valid += 1;
        for warning in &manifest.warnings {
            self.find("warning", warning);
        }
    }

    fn invalid(&mut self, rejection: &Rejection) {
        self.invalid += 1;
        for fault in rejection.all() {
            self.find("error", fault);
        }
    }

    fn find(&mut self, level: &'static str, diagnosis: &Diagnosis) {
        let Diagnosis { file, place, field, message } = diagnosis.clone();
        let finding = Finding {
            level,
            file,
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            field,
            message,
        };
        self.findings.push((finding, diagnosis.clone()));
    }
}
