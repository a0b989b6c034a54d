//! Time as the pure code sees it: handed in, never asked for.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Microseconds on the machine's monotonic clock: the same for every hall of one boot, so that a moment
/// can be handed from one to the next.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// When the machine came up.
    pub const ZERO: Self = Self(0);

    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Self(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000)
    }

    pub fn after(start: Duration) -> Self {
        Self(u64::try_from(start.as_micros()).unwrap_or(u64::MAX))
    }

    /// Zero when `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This moment as a length of time since the machine came up.
    pub fn elapsed(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time in milliseconds since 1970, UTC; RFC 3339 with three decimals in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }

    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(time.as_millisecond()))
    }
}
