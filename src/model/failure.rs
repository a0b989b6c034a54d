//! A member's fault. It is data for the roster, not an error of the hall.

use std::sync::Arc;

/// What went wrong with a member, in one sentence that a person can act on, and what it last
/// wrote to its log in that launch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    pub what: String,
    pub stderr_tail: Arc<[String]>,
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), stderr_tail: Arc::default() }
    }

    #[must_use]
    pub fn with_tail(mut self, stderr_tail: Arc<[String]>) -> Self {
        self.stderr_tail = stderr_tail;
        self
    }
}
