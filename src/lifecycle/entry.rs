//! A member as the roster shows it. Called by `guild` for members that changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::phase::{Due, Origin, Phase};
use super::seat::{Admitted, Seat};
use crate::model::{Entry, LastExit, MemberKey, Moment, PhaseName, Rejection, Timestamp};

/// `epoch` is the wall-clock time of [`Moment::ZERO`].
pub(super) fn entry(key: &MemberKey, seat: &Seat, epoch: Timestamp) -> Entry {
    match seat {
        Seat::Invalid { rejection, since } => invalid(key, rejection, epoch.plus(since.elapsed())),
        Seat::Admitted(member) => admitted(key, member, |moment| epoch.plus(moment.elapsed())),
    }
}

fn invalid(key: &MemberKey, rejection: &Rejection, since: Timestamp) -> Entry {
    Entry {
        name: key.clone(),
        display_name: key.to_string(),
        description: String::new(),
        version: String::new(),
        dialect: None,
        status: PhaseName::Invalid.status(),
        phase: PhaseName::Invalid,
        transport: None,
        port: None,
        pid: None,
        instance: None,
        adopted: false,
        since,
        attempts: 0,
        restarts: 0,
        last_exit: None,
        retry_at: None,
        error: Some(rejection.to_string()),
        stderr_tail: Arc::default(),
        tools: Arc::default(),
        memory_bytes: None,
        cpu_seconds: None,
        dir: rejection.first.file.parent().map(PathBuf::from).unwrap_or_default(),
        settled: true,
        ailing: false,
        porter: None,
        call_timeout: Duration::ZERO,
        offer: None,
    }
}

fn admitted(key: &MemberKey, member: &Admitted, wall: impl Fn(Moment) -> Timestamp) -> Entry {
    let Admitted { manifest, phase, .. } = member;
    let launch = phase.launch();
    let failure = phase.failure();
    let complaint = member.complaint.as_ref().map(|rejection| {
        format!("its manifest has become invalid: {rejection}; it runs on under the previous one")
    });
    let obstacle = match phase {
        Phase::Greeting { obstacle, .. } => obstacle.clone(),
        _ => None,
    };
    Entry {
        name: key.clone(),
        display_name: manifest.display_name.clone(),
        description: manifest.description.clone(),
        version: manifest.version.clone(),
        dialect: Some(manifest.dialect),
        status: phase.name().status(),
        phase: phase.name(),
        transport: Some(manifest.transport),
        port: launch.map(|launch| launch.port),
        pid: phase.pid(),
        instance: launch.map(|launch| launch.instance),
        adopted: launch.is_some_and(|launch| launch.origin == Origin::Adopted),
        since: wall(member.since),
        attempts: member.attempts,
        restarts: member.budget.total(),
        last_exit: member.last_exit.map(|(exit, at)| LastExit::new(exit, wall(at))),
        retry_at: match phase {
            Phase::Waiting { due: Due::At(due), .. } => Some(wall(*due)),
            _ => None,
        },
        error: failure.map(|failure| failure.what.clone()).or(complaint).or(obstacle),
        stderr_tail: failure.map(|failure| failure.stderr_tail.clone()).unwrap_or_default(),
        tools: phase.handshake().map(|handshake| handshake.tools.clone()).unwrap_or_default(),
        memory_bytes: None,
        cpu_seconds: None,
        dir: manifest.dir.clone(),
        settled: phase.is_settled(),
        ailing: matches!(phase, Phase::Ailing { .. }),
        porter: manifest.porter.clone(),
        call_timeout: manifest.call_timeout,
        offer: phase.handshake().map(|handshake| handshake.offer.clone()),
    }
}
