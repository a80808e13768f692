// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running bridge, and the hub that serves its readers.

use std::path::Path;

use anyhow::{Context, Result};
use ringtap::Confinement;
use ringtap_bridge::{Bridge, BridgeOptions, Moment};
use ringtap_capture::CaptureError;
use ringtap_hub::config::{GroupText, viewers};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Hub, HubOptions};
use ringtap_ipc::protocol::{BridgeStatus, SourceStatus};
use ringtap_ipc::socket::Listener;
use ringtap_net::interface::InterfaceError;

use super::ethernet;
use crate::hub::{LAST_READERS, raise_descriptor_limit};
use crate::print;

pub(super) struct RunningBridge {
    pub(super) bridge: Bridge,
    /// Drives the bridge's sources, if it has any.
    hub: Option<Hub>,
    /// Serves readers until the bridge stops; absent if there are no groups.
    server: Option<Server>,
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
        let compiled = compiled.collect::<Result<_, _>>()?;
        let listener = if groups.is_empty() {
            None
        } else {
            raise_descriptor_limit();
            Some(Listener::bind(socket)?)
        };
        let mut running = RunningBridge {
            bridge: Bridge::open(options)?,
            hub: None,
            server: None,
        };
        // The hub's threads inherit what is left.
        keeps.enter()?;
        let bridge = &mut running.bridge;
        print::notes(bridge.take_notes());
        let sources = bridge.take_sources();
        if sources.is_empty() {
            return Ok(running);
        }
        for source in &sources {
            print::notes(&source.facts.notes);
        }
        let (hub, _) = Hub::start(sources, compiled, HubOptions::default(), Vec::new())?;
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
    pub(super) fn failure(&mut self) -> Result<Option<ringtap::Error>> {
        print::notes(self.bridge.take_notes());
        if let Some(error) = self.bridge.failure() {
            let is_removed = matches!(
                &error,
                CaptureError::Interface(InterfaceError::Removed { .. })
            );
            return Ok(Some(ringtap::Error::from_source(
                error.to_string(),
                is_removed,
            )));
        }
        let Some(hub) = &self.hub else {
            return Ok(None);
        };
        let status = hub.handle().status();
        let sources = status.context("the hub's thread has ended")?.sources;
        Ok(failure_of(sources))
    }

    /// Stops forwarding; readers receive the remaining packets. Returns why a side failed, if it did.
    pub(super) fn stop(&mut self) -> Result<Option<ringtap::Error>> {
        self.bridge.stop();
        let Some(hub) = &self.hub else {
            return Ok(None);
        };
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
