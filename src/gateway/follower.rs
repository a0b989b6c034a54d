//! Follows the roster: keeps the catalog in step, and hears members that say when their lists change.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::Gateway;
use super::ears::kind_of_change;
use crate::mcp::{Ask, Exchange, Heard, LinkError, Params};
use crate::model::{Instance, MemberKey, Offer, Status};

/// A stream that has ended is asked for again after this time, then after twice as long...
const AGAIN: Duration = Duration::from_millis(500);
/// ...but not later than this.
const LATEST: Duration = Duration::from_secs(60);

/// Runs for as long as the hall does.
pub(super) async fn follow(gateway: Gateway) {
    let mut rosters = gateway.hall().watch();
    let mut heard: HashMap<Instance, (MemberKey, AbortHandle)> = HashMap::new();
    let mut hearing = JoinSet::new();
    loop {
        gateway.catalog();
        let roster = rosters.borrow_and_update().clone();
        let mut present: HashMap<Instance, (MemberKey, std::sync::Arc<Offer>)> = HashMap::new();
        for entry in roster.members.iter().filter(|entry| entry.status == Status::Connected) {
            if let (Some(instance), Some(offer)) = (entry.instance, &entry.offer)
                && has_something_to_say(offer)
            {
                present.insert(instance, (entry.name.clone(), offer.clone()));
            }
        }
        heard.retain(|instance, (member, listening)| {
            let stays = present.contains_key(instance);
            if !stays {
                listening.abort();
                tell_all(&gateway, member);
            }
            stays
        });
        for (instance, (member, _)) in present {
            if let std::collections::hash_map::Entry::Vacant(place) = heard.entry(instance) {
                tell_all(&gateway, &member);
                gateway.watch_again(&member);
                let listening = hearing.spawn(hear(gateway.clone(), member.clone(), instance));
                place.insert((member, listening));
            }
        }
        while hearing.try_join_next().is_some() {}
        if rosters.changed().await.is_err() {
            return;
        }
    }
}

/// Its prompts and resources have come or gone with it; of its tools the catalog tells.
fn tell_all(gateway: &Gateway, member: &MemberKey) {
    for kind in ["prompts", "resources"] {
        gateway.tell(member, kind);
    }
}

fn has_something_to_say(offer: &Offer) -> bool {
    ["tools/listChanged", "prompts/listChanged", "resources/listChanged", "resources/subscribe"]
        .iter()
        .any(|kind| offer.has(kind))
}

/// Hears one launch, until it is over.
async fn hear(gateway: Gateway, member: MemberKey, instance: Instance) {
    let mut pause = AGAIN;
    while let Some(link) = gateway.hall().link(instance) {
        let opened = if link.is_stateless() {
            let wanted =
                json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
            link.send(Ask::new("subscriptions/listen", Params::default().with("notifications", &wanted)))
                .await
        } else {
            link.listen().await
        };
        match opened {
            Ok(exchange) => {
                if listen(&gateway, &member, instance, exchange).await {
                    pause = AGAIN;
                }
            }
            // It has no such stream.
            Err(LinkError::Http { .. }) => return,
            Err(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(LATEST);
    }
}

/// True if the stream had anything to say.
async fn listen(gateway: &Gateway, member: &MemberKey, instance: Instance, mut exchange: Exchange) -> bool {
    let mut spoke = false;
    while let Ok(heard) = exchange.next().await {
        spoke = true;
        if let Heard::Notification { method, .. } = &heard
            && let Some(kind) = kind_of_change(method)
        {
            gateway.has_changed(member, instance, kind);
        }
    }
    spoke
}
