//! The table of the API; openapi.json describes it for machines.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;

use super::problem::Problem;
use super::{events, logs, members, metrics, plugins, tools};
use crate::hall::Hall;

/// A request may be this large; bytes.
const LARGEST_REQUEST: usize = 4 * 1024 * 1024;

/// What whoever watches the hall may ask without being let in.
pub fn health_router(hall: Hall) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(members::ready))
        .with_state(hall)
}

/// All of the API.
pub fn router(hall: Hall) -> Router {
    Router::new()
        .route("/v1/roster", get(members::roster))
        .route("/v1/roster/{name}", get(members::entry))
        .route("/v1/events", get(events::follow))
        .route("/v1/members/{name}/{wish}", post(members::wish))
        .route("/v1/members/{name}/logs", get(logs::read))
        .route("/v1/tools", get(tools::list))
        .route("/v1/call", post(tools::call))
        .route("/v1/reload", post(members::reload))
        .route("/api/roster", get(members::original_roster))
        .route("/api/tools/invoke", post(tools::original_invoke))
        .route("/api/plugins", get(plugins::list))
        .route("/api/plugins/register", post(plugins::register))
        .route("/api/plugins/unregister", post(plugins::unregister))
        .route("/api/plugins/health/{plugin_id}", get(plugins::health))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(members::ready))
        .route("/metrics", get(metrics::metrics))
        .route(
            "/openapi.json",
            get(async || ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json"))),
        )
        .fallback(async |method: Method, uri: Uri| {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no {method} {}; see /openapi.json", uri.path()),
            )
        })
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{} cannot be asked with {method}; see /openapi.json", uri.path()),
            )
        })
        .layer(DefaultBodyLimit::max(LARGEST_REQUEST))
        .with_state(hall)
}

pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
