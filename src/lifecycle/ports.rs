//! The pool of ports. Asked by `guild`, which alone knows when a holder's process is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{Moment, Port, PortRange};

/// How long a port that another program was seen to hold is left alone.
const SEEN_BUSY: Duration = Duration::from_secs(30);
/// How long a port that a member refused is: it may be the member that is wrong, and ten of them a
/// start must not use up the pool.
const SAID_BUSY: Duration = Duration::from_secs(5);

/// Who says that a port is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// The hall could not bind it.
    Seen,
    /// A member exited with code 2.
    Said,
}

/// Why no port can be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPort {
    /// One sentence for the roster.
    Exhausted(String),
    /// There are some, and the member has refused every one of them.
    AllRefused,
}

/// Every port of the range is in exactly one of: free, held (by a member), shunned.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Ports {
    range: PortRange,
    free: BTreeSet<Port>,
    shunned: BTreeMap<Port, Moment>,
}

impl Ports {
    pub(super) fn new(range: PortRange) -> Self {
        Self { range, free: range.ports().collect(), shunned: BTreeMap::new() }
    }

    /// Takes a port out of the pool: the member's last one if it can be had, else the lowest that
    /// is free; never one that the member has just refused.
    pub(super) fn take(&mut self, last: Option<Port>, refused: &[Port], now: Moment) -> Result<Port, NoPort> {
        self.forgive(now);
        let wanted = |port: &Port| !refused.contains(port);
        let port = last
            .filter(|port| wanted(port) && self.free.contains(port))
            .or_else(|| self.free.iter().copied().find(wanted));
        if let Some(port) = port {
            self.free.remove(&port);
            return Ok(port);
        }
        let mut unheld = self.free.iter().chain(self.shunned.keys()).peekable();
        if unheld.peek().is_some() && unheld.all(|port| refused.contains(port)) {
            return Err(NoPort::AllRefused);
        }
        Err(NoPort::Exhausted(self.exhaustion()))
    }

    /// Takes a port for a process that has it already. False if it is not the pool's to give.
    pub(super) fn hold(&mut self, port: Port) -> bool {
        let free = self.free.remove(&port);
        self.shunned.remove(&port).is_some() || free
    }

    /// Gives a port back once its holder is dead.
    pub(super) fn give_back(&mut self, port: Port) {
        if self.range.numbers().contains(&port.get()) {
            self.free.insert(port);
        }
    }

    /// Gives back a port that another program has for now.
    pub(super) fn shun(&mut self, port: Port, busy: Busy, now: Moment) {
        let length = match busy {
            Busy::Seen => SEEN_BUSY,
            Busy::Said => SAID_BUSY,
        };
        if self.range.numbers().contains(&port.get()) {
            self.shunned.insert(port, now + length);
        }
    }

    fn exhaustion(&self) -> String {
        let total = self.range.len();
        let shunned = self.shunned.len();
        let held = total - shunned - self.free.len();
        format!(
            "no free port in {}: {held} of {total} are held by members, {shunned} by other programs; \
             it starts by itself when one is freed (stop a member, or widen the range with --ports)",
            self.range
        )
    }

    fn forgive(&mut self, now: Moment) {
        let free = &mut self.free;
        self.shunned.retain(|&port, &mut until| {
            let over = until <= now;
            if over {
                free.insert(port);
            }
            !over
        });
    }

    /// Ports that no member holds.
    pub(super) fn unheld(&self) -> usize {
        self.free.len() + self.shunned.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16) -> Port {
        Port::new(number).unwrap()
    }

    fn pool() -> Ports {
        Ports::new("10-12".parse().unwrap())
    }

    #[test]
    fn a_member_keeps_its_last_port_if_it_can_else_it_gets_the_lowest_free_one() {
        let mut ports = pool();
        let now = Moment::ZERO;
        assert_eq!(ports.take(Some(port(12)), &[], now), Ok(port(12)));
        assert_eq!(ports.take(Some(port(12)), &[], now), Ok(port(10)));
        assert_eq!(ports.take(None, &[], now), Ok(port(11)));
        assert!(
            matches!(ports.take(None, &[], now), Err(NoPort::Exhausted(why)) if why.contains("3 of 3 are held by members"))
        );
        ports.give_back(port(11));
        assert_eq!(ports.take(None, &[port(11)], now), Err(NoPort::AllRefused));
        assert_eq!(ports.take(None, &[], now), Ok(port(11)));
    }

    #[test]
    fn a_port_that_another_program_has_is_left_alone_for_a_while() {
        let mut ports = pool();
        let start = Moment::ZERO;
        for (busy, length) in [(Busy::Seen, SEEN_BUSY), (Busy::Said, SAID_BUSY)] {
            let taken = ports.take(Some(port(10)), &[], start).unwrap();
            ports.shun(taken, busy, start);
            assert_eq!(ports.take(Some(taken), &[], start), Ok(port(11)));
            assert_eq!(ports.take(Some(taken), &[], start + length), Ok(taken));
            ports.give_back(port(10));
            ports.give_back(port(11));
        }
    }
}
