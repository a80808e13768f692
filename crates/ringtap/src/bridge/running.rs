// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge that runs: in the kernel with readers that look on, or in user space.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_capture::bridge::{self, Account, Bridge, BridgeOptions, Moment, require_kernel};
use ringtap_capture::interface::Interface;
use ringtap_capture::tap::Passing;
use ringtap_capture::xdp::forward::{Judge, UserBridge, Verdict};
use ringtap_filter::Program;
use ringtap_hub::Hub;
use ringtap_hub::door::Door;
use ringtap_pool::ledger::Ledger;
use ringtap_pool::source::Source;
use ringtap_shared::protocol::SourceState;
use ringtap_shared::socket::Listener;

use super::ethernet;
use crate::hub::groups::GroupText;

/// How long packets that were mirrored may take to their readers at the end.
const LAST_READERS: Duration = Duration::from_secs(2);

/// A bridge that runs.
pub(super) enum Running {
    /// Its sides are the sources of a hub, which also sees when one goes away.
    Kernel {
        hub: Hub,
        account: Box<Account>,
        door: Option<Door>,
    },
    User(Box<UserBridge>),
}

impl Running {
    /// Forwards in the kernel; readers connect to `socket` if there are groups.
    pub(super) fn in_the_kernel(
        options: &BridgeOptions,
        mirror: &[GroupText],
        socket: &Path,
    ) -> Result<Self> {
        require_kernel()?;
        let listener = match mirror.is_empty() {
            true => None,
            false => Some(Listener::bind(socket)?),
        };
        let Bridge { sides, account } = Bridge::open(options)?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for side in sides {
            say(&side.facts().notes);
            sources.push(Box::new(side));
        }
        let groups = mirror.iter().map(|group| group.compile(&ethernet()));
        let groups = groups.collect::<Result<_>>()?;
        let (hub, _) = Hub::start(sources, groups, None, Vec::new())?;
        let door = match listener {
            None => None,
            Some(listener) => {
                let access = mirror.iter().map(|group| group.access.clone());
                let door = Door::open(listener, &hub, access.collect());
                eprintln!("ringtap: readers connect to {}", socket.display());
                Some(door.context("cannot open the socket's door")?)
            }
        };
        Ok(Running::Kernel {
            hub,
            account: Box::new(account),
            door,
        })
    }

    /// Forwards in user space, where the filter runs.
    pub(super) fn in_user_space(options: &BridgeOptions) -> Result<Self> {
        let [one, other] = &options.interfaces;
        let interfaces = [Interface::find(one)?, Interface::find(other)?];
        bridge::check(&interfaces)?;
        let judge = FilterJudge(options.passing.clone());
        let bridge = UserBridge::open(&interfaces, Box::new(judge))?;
        say(&bridge.notes);
        Ok(Running::User(Box::new(bridge)))
    }

    pub(super) fn way(&self, from: usize) -> String {
        match self {
            Running::Kernel { account, .. } => account.way(from),
            Running::User(bridge) => bridge.way(from),
        }
    }

    pub(super) fn ledger(&self, from: usize, moment: Moment) -> Ledger {
        match self {
            Running::Kernel { account, .. } => account.ledger(from, moment),
            Running::User(bridge) => bridge.ledger(from, moment),
        }
    }

    /// Why it has to end, if one of its sides went away.
    pub(super) fn failure(&mut self) -> Result<Option<String>> {
        match self {
            Running::Kernel { hub, .. } => {
                let status = hub.handle().status().context("the hub's thread is gone")?;
                Ok(status.sources.into_iter().find_map(|source| source.failure))
            }
            Running::User(bridge) => Ok(bridge.why_it_ended().map(|error| error.to_string())),
        }
    }

    /// Detaches both sides; readers get what was mirrored. Tells why a side failed, if one did.
    pub(super) fn stop(&mut self) -> Result<Option<String>> {
        let (hub, door) = match self {
            Running::User(bridge) => {
                bridge.stop();
                return Ok(None);
            }
            Running::Kernel { hub, door, .. } => (hub, door),
        };
        hub.handle().stop();
        let deadline = Instant::now() + LAST_READERS;
        loop {
            let status = hub.handle().status().context("the hub's thread is gone")?;
            let mut sources = status.sources.iter();
            let ended = sources.all(|source| source.state == SourceState::Ended);
            if (ended && status.readers.is_empty()) || Instant::now() > deadline {
                drop(door.take());
                return Ok(status.sources.into_iter().find_map(|source| source.failure));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn say(notes: &[String]) {
    for note in notes {
        eprintln!("ringtap: {note}");
    }
}

/// Decides by a filter.
struct FilterJudge(Passing);

impl Judge for FilterJudge {
    fn judge(&mut self, _side: usize, frame: &[u8]) -> Verdict {
        let takes = |filter: &Program| {
            filter.matches(frame, u32::try_from(frame.len()).unwrap_or(u32::MAX))
        };
        let passes = match &self.0 {
            Passing::All => true,
            Passing::Matching(filter) => takes(filter),
            Passing::Others(filter) => !takes(filter),
        };
        match passes {
            true => Verdict::Pass,
            false => Verdict::Drop,
        }
    }
}
