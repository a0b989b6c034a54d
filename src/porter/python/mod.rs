//! PLACEHOLDER, for the merger to replace: the Python worker is written elsewhere.

use std::path::Path;
use std::time::Duration;

use super::reply::Reply;
use super::request::Asked;
use crate::model::Exit;
use crate::model::porter::Porter;

pub(super) struct Python;

#[allow(clippy::unused_async, reason = "a placeholder")]
impl Python {
    pub(super) async fn start(_: &Porter, _: &Path) -> Result<Self, String> {
        Err("PLACEHOLDER: there is no Python worker yet".into())
    }

    pub(super) async fn call(&self, _: &Asked, _: Duration) -> Reply {
        Reply::failed("PLACEHOLDER".into())
    }

    pub(super) async fn health(&self) -> Result<(), String> {
        Ok(())
    }

    pub(super) async fn ended(&self) -> Option<Exit> {
        None
    }

    pub(super) async fn close(&self) {}
}
