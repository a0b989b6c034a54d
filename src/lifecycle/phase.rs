//! The phases of a member, each with exactly the facts that are true in it.

use std::sync::Arc;

use crate::model::{Failure, Handshake, Instance, Manifest, Moment, PhaseName, Pid, Port};

/// Why a member leaves the roster.
pub(super) const GONE: &str = "its directory or registration is gone";

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) enum Phase {
    Stopped(Rest),
    /// A port is held, the launch is under way.
    Starting(Launch),
    /// The process lives and must have shaken hands at `until`.
    Greeting {
        life: Life,
        until: Moment,
        obstacle: Option<String>,
    },
    Connected {
        life: Life,
        since: Moment,
        handshake: Arc<Handshake>,
        health: Health,
    },
    /// The process lives and does not answer; at `until` it is given up.
    Unwell {
        life: Life,
        since: Moment,
        handshake: Arc<Handshake>,
        failure: Failure,
        probe: Probe,
        until: Moment,
    },
    /// The process answers, and says that what it stands in front of is not well. It is waited for without
    /// end: starting it anew would mend nothing.
    Ailing {
        life: Life,
        since: Moment,
        handshake: Arc<Handshake>,
        failure: Failure,
        health: Health,
    },
    Waiting {
        failure: Failure,
        due: Due,
    },
    Stopping {
        launch: Launch,
        stage: Stage,
        then: Then,
    },
    Failed(Failure),
}

/// Where a launch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Origin {
    Launched,
    /// Taken over from an earlier hall.
    Adopted,
}

/// Why nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Rest {
    /// Its turn to be launched comes.
    Queued,
    ExitedCleanly,
    Asked,
}

/// One launch: from here on a port is held.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Launch {
    pub(super) instance: Instance,
    pub(super) port: Port,
    /// What it was launched from; the member may have a newer one by now.
    pub(super) manifest: Arc<Manifest>,
    pub(super) at: Moment,
    pub(super) origin: Origin,
}

/// A launch that has become a process.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Life {
    pub(super) launch: Launch,
    pub(super) pid: Pid,
}

/// Whether a member that answers is being probed.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) enum Health {
    /// The next probe, if there is to be one.
    Quiet(Option<Moment>),
    /// No answer by then counts as a failed probe.
    Probing(Moment),
}

#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) enum Probe {
    At(Moment),
    UnderWay,
}

/// When a failed member is started again.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) enum Due {
    At(Moment),
    /// Now: it stands in the queue.
    Queued,
}

/// How far a stop has come.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) enum Stage {
    /// The launch is still under way; its process will be ended as soon as it is born.
    Unborn,
    /// SIGTERM is sent; SIGKILL follows at `kill_at`.
    Asked { pid: Pid, kill_at: Moment },
    /// SIGKILL is sent.
    Killed { pid: Pid },
    /// It died by itself; how, and when its tree is gone, is yet to be told.
    Dead,
}

/// What a member becomes once its process is gone.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) enum Then {
    Rest,
    Relaunch,
    Leave,
    Fail(Failure),
    /// What its exit means.
    ByExit(Before),
}

/// Until when a member lived that died unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Before {
    Handshake,
    Asked,
}

impl Phase {
    pub(super) fn name(&self) -> PhaseName {
        match self {
            Self::Stopped(_) => PhaseName::Stopped,
            Self::Starting(_) => PhaseName::Starting,
            Self::Greeting { .. } => PhaseName::Greeting,
            Self::Connected { .. } => PhaseName::Connected,
            Self::Unwell { .. } | Self::Ailing { .. } => PhaseName::Unwell,
            Self::Waiting { .. } => PhaseName::Waiting,
            Self::Stopping { .. } => PhaseName::Stopping,
            Self::Failed(_) => PhaseName::Failed,
        }
    }

    /// The launch whose port is held.
    pub(super) fn launch(&self) -> Option<&Launch> {
        match self {
            Self::Starting(launch) | Self::Stopping { launch, .. } => Some(launch),
            Self::Greeting { life, .. }
            | Self::Connected { life, .. }
            | Self::Unwell { life, .. }
            | Self::Ailing { life, .. } => Some(&life.launch),
            Self::Stopped(_) | Self::Waiting { .. } | Self::Failed(_) => None,
        }
    }

