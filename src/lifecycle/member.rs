//! The life of a member as one table: (phase, what happened) → (what comes next, what to order).
//! Called by `guild`, which owns all that members share: ports, places at the gate, budgets.

use std::sync::Arc;
use std::time::Duration;

use super::phase::{Before, Due, Health, Launch, Life, Phase, Probe, Rest, Stage, Then};
use crate::model::{Exit, Failure, Handshake, Manifest, Moment, Pid, RestartPolicy};

/// So many launches are refused with exit code 2 before a start is given up.
pub const MOST_PORTS_TRIED: usize = 10;
/// No answer to a probe within this time is a failed probe.
const PROBE_ANSWER: Duration = Duration::from_secs(5);
/// A porter may have to ask its plugin first.
const PORTERS_ANSWER: Duration = Duration::from_secs(8);
/// How often an unwell member is probed.
const UNWELL_PROBE: Duration = Duration::from_secs(1);

/// What a task reports of the launch that it was given.
#[derive(Debug, Clone)]
pub enum Report {
    Spawned(Pid),
    /// Another program holds the port; nothing was launched.
    PortBusy,
    SpawnFailed(Failure),
    /// The handshake does not get on, for now.
    Obstacle(String),
    Greeted(Handshake),
    /// It has shaken hands, and says that what it stands in front of is not well.
    GreetedAiling(Handshake, Failure),
    /// The member answered, and the answer is no handshake.
    HandshakeFailed(Failure),
    /// A call found it refusing or mute.
    Suspected,
    /// `None`: the hall could not ask, which says nothing about the member.
    Probed(Result<Option<Handshake>, Failure>),
    /// It answers, and says that what it stands in front of is not well.
    Ailing(Failure),
    /// Its process is dead; `Ended` follows when it is known how, and nothing of it is left.
    Died,
    /// Its process, and all that the process left behind, are dead.
    Ended {
        exit: Exit,
        stderr_tail: Arc<[String]>,
    },
}

/// All that can happen to one member.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Told(Report),
    /// The phase's own deadline has come.
    Overdue,
    Start,
    Stop(Then),
    Kill,
}

/// What the table says comes next.
#[derive(Debug)]
pub(super) enum Next {
    Be(Phase),
    /// A place in the queue, with a clean slate of ports; until then the failure is shown.
    Launch {
        after: Option<Failure>,
    },
    /// The member exited with code 2: this port will not do, the next one at once.
    LaunchElsewhere {
        stderr_tail: Arc<[String]>,
    },
    /// The port was found taken before the launch: not counted as an attempt.
    LaunchAvoiding,
    /// The restart policy and the budget decide.
    Fail(Failure),
    /// Out of the roster.
    Leave,
}

/// What the table wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Greet,
    Probe,
    Terminate,
    Kill,
}

pub(super) type Step = (Next, Option<Act>);

