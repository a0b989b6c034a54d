//! What is said to one launch of a member on behalf of the loop: the handshake, and probes. Made by its
//! `keeper`, which drops it when the process dies.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Message;
use super::calls::Links;
use crate::lifecycle::Report;
use crate::mcp::{Dial, Link, LinkError, Obstacle, greet, list_tools, ping};
use crate::model::porter::Porter;
use crate::model::{Failure, Handshake, Instance, MemberKey, Port};

/// A probe that takes longer has failed...
pub(super) const PROBE: Duration = Duration::from_secs(4);
/// ...but a porter may have to ask its plugin first.
pub(super) const PORTERS_PROBE: Duration = Duration::from_secs(7);

/// What it means that a porter says this of its plugin.
pub(super) fn ill(porter: &Porter, failure: Failure) -> Report {
    if porter.is_apart() { Report::Ailing(failure) } else { Report::Probed(Err(failure)) }
}

/// Speaks to one launch of a member, and tells the loop what it said.
pub(super) struct Greeter {
    pub(super) key: MemberKey,
    pub(super) instance: Instance,
    pub(super) port: Port,
    pub(super) path: String,
    /// It is a porter, and is asked how its plugin is.
    pub(super) porter: Option<Arc<Porter>>,
    pub(super) dial: Dial,
    pub(super) links: Links,
    pub(super) inbox: mpsc::Sender<Message>,
}

impl Greeter {
    /// Shakes hands; calls go over the session that it makes. The second value is what a porter says to be
    /// wrong with its plugin.
    pub(super) async fn greet(
        &self, tell: impl FnMut(Obstacle),
    ) -> Result<(Handshake, Option<Failure>), Failure> {
        let link = Link::new(self.port, &self.path, self.dial.clone())
            .map_err(|error| Failure::new(error.to_string()))?;
        let handshake = greet(&link, tell).await?;
        // A porter that does not answer this is found out by the next probe.
        let is_apart = self.porter.as_ref().is_some_and(|porter| porter.is_apart());
        let ails = if is_apart { ping(&link, PORTERS_PROBE).await.unwrap_or_default() } else { None };
        // The connection goes with the handshake: most members wait long for their first call.
        self.links.insert(self.instance, link.anew().into());
        Ok((handshake, ails))
    }

    pub(super) async fn probe(&self, patience: Duration) -> Report {
        let Some(link) = self.links.get(self.instance) else {
            return Report::Probed(Err(Failure::new("it is not linked")));
        };
        match self.look(&link, patience).await {
            Ok(report) => report,
            // Its session may have ended while it lives.
            Err(LinkError::SessionLost | LinkError::Http { .. }) => match self.greet(|_| {}).await {
                Ok((_, Some(failure))) => Report::Ailing(failure),
                Ok((handshake, None)) => Report::Probed(Ok(Some(handshake))),
                Err(failure) => Report::Probed(Err(failure)),
            },
            // The hall could not ask, which says nothing about the member.
            Err(error) if error.is_own_shortage() => Report::Probed(Ok(None)),
            Err(error) => Report::Probed(Err(Failure::new(format!("does not answer: {error}")))),
        }
    }

    async fn look(&self, link: &Link, patience: Duration) -> Result<Report, LinkError> {
        if let Some(porter) = &self.porter
            && let Some(failure) = ping(link, patience).await?
        {
            return Ok(ill(porter, failure));
        }
        let tools = list_tools(link, patience).await?;
        let protocol_version = link.protocol_version().unwrap_or_default().to_owned();
        Ok(Report::Probed(Ok(Some(Handshake { protocol_version, tools, offer: link.offer() }))))
    }

    /// Something that is good to know and may be lost where the inbox is full.
    pub(super) fn hint(&self, report: Report) {
        let _ = self.inbox.try_send(self.message(report));
    }

    pub(super) async fn tell(&self, report: Report) {
        // The loop is gone only when the hall is.
        let _ = self.inbox.send(self.message(report)).await;
    }

    fn message(&self, report: Report) -> Message {
        Message::Told { key: self.key.clone(), instance: self.instance, report, flight: None }
    }
}