    /// The process, once there is one.
    pub(super) fn pid(&self) -> Option<Pid> {
        match self {
            Self::Greeting { life, .. }
            | Self::Connected { life, .. }
            | Self::Unwell { life, .. }
            | Self::Ailing { life, .. } => Some(life.pid),
            Self::Stopping { stage: Stage::Asked { pid, .. } | Stage::Killed { pid }, .. } => Some(*pid),
            _ => None,
        }
    }

    /// Since when the member has been reachable in this launch.
    pub(super) fn connected_since(&self) -> Option<Moment> {
        match self {
            Self::Connected { since, .. } | Self::Unwell { since, .. } | Self::Ailing { since, .. } => {
                Some(*since)
            }
            _ => None,
        }
    }

    pub(super) fn handshake(&self) -> Option<&Arc<Handshake>> {
        match self {
            Self::Connected { handshake, .. }
            | Self::Unwell { handshake, .. }
            | Self::Ailing { handshake, .. } => Some(handshake),
            _ => None,
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Unwell { failure, .. }
            | Self::Ailing { failure, .. }
            | Self::Waiting { failure, .. }
            | Self::Failed(failure) => Some(failure),
            Self::Stopping { then: Then::Fail(failure), .. } => Some(failure),
            _ => None,
        }
    }

    /// In the queue of the gate.
    pub(super) fn is_queued(&self) -> bool {
        matches!(self, Self::Stopped(Rest::Queued) | Self::Waiting { due: Due::Queued, .. })
    }

    /// Somebody wants it not to run, or not to be here any more.
    pub(super) fn is_asked_to_end(&self) -> bool {
        matches!(self, Self::Stopped(Rest::Asked) | Self::Stopping { then: Then::Rest | Then::Leave, .. })
    }

    /// Nothing more happens by itself soon.
    pub(super) fn is_settled(&self) -> bool {
        let under_way = matches!(self, Self::Starting(_) | Self::Greeting { .. } | Self::Stopping { .. });
        !under_way && !self.is_queued()
    }

    /// When the phase itself wants to be looked at again.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match self {
            Self::Starting(launch) => Some(launch.at + launch.manifest.start_timeout),
            Self::Greeting { until, .. } => Some(*until),
            Self::Connected { health, .. } | Self::Ailing { health, .. } => match health {
                Health::Quiet(next) => *next,
                Health::Probing(until) => Some(*until),
            },
            Self::Unwell { probe: Probe::At(next), until, .. } => Some(*next.min(until)),
            Self::Unwell { until, .. } => Some(*until),
            Self::Waiting { due: Due::At(due), .. } => Some(*due),
            Self::Stopping { stage: Stage::Asked { kill_at, .. }, .. } => Some(*kill_at),
            _ => None,
        }
    }

    /// Half a sentence for the log: why the member is here.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Stopped(Rest::Queued) => "its launch is queued".into(),
            Self::Stopped(Rest::ExitedCleanly) => "exited with code 0".into(),
            Self::Stopped(Rest::Asked) => "asked to stop".into(),
            Self::Starting(launch) => format!("launching on port {}", launch.port),
            Self::Greeting { life, .. } => format!("process {} lives, waiting for its handshake", life.pid),
            Self::Connected { life, handshake, .. } => {
                let tools = handshake.tools.len();
                format!("on port {} with {tools} tool{}", life.launch.port, if tools == 1 { "" } else { "s" })
            }
            Self::Stopping { then: Then::Fail(failure), .. } => failure.what.clone(),
            Self::Stopping { then: Then::Rest, .. } => "asked to stop".into(),
            Self::Stopping { then: Then::Relaunch, .. } => "to be started again".into(),
            Self::Stopping { then: Then::Leave, .. } => GONE.into(),
            Self::Stopping { then: Then::ByExit(_), .. } => "its process is dead".into(),
            Self::Unwell { failure, .. }
            | Self::Ailing { failure, .. }
            | Self::Waiting { failure, .. }
            | Self::Failed(failure) => failure.what.clone(),
        }
    }
}
