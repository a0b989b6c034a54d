//! TCP ports, and the range that the hall hands out.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A loopback TCP port that the hall may give to a member; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Port(u16);

impl Port {
    pub fn new(number: u16) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// First and last port of the pool, both included: `50000-51000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PortRange {
    first: Port,
    last: Port,
}

/// Why a text is not a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of ports: write FIRST-LAST, both between 1 and 65535, as in 50000-51000")]
pub struct PortRangeError(String);

impl PortRange {
    pub fn new(first: Port, last: Port) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    pub fn ports(self) -> impl Iterator<Item = Port> {
        (self.first.0..=self.last.0).map(Port)
    }

    pub fn len(self) -> usize {
        usize::from(self.last.0 - self.first.0) + 1
    }

    pub fn numbers(self) -> RangeInclusive<u16> {
        self.first.0..=self.last.0
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = || {
            let (first, last) = text.split_once('-')?;
            let port = |part: &str| Port::new(part.trim().parse().ok()?);
            Self::new(port(first)?, port(last)?)
        };
        range().ok_or_else(|| PortRangeError(text.into()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_ports_in_order() {
        let range: PortRange = "50000-51000".parse().unwrap();
        assert_eq!((range.len(), range.to_string()), (1001, "50000-51000".into()));
        for bad in ["", "50000", "0-5", "9-8", "1-65536", "a-b", "1-2-3"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }
}
