// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running bridge, and the hub that serves its readers.

use std::path::Path;

use anyhow::{Context, Result};
use ringtap::Confinement;
use ringtap_bridge::{Bridge, BridgeOptions, InlineOptions, Moment};
use ringtap_hub::config::{GroupText, viewers};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::protocol::{BridgeStatus, SourceStatus};
use ringtap_ipc::subscription::{SubscriptionId, SubscriptionRequest};

use super::ethernet;
use crate::hub::{LAST_READERS, listen, raise_descriptor_limit};
use crate::print;

pub(super) struct RunningBridge {
    pub(super) bridge: Bridge,
    /// Drives the bridge's sources, if it has any.
    hub: Option<Hub>,
    /// Serves readers until the bridge stops; absent if there are no groups.
    server: Option<Server>,
    /// The subscription by which the bridge reads packets that wait.
    own: Option<SubscriptionId>,
}

/// The bridge's own request, in a group beside the inline reader's.
fn own_request(inline: &InlineOptions) -> SubscriptionRequest {
    SubscriptionRequest::new(format!("{}-bridge", inline.group), "bridge")
}

fn own_group(request: &SubscriptionRequest) -> Group {
    Group {
        max_members: 1,
        ..Group::new(&request.group)
    }
}

impl RunningBridge {
    /// Starts to forward, and gives up rights; readers of these groups connect to `socket`.
    pub(super) fn start(
        options: &BridgeOptions,
        groups: &[GroupText],
        socket: &Path,
        keeps: &Confinement,
    ) -> Result<Self> {
        let compiled = groups
            .iter()
            .map(|group| group.compile(&ethernet(), ringtap::compile));
        let mut compiled: Vec<_> = compiled.collect::<Result<_, _>>()?;
        let listener = if groups.is_empty() {
            None
        } else {
            raise_descriptor_limit();
            Some(listen(socket)?)
        };
        let mut running = RunningBridge {
            bridge: Bridge::open(options)?,
            hub: None,
            server: None,
            own: None,
        };
        // The hub's threads inherit what is left.
        keeps.enter()?;
        let bridge = &mut running.bridge;
        let sources = bridge.take_sources();
        if sources.is_empty() {
            return Ok(running);
        }
        for source in &sources {
            print::notes(&source.facts.notes);
        }
        let requests: Vec<_> = options.inline.iter().map(own_request).collect();
        compiled.extend(requests.iter().map(own_group));
        let (hub, own) = Hub::start(sources, compiled, HubOptions::default(), requests)?;
        for subscription in own {
            let subscription = subscription?;
            running.own = Some(subscription.id);
            bridge.begin_inline(subscription)?;
        }
        if let Some(listener) = listener {
            let options = ServerOptions {
                viewers: viewers(),
                verdicts: bridge.verdict_channel(),
            };
            let server = Server::open(listener, &hub, options);
            print::note(format_args!(
                "ringtap: readers connect to {}",
                socket.display()
            ));
            running.server = Some(server.context("cannot open the socket's server")?);
        }
        running.hub = Some(hub);
        Ok(running)
    }

    /// Gives the hub the bridge's counters, for `status`, `top` and `why`.
    pub(super) fn publish(&mut self) {
        let Some(hub) = &self.hub else {
            return;
        };
        let ways = [0, 1].map(|from| BridgeStatus {
            way: self.bridge.way(from),
            counters: self.bridge.counters(from, Moment::Running),
        });
        hub.handle().set_bridges(ways.into());
    }

    /// Why the bridge must end, if one of its interfaces was removed.
    pub(super) fn failure(&self) -> Result<Option<ringtap::Error>> {
        let Some(hub) = &self.hub else {
            return Ok(None);
        };
        let status = hub.handle().status();
        let sources = status.context("the hub's thread has ended")?.sources;
        Ok(failure_of(sources))
    }

    /// Stops forwarding; readers receive the remaining packets. Returns why a side failed, if it did.
    pub(super) fn stop(&mut self) -> Result<Option<ringtap::Error>> {
        let Some(hub) = &self.hub else {
            return Ok(None);
        };
        hub.handle().stop();
        self.bridge.stop();
        if let Some(own) = self.own.take() {
            hub.handle().leave(own);
        }
        let status = hub.handle().finish(LAST_READERS);
        let status = status.context("the hub's thread has ended")?;
        drop(self.server.take());
        Ok(failure_of(status.sources))
    }
}

/// The reason of the first source that failed.
fn failure_of(sources: Vec<SourceStatus>) -> Option<ringtap::Error> {
    sources.into_iter().find_map(|source| {
        let is_removed = source.is_removed;
        let failure = source.failure?;
        Some(ringtap::Error::from_source(failure, is_removed))
    })
}
