//! Errors of the API: `application/problem+json`, RFC 9457.

use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::hall::{CallError, ReloadError};
use crate::lifecycle::Refusal;
use crate::mcp::LinkError;

/// What went wrong, for a program and for a person.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    pub title: String,
    pub status: u16,
    pub detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").into();
        Self { title, status: status.as_u16(), detail: detail.into() }
    }

    pub(super) fn no_such_member(name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Refusal::Unknown(name.into()).to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Unknown(_) => StatusCode::NOT_FOUND,
            Refusal::Invalid(_) => StatusCode::CONFLICT,
            Refusal::Closing => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, refusal.to_string())
    }
}

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Refused(refusal) => refusal.into(),
            ReloadError::Closing => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            ReloadError::Discovery(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let status = match &error {
            CallError::NoSuchMember(_) | CallError::NoSuchTool { .. } => StatusCode::NOT_FOUND,
            CallError::NotConnected { .. } => StatusCode::CONFLICT,
            CallError::Busy { .. } | CallError::Late { .. } => StatusCode::SERVICE_UNAVAILABLE,
            CallError::Member { error: LinkError::TimedOut(_), .. } => StatusCode::GATEWAY_TIMEOUT,
            CallError::Member { .. } => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, error.to_string())
    }
}

/// What axum itself finds wrong with a request.
macro_rules! bad_request {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for Problem {
            fn from(rejection: $rejection) -> Self {
                Self::new(rejection.status(), rejection.body_text())
            }
        }
    )*};
}
bad_request!(BytesRejection, PathRejection, QueryRejection);
