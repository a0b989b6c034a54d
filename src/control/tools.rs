//! Tools: listed under their gateway names, called on their members.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::problem::Problem;
use super::routes::json;
use crate::hall::{Hall, named_tools};

/// `GET /v1/tools`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    name: &'a str,
    member: &'a str,
    tool: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

pub(super) async fn list(State(hall): State<Hall>) -> Response {
    let named = named_tools(&hall.roster());
    let listed = named.iter().filter(|named| !named.entry.ailing).filter_map(|named| {
        let tool = named.tool()?;
        let (member, description) = (named.entry.name.as_str(), tool.description.as_str());
        Some(Listed {
            name: &named.name,
            member,
            tool: &tool.name,
            description,
            input_schema: &tool.input_schema,
        })
    });
    json(&listed.collect::<Vec<_>>())
}

/// `POST /v1/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Call<'a> {
    member: String,
    tool: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// `POST /api/tools/invoke`, the original API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Invocation<'a> {
    guild_member: String,
    tool_name: String,
    #[serde(borrow, default)]
    tool_input: Option<&'a RawValue>,
}

pub(super) async fn call(
    State(hall): State<Hall>, body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body?;
    let call: Call = parse(&body)?;
    let patience = call.timeout_ms.map(Duration::from_millis);
    if patience == Some(Duration::ZERO) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "timeoutMs is 0; it must be at least 1"));
    }
    invoke(&hall, &call.member, &call.tool, call.arguments, patience).await
}

/// As the original: every fault of the member or its state is a 500.
pub(super) async fn original_invoke(
    State(hall): State<Hall>, body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body?;
    let call: Invocation = parse(&body)?;
    let invoked = invoke(&hall, &call.guild_member, &call.tool_name, call.tool_input, None).await;
    invoked.map_err(|problem| match problem.status {
        400 | 404 => problem,
        _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, problem.detail),
    })
}

async fn invoke(
    hall: &Hall, member: &str, tool: &str, arguments: Option<&RawValue>, patience: Option<Duration>,
) -> Result<Response, Problem> {
    let empty = RawValue::from_string("{}".into())
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let arguments = arguments.unwrap_or(&empty);
    if !arguments.get().trim_start().starts_with('{') {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the arguments must be a JSON object"));
    }
    let result = hall.call(member, tool, arguments, patience).await?;
    let body = format!(r#"{{"result":{}}}"#, result.get());
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the request body cannot be read: {error}"))
    })
}