/// The table. `manifest` is the member's present one.
#[allow(clippy::too_many_lines, reason = "it is one table, read arm by arm")]
pub(super) fn step(phase: Phase, happening: Happening, manifest: &Manifest, now: Moment) -> Step {
    use Happening::{Kill, Overdue, Start, Stop, Told};
    use Phase as P;
    use Report as R;
    match (phase, happening) {
        // ── A launch becomes a process.
        (P::Starting(launch), Told(R::Spawned(pid))) => {
            let until = launch.at + launch.manifest.start_timeout;
            act(P::Greeting { life: Life { launch, pid }, until, obstacle: None }, Act::Greet)
        }
        (P::Starting(launch), Overdue) => {
            let timeout = seconds(launch.manifest.start_timeout);
            let what =
                format!("could not be started within {timeout}: the disk that it is on does not answer");
            be(P::Stopping { launch, stage: Stage::Unborn, then: Then::Fail(Failure::new(what)) })
        }
        (P::Starting(_), Told(R::PortBusy)) => (Next::LaunchAvoiding, None),
        (P::Starting(_), Told(R::SpawnFailed(failure))) => (Next::Fail(failure), None),

        // ── A process becomes a member.
        (P::Greeting { life, until, .. }, Told(R::Obstacle(what))) => {
            be(P::Greeting { life, until, obstacle: Some(what) })
        }
        (P::Greeting { life, .. }, Told(R::Greeted(handshake))) => {
            connected(life, now, handshake.into(), now)
        }
        (P::Greeting { life, .. }, Told(R::GreetedAiling(handshake, failure))) => {
            ailing(life, now, handshake.into(), failure, now)
        }
        (P::Greeting { life, .. }, Told(R::HandshakeFailed(failure))) => {
            terminate(life, Then::Fail(failure), now)
        }
        (P::Greeting { life, obstacle, .. }, Overdue) => {
            let failure = Failure::new(late_handshake(&life.launch, obstacle.as_deref()));
            terminate(life, Then::Fail(failure), now)
        }
        (P::Greeting { life, .. }, Told(R::Died)) => dead(life, Before::Handshake),
        (P::Greeting { life, .. }, Told(R::Ended { exit, stderr_tail })) => {
            ended(exit, Before::Handshake, &life.launch, stderr_tail, manifest, now)
        }

        // ── Probed on evidence, or where the manifest asks for an interval.
        (P::Connected { life, since, handshake, health: Health::Quiet(_) }, Told(R::Suspected) | Overdue) => {
            let health = Health::Probing(now + probe_answer(&life.launch));
            act(P::Connected { life, since, handshake, health }, Act::Probe)
        }
        (
            P::Ailing { life, since, handshake, failure, health: Health::Quiet(_) },
            Told(R::Suspected) | Overdue,
        ) => {
            let health = Health::Probing(now + probe_answer(&life.launch));
            act(P::Ailing { life, since, handshake, failure, health }, Act::Probe)
        }
        (P::Connected { life, since, handshake, .. } | P::Ailing { life, since, handshake, .. }, Overdue) => {
            let answer = probe_answer(&life.launch).as_secs();
            let failure = Failure::new(format!("did not answer a probe within {answer} s"));
            unwell(life, since, handshake, failure, now)
        }
        (
            P::Connected { life, since, handshake, .. } | P::Ailing { life, since, handshake, .. },
            Told(R::Probed(Err(failure))),
        ) => unwell(life, since, handshake, failure, now),
        (
            P::Connected { life, since, .. } | P::Unwell { life, since, .. } | P::Ailing { life, since, .. },
            Told(R::Probed(Ok(Some(handshake)))),
        ) => connected(life, since, handshake.into(), now),
        (
            P::Connected { life, since, handshake, .. }
            | P::Unwell { life, since, handshake, .. }
            | P::Ailing { life, since, handshake, .. },
            Told(R::Ailing(failure)),
        ) => ailing(life, since, handshake, failure, now),
        (P::Ailing { life, since, handshake, failure, .. }, Told(R::Probed(Ok(None)))) => {
            ailing(life, since, handshake, failure, now)
        }
        (P::Connected { life, since, handshake, .. }, Told(R::Probed(Ok(None)))) => {
            connected(life, since, handshake, now)
        }
        (P::Unwell { life, since, handshake, failure, until, .. }, Told(R::Probed(Ok(None)))) => {
            be(P::Unwell { life, since, handshake, failure, until, probe: Probe::At(now + UNWELL_PROBE) })
        }

        // ── Unwell: still probed, may come back, is not waited for without end.
        (P::Unwell { life, failure, until, .. }, Overdue) if until <= now => {
            let timeout = seconds(life.launch.manifest.start_timeout);
            let what = format!("did not become well again within {timeout}: {}", failure.what);
            terminate(life, Then::Fail(Failure::new(what)), now)
        }
        (P::Unwell { life, since, handshake, failure, until, .. }, Overdue) => {
            act(P::Unwell { life, since, handshake, failure, until, probe: Probe::UnderWay }, Act::Probe)
        }
        (P::Unwell { life, since, handshake, until, .. }, Told(R::Probed(Err(failure)))) => {
            be(P::Unwell { life, since, handshake, failure, until, probe: Probe::At(now + UNWELL_PROBE) })
        }

        // ── A process ends unasked.
        (P::Connected { life, .. } | P::Unwell { life, .. } | P::Ailing { life, .. }, Told(R::Died)) => {
            dead(life, Before::Asked)
        }
        (
            P::Connected { life, .. } | P::Unwell { life, .. } | P::Ailing { life, .. },
            Told(R::Ended { exit, stderr_tail }),
        ) => ended(exit, Before::Asked, &life.launch, stderr_tail, manifest, now),
        (P::Stopping { launch, then: Then::ByExit(before), .. }, Told(R::Ended { exit, stderr_tail })) => {
            ended(exit, before, &launch, stderr_tail, manifest, now)
        }

        // ── A restart is due.
        (P::Waiting { failure, .. }, Overdue) => (Next::Launch { after: Some(failure) }, None),

        // ── Somebody wants it to run.
        (
            P::Stopped(Rest::ExitedCleanly | Rest::Asked) | P::Failed(_) | P::Waiting { due: Due::At(_), .. },
            Start,
        ) => (Next::Launch { after: None }, None),
        (P::Stopping { launch, stage, .. }, Start) => be(P::Stopping { launch, stage, then: Then::Relaunch }),

        // ── Somebody wants it to end.
        (P::Stopped(_) | P::Waiting { .. } | P::Failed(_), Stop(then)) => (afterwards(then), None),
        (P::Starting(launch), Stop(then)) => be(P::Stopping { launch, stage: Stage::Unborn, then }),
        (
            P::Greeting { life, .. }
            | P::Connected { life, .. }
            | P::Unwell { life, .. }
            | P::Ailing { life, .. },
            Stop(then),
        ) => terminate(life, then, now),
        (P::Stopping { launch, stage, .. }, Stop(then)) => be(P::Stopping { launch, stage, then }),
        (P::Stopping { launch, stage: Stage::Unborn, then }, Told(R::Spawned(pid))) => {
            terminate(Life { launch, pid }, then, now)
        }
        (P::Stopping { stage: Stage::Unborn, then, .. }, Told(R::SpawnFailed(_)) | Told(R::PortBusy)) => {
            (afterwards(then), None)
        }
        (P::Stopping { launch, stage: Stage::Asked { pid, .. }, then }, Overdue | Kill) => {
            act(P::Stopping { launch, stage: Stage::Killed { pid }, then }, Act::Kill)
        }
        (P::Stopping { then: Then::Fail(failure), .. }, Told(R::Ended { stderr_tail, .. })) => {
            (Next::Fail(failure.with_tail(stderr_tail)), None)
        }
        (P::Stopping { then, .. }, Told(R::Ended { .. })) => (afterwards(then), None),

        // ── Everything else changes nothing: a late answer, a wish that is already true.
        (phase, _) => be(phase),
    }
}

