//! What becomes of a porter that says that its plugin is not well.

use std::path::PathBuf;

use super::*;
use crate::lifecycle::phase::Origin;
use crate::model::porter::{Behind, Plugin, Porter};
use crate::model::{Dialect, Digest, Instance, PhaseName, Port, Transport};

const INTERVAL: Duration = Duration::from_secs(10);

fn manifest() -> Manifest {
    let behind =
        Behind::Rest { base_url: "http://127.0.0.1:1".into(), path: "/run".into(), headers: Vec::new() };
    Manifest {
        name: "weather".into(),
        display_name: "Weather".into(),
        description: "Tells it".into(),
        version: "1".into(),
        dialect: Dialect::HomeClaw,
        transport: Transport::Rest,
        dir: PathBuf::new(),
        command: Manifest::PORTER_COMMAND.into(),
        args: Manifest::PORTER_ARGS.map(Into::into).into(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        path: "/mcp".into(),
        restart: RestartPolicy::default(),
        start_timeout: Duration::from_secs(10),
        call_timeout: Duration::from_secs(30),
        stop_timeout: Duration::from_secs(5),
        listed: false,
        porter: Some(Arc::new(Porter {
            plugin: Plugin::default(),
            behind,
            timeout: Duration::from_secs(30),
        })),
        health_interval: Some(INTERVAL),
        watch: None,
        warnings: Vec::new(),
        digest: Digest([0; 16]),
    }
}

fn at(seconds: u64) -> Moment {
    Moment::after(Duration::from_secs(seconds))
}

fn ill() -> Failure {
    Failure::new("its health check answered 500")
}

fn handshake() -> Handshake {
    Handshake { protocol_version: "2025-11-25".into(), tools: Arc::default(), offer: Arc::default() }
}

fn greeting() -> Phase {
    let launch = Launch {
        instance: Instance::from_bits(1),
        port: Port::new(50_000).unwrap(),
        manifest: manifest().into(),
        at: at(0),
        origin: Origin::Launched,
    };
    Phase::Greeting { life: Life { launch, pid: Pid(7) }, until: at(10), obstacle: None }
}

/// The next phase, where it is one, and what is to be done.
fn then(phase: Phase, happening: Happening, seconds: u64) -> (Phase, Option<Act>) {
    match step(phase, happening, &manifest(), at(seconds)) {
        (Next::Be(phase), act) => (phase, act),
        (next, _) => panic!("{next:?}"),
    }
}

fn told(phase: Phase, report: Report, seconds: u64) -> Phase {
    then(phase, Happening::Told(report), seconds).0
}

fn ailing() -> Phase {
    told(greeting(), Report::GreetedAiling(handshake(), ill()), 1)
}

#[test]
fn an_ill_plugin_is_an_error_from_the_first_handshake_on_with_what_its_porter_says() {
    let phase = ailing();
    assert_eq!(phase.name(), PhaseName::Unwell);
    assert_eq!((phase.pid(), phase.failure()), (Some(Pid(7)), Some(&ill())));
    assert!(phase.handshake().is_some() && phase.is_settled());
}

#[test]
fn it_is_probed_at_its_interval_without_end_and_never_restarted() {
    let mut phase = ailing();
    for round in 1..1000 {
        let due = phase.deadline().unwrap();
        assert_eq!(due.since(at(1)), INTERVAL * round);
        let (probing, act) = then(phase, Happening::Overdue, due.elapsed().as_secs());
        assert_eq!(act, Some(Act::Probe));
        phase = told(probing, Report::Ailing(ill()), due.elapsed().as_secs());
        assert_eq!((phase.name(), phase.pid()), (PhaseName::Unwell, Some(Pid(7))));
    }
}

#[test]
fn it_is_connected_again_by_a_probe_that_succeeds_with_the_same_process() {
    let (probing, act) = then(ailing(), Happening::Told(Report::Suspected), 2);
    assert_eq!(act, Some(Act::Probe));
    let phase = told(probing, Report::Probed(Ok(Some(handshake()))), 3);
    assert_eq!((phase.name(), phase.pid()), (PhaseName::Connected, Some(Pid(7))));
    assert_eq!(phase.connected_since(), Some(at(1)));
}

#[test]
fn one_that_was_well_or_mute_before_becomes_ill_in_the_same_way() {
    let connected = || told(greeting(), Report::Greeted(handshake()), 1);
    let mute = || told(connected(), Report::Probed(Err(Failure::new("mute"))), 2);
    for before in [connected(), mute()] {
        let phase = told(before, Report::Ailing(ill()), 3);
        assert!(matches!(phase, Phase::Ailing { .. }), "{phase:?}");
    }
}

#[test]
fn a_porter_that_does_not_answer_at_all_is_given_up_like_any_other_member() {
    let failures = [
        told(ailing(), Report::Probed(Err(Failure::new("mute"))), 2),
        then(then(ailing(), Happening::Overdue, 11).0, Happening::Overdue, 19).0,
    ];
    for phase in failures {
        assert!(matches!(phase, Phase::Unwell { .. }), "{phase:?}");
        let (phase, act) = then(phase, Happening::Overdue, 60);
        assert_eq!((phase.name(), act), (PhaseName::Stopping, Some(Act::Terminate)));
    }
}

#[test]
fn a_hall_that_could_not_ask_says_nothing_about_it() {
    let phase = told(then(ailing(), Happening::Overdue, 11).0, Report::Probed(Ok(None)), 12);
    assert_eq!((phase.failure(), phase.deadline()), (Some(&ill()), Some(at(22))));
}

#[test]
fn a_porter_that_dies_while_its_plugin_is_ill_is_a_failure_like_any_other() {
    let end = Report::Ended { exit: Exit::Signal(9), stderr_tail: Arc::default() };
    let (next, _) = step(ailing(), Happening::Told(end), &manifest(), at(5));
    assert!(matches!(next, Next::Fail(_)), "{next:?}");
    assert_eq!(told(ailing(), Report::Died, 5).name(), PhaseName::Stopping);
    assert_eq!(then(ailing(), Happening::Stop(Then::Rest), 5).1, Some(Act::Terminate));
}
