//! `GET /v1/events`: first the whole roster, then every change, nothing missed between the two.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::hall::{Change, Hall};
use crate::model::MemberKey;

/// A comment that keeps the connection from looking dead.
const QUIET: Duration = Duration::from_secs(15);

/// A member that has left the roster.
#[derive(Serialize)]
struct Removed<'a> {
    name: &'a MemberKey,
    removed: bool,
}

struct Follower {
    hall: Hall,
    changes: Receiver<Change>,
    /// The last generation that was sent; `None` when the whole roster is due.
    sent: Option<u64>,
}

pub(super) async fn follow(State(hall): State<Hall>) -> impl IntoResponse {
    let follower = Follower { changes: hall.changes(), hall, sent: None };
    Sse::new(events(follower)).keep_alive(KeepAlive::new().interval(QUIET))
}

fn events(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    let leaving = follower.hall.leaving();
    let events = stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    events.take_until(leaving)
}

impl Follower {
    /// `None` when the hall has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let Some(sent) = self.sent else {
                let roster = self.hall.roster();
                self.sent = Some(roster.generation);
                return event("roster", roster.generation, &*roster);
            };
            match self.changes.recv().await {
                // It was in the roster that was sent.
                Ok(change) if change.generation <= sent => {}
                Ok(change) => {
                    self.sent = Some(change.generation);
                    return match &change.entry {
                        Some(entry) => event("member", change.generation, entry),
                        None => {
                            event("member", change.generation, &Removed { name: &change.key, removed: true })
                        }
                    };
                }
                // It reads too slowly to be told everything: it gets the whole roster again.
                Err(RecvError::Lagged(_)) => self.sent = None,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn event(kind: &str, generation: u64, data: &impl Serialize) -> Option<Event> {
    Event::default().event(kind).id(generation.to_string()).json_data(data).ok()
}