fn be(phase: Phase) -> Step {
    (Next::Be(phase), None)
}

fn act(phase: Phase, act: Act) -> Step {
    (Next::Be(phase), Some(act))
}

fn connected(life: Life, since: Moment, handshake: Arc<Handshake>, now: Moment) -> Step {
    let health = Health::Quiet(life.launch.manifest.health_interval.map(|interval| now + interval));
    be(Phase::Connected { life, since, handshake, health })
}

fn unwell(life: Life, since: Moment, handshake: Arc<Handshake>, failure: Failure, now: Moment) -> Step {
    let until = now + life.launch.manifest.start_timeout;
    be(Phase::Unwell { life, since, handshake, failure, probe: Probe::At(now + UNWELL_PROBE), until })
}

fn ailing(life: Life, since: Moment, handshake: Arc<Handshake>, failure: Failure, now: Moment) -> Step {
    let interval = life.launch.manifest.health_interval.unwrap_or(UNWELL_PROBE);
    be(Phase::Ailing { life, since, handshake, failure, health: Health::Quiet(Some(now + interval)) })
}

fn probe_answer(launch: &Launch) -> Duration {
    if launch.manifest.porter.is_some() { PORTERS_ANSWER } else { PROBE_ANSWER }
}

fn dead(life: Life, before: Before) -> Step {
    be(Phase::Stopping { launch: life.launch, stage: Stage::Dead, then: Then::ByExit(before) })
}

fn terminate(life: Life, then: Then, now: Moment) -> Step {
    let Life { launch, pid } = life;
    let kill_at = now + launch.manifest.stop_timeout;
    act(Phase::Stopping { launch, stage: Stage::Asked { pid, kill_at }, then }, Act::Terminate)
}

/// What follows once nothing runs any more.
fn afterwards(then: Then) -> Next {
    match then {
        Then::Rest => Next::Be(Phase::Stopped(Rest::Asked)),
        Then::Relaunch => Next::Launch { after: None },
        Then::Leave => Next::Leave,
        Then::Fail(failure) => Next::Fail(failure),
        // Nothing ran that could have exited.
        Then::ByExit(_) => Next::Launch { after: None },
    }
}

/// Exit 2 before the handshake asks for another port. Exit 0 is a normal end, unless the member is to
/// run always. Anything else is a failure.
fn ended(
    exit: Exit, before: Before, launch: &Launch, stderr_tail: Arc<[String]>, manifest: &Manifest, now: Moment,
) -> Step {
    let when = match before {
        Before::Handshake if exit == Exit::PORT_TAKEN => {
            return (Next::LaunchElsewhere { stderr_tail }, None);
        }
        Before::Handshake => "before its handshake",
        Before::Asked => "unasked",
    };
    if exit == Exit::CLEAN && manifest.restart != RestartPolicy::Always {
        return be(Phase::Stopped(Rest::ExitedCleanly));
    }
    let age = seconds(now.since(launch.at));
    let mut what = format!("{exit} {when}, {age} after its launch");
    if let Some(line) = stderr_tail.iter().rev().find(|line| !line.trim().is_empty()) {
        what = format!("{what}: {}", line.trim());
    }
    (Next::Fail(Failure::new(what).with_tail(stderr_tail)), None)
}

fn late_handshake(launch: &Launch, obstacle: Option<&str>) -> String {
    let timeout = seconds(launch.manifest.start_timeout);
    let obstacle = obstacle.unwrap_or("it does not answer");
    format!("no MCP handshake on port {} within {timeout}: {obstacle}", launch.port)
}

/// `12 ms`, `3.4 s`, `90 s`.
fn seconds(length: Duration) -> String {
    match length.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis @ 1000..10_000 if millis % 1000 != 0 => format!("{:.1} s", length.as_secs_f64()),
        _ => format!("{} s", length.as_secs()),
    }
}

#[cfg(test)]
mod tests;
