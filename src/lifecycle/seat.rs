//! What the core knows of one member. Owned by `guild`, read by `changes` and `entry`.

use std::sync::Arc;

use super::budget::Budget;
use super::member::MOST_PORTS_TRIED;
use super::phase::{Due, Phase, Stage, Then};
use crate::model::{Exit, Manifest, Moment, PhaseName, Port, Rejection};

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Seat {
    Invalid { rejection: Rejection, since: Moment },
    Admitted(Box<Admitted>),
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Admitted {
    pub(super) manifest: Arc<Manifest>,
    pub(super) phase: Phase,
    pub(super) since: Moment,
    /// Ports that the member refused with exit code 2 in the present start.
    pub(super) refused: Vec<Port>,
    /// What the last launch that refused its port had to say.
    pub(super) last_words: Arc<[String]>,
    /// Launches in the present start.
    pub(super) attempts: usize,
    pub(super) last_port: Option<Port>,
    pub(super) last_exit: Option<(Exit, Moment)>,
    pub(super) budget: Budget,
    /// What is wrong with the newest manifest, while the member runs on under `manifest`.
    pub(super) complaint: Option<Rejection>,
}

impl Seat {
    pub(super) fn phase_name(&self) -> PhaseName {
        match self {
            Self::Invalid { .. } => PhaseName::Invalid,
            Self::Admitted(member) => member.phase.name(),
        }
    }

    /// What stands in the directory is what the member has.
    pub(super) fn holds(&self, paper: &Result<Arc<Manifest>, Rejection>) -> bool {
        match (self, paper) {
            (Self::Invalid { rejection, .. }, Err(found)) => rejection == found,
            (Self::Admitted(member), Err(found)) => member.complaint.as_ref() == Some(found),
            (Self::Admitted(member), Ok(found)) => {
                member.complaint.is_none() && member.manifest == *found && !self.is_leaving()
            }
            (Self::Invalid { .. }, Ok(_)) => false,
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        matches!(self, Self::Admitted(member) if member.manifest.listed)
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::Admitted(member) if matches!(member.phase, Phase::Stopping { then: Then::Leave, .. }))
    }
}

impl Admitted {
    pub(super) fn new(manifest: Arc<Manifest>, phase: Phase, since: Moment) -> Self {
        Self {
            manifest,
            phase,
            since,
            refused: Vec::new(),
            last_words: Arc::default(),
            attempts: 0,
            last_port: None,
            last_exit: None,
            budget: Budget::default(),
            complaint: None,
        }
    }

    pub(super) fn why(&self, now: Moment) -> String {
        match (&self.phase, self.refused.last()) {
            (Phase::Starting(launch), Some(refused)) => format!(
                "exited with code 2 on port {refused}; launching on port {}, attempt {} of {MOST_PORTS_TRIED}",
                launch.port,
                self.refused.len() + 1
            ),
            (Phase::Waiting { failure, due: Due::At(at) }, _) => {
                format!("{}; next attempt in {:.1} s", failure.what, at.since(now).as_secs_f64())
            }
            (Phase::Stopping { stage: Stage::Killed { .. }, .. }, _) => {
                "it ignored SIGTERM, SIGKILL is sent".into()
            }
            (phase, _) => phase.why(),
        }
    }
}
