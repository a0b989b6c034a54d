//! The roster, and what can be asked of members.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::routes::json;
use crate::hall::Hall;
use crate::lifecycle::Wish;
use crate::model::Entry;

pub(super) async fn roster(State(hall): State<Hall>) -> Response {
    json(&*hall.measured_roster().await)
}

pub(super) async fn entry(
    State(hall): State<Hall>, name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let roster = hall.measured_roster().await;
    roster.entry(&name).map(json).ok_or_else(|| Problem::no_such_member(&name))
}

/// The original API: the bare list.
pub(super) async fn original_roster(State(hall): State<Hall>) -> Response {
    json(&hall.measured_roster().await.members)
}

#[derive(serde::Deserialize)]
pub(super) struct Waiting {
    #[serde(default = "yes")]
    wait: bool,
}

fn yes() -> bool {
    true
}

pub(super) async fn wish(
    State(hall): State<Hall>, path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<Waiting>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path((name, wish)) = path?;
    let Query(Waiting { wait }) = query?;
    let wish = match wish.as_str() {
        "start" => Wish::Start,
        "stop" => Wish::Stop,
        "restart" => Wish::Restart,
        other => {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("{other:?} cannot be asked of a member: it is start, stop or restart"),
            ));
        }
    };
    let key = hall.wish(&name, wish).await?;
    if wait {
        let entry = settled(&hall, key.as_str()).await?;
        return Ok(json(&hall.last_measured(&entry)));
    }
    let entry = hall.roster().entry(key.as_str()).cloned().ok_or_else(|| Problem::no_such_member(&name))?;
    Ok((StatusCode::ACCEPTED, json(&hall.last_measured(&entry))).into_response())
}

/// The entry once nothing more happens by itself soon. The member's own timeouts bound the wait.
pub(super) async fn settled(hall: &Hall, name: &str) -> Result<Arc<Entry>, Problem> {
    let mut rosters = hall.watch();
    let is_settled =
        |roster: &Arc<crate::model::Roster>| roster.entry(name).is_none_or(|entry| entry.settled);
    let roster =
        rosters.wait_for(is_settled).await.map_err(|_| Problem::from(crate::lifecycle::Refusal::Closing))?;
    roster.entry(name).cloned().ok_or_else(|| Problem::no_such_member(name))
}

pub(super) async fn reload(State(hall): State<Hall>) -> Result<Response, Problem> {
    Ok(json(&hall.reload().await?))
}

pub(super) async fn ready(State(hall): State<Hall>) -> Result<&'static str, Problem> {
    if hall.is_ready() {
        Ok("ready\n")
    } else {
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "members are still being started"))
    }
}
