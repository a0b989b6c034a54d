//! Where a member is in its life, as the roster tells it.

use std::fmt;

/// The phases of a member (README.md); each has exactly one [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseName {
    Invalid,
    Stopped,
    Starting,
    Greeting,
    Connected,
    Unwell,
    Waiting,
    Stopping,
    Failed,
}

/// What the routing layer needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Connected,
    Disconnected,
    Error,
}

impl PhaseName {
    pub fn status(self) -> Status {
        match self {
            Self::Connected => Status::Connected,
            Self::Stopped | Self::Starting | Self::Greeting | Self::Stopping => Status::Disconnected,
            Self::Invalid | Self::Unwell | Self::Waiting | Self::Failed => Status::Error,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Greeting => "greeting",
            Self::Connected => "connected",
            Self::Unwell => "unwell",
            Self::Waiting => "waiting",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
        }
    }
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
