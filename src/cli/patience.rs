//! Waiting for a hall that is gone: for verbs that stay (`logs -f`, `roster --watch`).

use std::time::Duration;

use super::print;
use crate::control::ClientError;

/// First and longest time between two attempts to reach it.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Says once that the hall is gone, and once that it is back.
pub(super) struct Patience {
    pause: Option<Duration>,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { pause: None }
    }

    /// To be called when the hall is not there; returns when it is time to look again.
    pub(super) async fn wait(&mut self) {
        if self.pause.is_none() {
            print::note("the hall is gone; waiting for it");
        }
        let pause = self.pause.unwrap_or(FIRST);
        tokio::time::sleep(pause).await;
        self.pause = Some((pause * 2).min(LONGEST));
    }

    /// To be called when it has answered.
    pub(super) fn over(&mut self) {
        if self.pause.take().is_some() {
            print::note("the hall is back");
        }
    }

    /// Waiting may mend it: the hall is not there, or went away in the middle of its answer, or is
    /// about to end.
    pub(super) fn helps(error: &ClientError) -> bool {
        match error {
            ClientError::NoHall { .. } | ClientError::Broken(_) => true,
            ClientError::Problem(problem) => problem.status == 503,
        }
    }
}
