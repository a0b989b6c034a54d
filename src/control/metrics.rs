//! `GET /metrics`: the roster for Prometheus, in the OpenMetrics text format.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::problem::Problem;
use crate::hall::Hall;
use crate::model::{Entry, Roster, Status};
use crate::process::own_usage;

pub(super) async fn metrics(State(hall): State<Hall>) -> Result<Response, Problem> {
    let mut registry = Registry::default();
    hall.ledger().register(&mut registry);
    registry.register_collector(Box::new(Members(hall.measured_roster().await)));
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    Ok((kind, text).into_response())
}

#[derive(Debug)]
struct Members(Arc<Roster>);

impl Collector for Members {
    fn encode(&self, mut out: DescriptorEncoder) -> fmt::Result {
        self.hall(&mut out)?;
        let up = |entry: &Entry| Some(u64::from(entry.status == Status::Connected));
        let memory = |entry: &Entry| entry.memory_bytes;
        self.gauges(&mut out, "guild_hall_member_up", "1 where the member is connected", up)?;
        self.phases(&mut out)?;
        self.gauges(
            &mut out,
            "guild_hall_member_memory_bytes",
            "Resident memory of the member's whole process tree",
            memory,
        )?;
        self.counters(
            &mut out,
            "guild_hall_member_cpu_seconds",
            "CPU time of the member's whole process tree, of its present launch",
            |entry| entry.cpu_seconds,
        )?;
        self.counters(
            &mut out,
            "guild_hall_member_restarts",
            "Restarts after a failure since the member was last started by a person or a new manifest",
            |entry| Some(u64::from(entry.restarts)),
        )
    }
}

impl Members {
    fn hall(&self, out: &mut DescriptorEncoder) -> fmt::Result {
        let Roster { generation, hall, members } = &*self.0;
        out.encode_descriptor("guild_hall_info", "The hall", None, MetricType::Gauge)?
            .encode_family(&[("version", hall.version.as_str())])?
            .encode_gauge(&1_u64)?;
        let help = "Grows with every change of the roster";
        out.encode_descriptor("guild_hall_roster_generation", help, None, MetricType::Gauge)?
            .encode_gauge(generation)?;
        let mut by_status =
            out.encode_descriptor("guild_hall_members", "Members by status", None, MetricType::Gauge)?;
        for status in [Status::Connected, Status::Disconnected, Status::Error] {
            let count = members.iter().filter(|entry| entry.status == status).count() as u64;
            by_status.encode_family(&[("status", status.as_str())])?.encode_gauge(&count)?;
        }
        let own = own_usage();
        let help = "Resident memory of the hall itself";
        out.encode_descriptor("process_resident_memory_bytes", help, None, MetricType::Gauge)?
            .encode_gauge(&own.memory)?;
        let help = "When the hall was started, seconds since 1970";
        #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit for 285,000 years")]
        let started = hall.started_at.0 as f64 / 1000.0;
        out.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?
            .encode_gauge(&started)?;
        let help = "CPU time of the hall itself";
        let cpu = out.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(own.cpu.as_secs_f64()).encode(cpu)
    }

    /// Of the nine phases only the present one.
    fn phases(&self, out: &mut DescriptorEncoder) -> fmt::Result {
        let help = "1 for the phase that the member is in";
        let mut phases = out.encode_descriptor("guild_hall_member_phase", help, None, MetricType::Gauge)?;
        for entry in &self.0.members {
            let labels = [("member", entry.name.as_str()), ("phase", entry.phase.as_str())];
            phases.encode_family(&labels)?.encode_gauge(&1_u64)?;
        }
        Ok(())
    }

    fn gauges<T: EncodeGaugeValue>(
        &self, out: &mut DescriptorEncoder, name: &str, help: &str, value: impl Fn(&Entry) -> Option<T>,
    ) -> fmt::Result {
        let mut gauges = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for entry in &self.0.members {
            if let Some(value) = value(entry) {
                gauges.encode_family(&[("member", entry.name.as_str())])?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn counters<T: EncodeCounterValue>(
        &self, out: &mut DescriptorEncoder, name: &str, help: &str, value: impl Fn(&Entry) -> Option<T>,
    ) -> fmt::Result {
        let mut counters = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for entry in &self.0.members {
            if let Some(value) = value(entry) {
                let labels = [("member", entry.name.as_str())];
                ConstCounter::new(value).encode(counters.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
