//! HomeClaw plugins: registered, unregistered, asked how they are, and listed with all that they say of
//! themselves. Field names and answers are those of that standard, `snake_case` included.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::members::settled;
use super::plugin_descriptor::Descriptor;
use super::problem::Problem;
use super::routes::json;
use crate::dialect::{FieldFault, Refused};
use crate::hall::{Enrolled, Hall, RegisterError, UnregisterError, plugins};
use crate::model::{MemberKey, PhaseName, Status};

/// What the dialect calls a descriptor as a whole, and where `FastAPI` has its fields begin.
const WHOLE: &str = "body";

#[derive(serde::Deserialize)]
pub(super) struct Waiting {
    #[serde(default)]
    wait: bool,
}

/// The answer to a registration; the last three once the member has settled, where that is waited for.
#[derive(Serialize)]
struct Registered<'a> {
    plugin_id: &'a str,
    registered: bool,
    member: &'a MemberKey,
    #[serde(flatten)]
    outcome: Option<Outcome>,
}

#[derive(Serialize)]
struct Outcome {
    status: Status,
    phase: PhaseName,
    error: Option<String>,
}

#[derive(Serialize)]
struct Unregistered {
    plugin_id: String,
    unregistered: bool,
    member: MemberKey,
}

/// `POST /api/plugins/register`.
pub(super) async fn register(
    State(hall): State<Hall>, query: Result<Query<Waiting>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let Query(Waiting { wait }) = query.map_err(|error| Problem::from(error).into_response())?;
    let body = body.map_err(|error| Problem::from(error).into_response())?;
    let Enrolled { id, member } = hall.register(body.into()).await.map_err(not_registered)?;
    let outcome = if wait { settled(&hall, member.as_str()).await.ok() } else { None };
    let outcome =
        outcome.map(|entry| Outcome { status: entry.status, phase: entry.phase, error: entry.error.clone() });
    Ok(json(&Registered { plugin_id: &id, registered: true, member: &member, outcome }))
}

/// `POST /api/plugins/unregister`.
pub(super) async fn unregister(
    State(hall): State<Hall>, body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let body = body.map_err(|error| Problem::from(error).into_response())?;
    let id = wanted(&body).map_err(|wrong| unprocessable(&[wrong]))?;
    let Enrolled { id, member } = hall.unregister(&id).await.map_err(|error| {
        let status = match &error {
            UnregisterError::Unknown(_) => StatusCode::NOT_FOUND,
            UnregisterError::InDirectory { .. } => StatusCode::BAD_REQUEST,
            UnregisterError::Failed(error) => status(error),
        };
        refusal(status, &error, "unregistered")
    })?;
    Ok(json(&Unregistered { plugin_id: id, unregistered: true, member }))
}

/// `GET /api/plugins/health/{plugin_id}`: asks it now.
pub(super) async fn health(
    State(hall): State<Hall>, id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id?;
    let health = hall.plugin_health(&id).await;
    let unknown = || {
        let what = format!("no plugin has the id {id:?}; see GET /api/plugins");
        Problem::new(StatusCode::NOT_FOUND, what)
    };
    Ok(json(&json!({"ok": health.ok_or_else(unknown)?.is_ok()})))
}

/// `GET /api/plugins`: all of them, those of the members directory too.
pub(super) async fn list(State(hall): State<Hall>) -> Response {
    let roster = hall.roster();
    let listed: Vec<Descriptor> = plugins(&roster).filter_map(|entry| Descriptor::of(entry)).collect();
    json(&listed)
}

fn wanted(body: &[u8]) -> Result<String, FieldFault> {
    let wrong = |field: &str, message: String| FieldFault { field: field.into(), message };
    let body: Value =
        serde_json::from_slice(body).map_err(|error| wrong(WHOLE, format!("is not JSON: {error}")))?;
    match body.get("plugin_id") {
        Some(Value::String(id)) => Ok(id.clone()),
        Some(_) => Err(wrong("plugin_id", "must be a text".into())),
        None => Err(wrong("plugin_id", "is missing".into())),
    }
}

fn not_registered(error: RegisterError) -> Response {
    match &error {
        RegisterError::Refused(Refused::Fields(wrong)) => unprocessable(wrong),
        _ => refusal(status(&error), &error, "registered"),
    }
}

fn status(error: &RegisterError) -> StatusCode {
    match error {
        RegisterError::Refused(_)
        | RegisterError::Taken(_)
        | RegisterError::TooMany
        | RegisterError::NoRoom => StatusCode::BAD_REQUEST,
        RegisterError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        RegisterError::Storage { .. } | RegisterError::Fault(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A problem that also says, in the way of the standard, what was not done.
fn refusal(status: StatusCode, error: &dyn std::fmt::Display, what: &'static str) -> Response {
    let Problem { title, status: number, detail } = Problem::new(status, error.to_string());
    let body = json!({"title": title, "status": number, "detail": detail, what: false});
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

/// In the form of `FastAPI`, which the programs that register themselves were written for.
fn unprocessable(wrong: &[FieldFault]) -> Response {
    let detail: Vec<Value> = wrong
        .iter()
        .map(|FieldFault { field, message }| {
            let kind = match field.as_str() {
                WHOLE => "json_invalid",
                _ if message.starts_with("is missing") => "missing",
                _ => "value_error",
            };
            json!({"loc": location(field), "msg": message, "type": kind})
        })
        .collect();
    let mut response = json(&json!({"detail": detail}));
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    response
}

/// `capabilities[0].id` as `["body", "capabilities", 0, "id"]`.
fn location(field: &str) -> Vec<Value> {
    let mut location = vec![Value::from(WHOLE)];
    if field == WHOLE {
        return location;
    }
    for part in field.split(['.', '[']).filter(|part| !part.is_empty()) {
        let number = part.strip_suffix(']').and_then(|number| number.parse::<usize>().ok());
        location.push(number.map_or_else(|| part.into(), Value::from));
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_location_as_clients_of_the_standard_read_it() {
        let path = location("capabilities[0].parameters[12].name");
        assert_eq!(
            path,
            [json!("body"), "capabilities".into(), 0.into(), "parameters".into(), 12.into(), "name".into()]
        );
        assert_eq!(location("body"), ["body"]);
    }
}
