//! What calls came to: numbers for `/metrics`, and a line for each in the audit log. Never what was asked
//! or answered.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::audit::Audit;
use crate::mcp::excerpt;
use crate::model::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    member: String,
    outcome: &'static str,
}

/// Seconds.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// See the module's page.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Books>);

#[derive(Debug)]
struct Books {
    calls: Family<Outcome, Counter>,
    seconds: Family<OfMember, Histogram, fn() -> Histogram>,
    in_flight: Family<OfMember, Gauge>,
    audit: Audit,
}

/// One call, for as long as it is under way; one that is dropped before it is settled was given up by who
/// had asked.
#[derive(Debug)]
pub struct Account {
    ledger: Ledger,
    about: About,
    began: Instant,
    /// In and out.
    pub bytes: (usize, usize),
    settled: bool,
    in_flight: Gauge,
}

/// Which call it is.
#[derive(Debug, Clone)]
pub struct About {
    /// Name and version of the client.
    pub who: String,
    pub member: String,
    pub method: String,
    /// Tool, prompt or resource.
    pub name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    at: String,
    who: &'a str,
    member: &'a str,
    method: &'a str,
    /// Tool, prompt or resource.
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    ms: f64,
    outcome: &'a str,
    bytes_in: usize,
    bytes_out: usize,
}

impl Ledger {
    pub(super) fn new(audit: Audit) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self(Arc::new(Books {
            calls: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            in_flight: Family::default(),
            audit,
        }))
    }

    /// A call has come to a member of the roster.
    pub fn begin(&self, about: About) -> Account {
        let in_flight = self.0.in_flight.get_or_create_owned(&OfMember { member: about.member.clone() });
        in_flight.inc();
        Account {
            ledger: self.clone(),
            about,
            began: Instant::now(),
            bytes: (0, 0),
            settled: false,
            in_flight,
        }
    }

    /// Puts all numbers among those that `/metrics` tells.
    pub fn register(&self, registry: &mut Registry) {
        let Books { calls, seconds, in_flight, .. } = &*self.0;
        registry.register("guild_hall_calls", "Requests to members, by outcome", calls.clone());
        registry.register("guild_hall_call_duration_seconds", "How long they took", seconds.clone());
        registry.register(
            "guild_hall_calls_in_flight",
            "Requests that members are answering",
            in_flight.clone(),
        );
    }
}

impl Account {
    /// The call is over. `outcome` is one word.
    pub fn settle(mut self, outcome: &'static str) {
        self.settled = true;
        self.write(outcome);
    }

    fn write(&self, outcome: &'static str) {
        let books = &self.ledger.0;
        let took = self.began.elapsed();
        let About { who, member, method, name } = &self.about;
        books.calls.get_or_create(&Outcome { member: member.clone(), outcome }).inc();
        books.seconds.get_or_create(&OfMember { member: member.clone() }).observe(took.as_secs_f64());
        books.audit.note(|| {
            serde_json::to_string(&Line {
                at: Timestamp::now().to_string(),
                who: &excerpt(who.as_bytes()),
                member,
                method,
                name: &if name.is_empty() { String::new() } else { excerpt(name.as_bytes()) },
                ms: (took.as_secs_f64() * 1e6).round() / 1e3,
                outcome,
                bytes_in: self.bytes.0,
                bytes_out: self.bytes.1,
            })
            .unwrap_or_default()
        });
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.in_flight.dec();
        if !self.settled {
            self.write("cancelled");
        }
    }
}
