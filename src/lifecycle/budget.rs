//! How often a member that fails is started again, and how soon. Asked by `guild` at each failure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::Moment;

/// More restarts than this within [`WINDOW`] spend the budget.
const RESTARTS: usize = 10;
const WINDOW: Duration = Duration::from_secs(10 * 60);
/// The second restart waits this long, each further one twice as long, up to [`LONGEST_DELAY`].
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// A member that was connected for this long starts the count anew.
const STEADY: Duration = Duration::from_secs(5 * 60);

/// What the budget says to one more restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    RestartIn(Duration),
    /// The budget is spent: so many restarts within [`WINDOW`].
    Spent(usize),
}

/// The restarts of one member since its count began.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Budget {
    /// When the restarts within the window were granted, oldest first; at most [`RESTARTS`].
    granted: VecDeque<Moment>,
    /// Restarts in a row: the exponent of the delay.
    streak: u32,
    /// All restarts that were granted.
    total: u32,
}

impl Budget {
    /// Asks for one restart at `now`. `chance` is any number: it sets the jitter, which shortens
    /// the delay by up to a quarter so that members which died together do not return together.
    pub(super) fn ask(&mut self, now: Moment, chance: u64) -> Verdict {
        while self.granted.front().is_some_and(|&then| now.since(then) > WINDOW) {
            self.granted.pop_front();
        }
        if self.granted.len() >= RESTARTS {
            return Verdict::Spent(self.granted.len());
        }
        self.granted.push_back(now);
        let delay = delay(self.streak);
        self.streak = self.streak.saturating_add(1);
        self.total = self.total.saturating_add(1);
        Verdict::RestartIn(
            delay.saturating_sub(delay / 4096 * u32::try_from(chance % 1024).unwrap_or_default()),
        )
    }

    /// Told when the member stops being connected: a long life starts the count anew.
    pub(super) fn lived(&mut self, connected: Duration) {
        if connected >= STEADY {
            self.granted.clear();
            self.streak = 0;
        }
    }

    /// Nothing that a later hall would have to know.
    pub(super) fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }
}

/// The delay before a restart that follows `streak` others.
fn delay(streak: u32) -> Duration {
    match streak {
        0 => Duration::ZERO,
        n => FIRST_DELAY.saturating_mul(1_u32.checked_shl(n - 1).unwrap_or(u32::MAX)).min(LONGEST_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_restart_is_immediate_and_further_ones_double_up_to_a_minute() {
        let seconds: Vec<u64> = (0..9).map(|streak| delay(streak).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(delay(u32::MAX), LONGEST_DELAY);
    }

    #[test]
    fn jitter_only_shortens_and_by_a_quarter_at_most() {
        for chance in [0, 1, 511, 1023, u64::MAX] {
            let mut budget = Budget::default();
            budget.ask(at(0), chance);
            let Verdict::RestartIn(delay) = budget.ask(at(0), chance) else { panic!("spent") };
            assert!(delay <= FIRST_DELAY && delay >= FIRST_DELAY.mul_f64(0.75), "{delay:?}");
        }
    }

    #[test]
    fn ten_restarts_in_ten_minutes_spend_the_budget_and_time_refills_it() {
        let mut budget = Budget::default();
        for second in 0..10 {
            assert!(matches!(budget.ask(at(second), 0), Verdict::RestartIn(_)));
        }
        assert_eq!(budget.ask(at(600), 0), Verdict::Spent(10));
        assert!(matches!(budget.ask(at(601), 0), Verdict::RestartIn(_)));
        assert_eq!(budget.ask(at(601), 0), Verdict::Spent(10));
    }

    #[test]
    fn five_minutes_of_connected_start_the_count_anew() {
        let mut budget = Budget::default();
        for _ in 0..10 {
            budget.ask(at(0), 0);
        }
        budget.lived(Duration::from_secs(299));
        assert_eq!(budget.ask(at(299), 0), Verdict::Spent(10));
        budget.lived(Duration::from_secs(300));
        assert_eq!(budget.ask(at(300), 0), Verdict::RestartIn(Duration::ZERO));
        assert_eq!(budget.total(), 11);
    }
}
