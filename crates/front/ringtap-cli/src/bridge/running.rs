// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge that runs: in the kernel with readers that look on, or in user space.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_capture::bridge::{self, Account, Bridge, BridgeOptions, Moment, require_kernel};
use ringtap_capture::tap::Passing;
use ringtap_capture::xdp::forward::{
    Judge, JudgeOptions, JudgeState, UserBridge, UserOptions, Verdict,
};
use ringtap_filter::Program;
use ringtap_hub::Hub;
use ringtap_hub::server::Server;
use ringtap_ipc::protocol::SourceState;
use ringtap_ipc::socket::Listener;
use ringtap_ipc::verdict::Bench;
use ringtap_net::interface::Interface;
use ringtap_pool::counters::Counters;
use ringtap_pool::number::to_u32;
use ringtap_pool::source::Source;

use super::ethernet;
use crate::hub::groups::GroupText;
use crate::print;

/// How long packets that were mirrored may take to their readers at the end.
const LAST_READERS: Duration = Duration::from_secs(2);

/// A bridge that runs.
pub(super) enum Running {
    /// Its sides are the sources of a hub, which also sees when one goes away.
    Kernel {
        mirror: Mirror,
        account: Box<Account>,
    },
    /// Its mirrors are the sources of a hub, if readers may look on.
    User {
        bridge: Box<UserBridge>,
        mirror: Option<Mirror>,
    },
}

/// Those who look on.
pub(super) struct Mirror {
    hub: Hub,
    server: Option<Server>,
}

/// Who may look on, and where they come in.
pub(super) struct Readers<'a> {
    pub(super) groups: &'a [GroupText],
    pub(super) socket: &'a Path,
    /// How one of them decides, if one does.
    pub(super) judge: Option<JudgeOptions>,
}

impl Readers<'_> {
    /// Where they connect; `None` if there are none.
    fn listen(&self) -> Result<Option<Listener>> {
        match self.groups.is_empty() {
            true => Ok(None),
            false => Ok(Some(Listener::bind(self.socket)?)),
        }
    }
}

impl Mirror {
    /// Lets readers look on at these sources, if there is where to connect.
    fn open(
        sources: Vec<Box<dyn Source>>,
        readers: &Readers<'_>,
        listener: Option<Listener>,
        bench: Option<Arc<Bench>>,
    ) -> Result<Self> {
        for source in &sources {
            print::notes(&source.facts().notes);
        }
        let groups = readers.groups.iter();
        let groups = groups.map(|group| group.compile(&ethernet()));
        let groups = groups.collect::<Result<_>>()?;
        let (hub, _) = Hub::start(sources, groups, None, Vec::new())?;
        let server = match listener {
            None => None,
            Some(listener) => {
                let access = readers.groups.iter().map(|group| group.access.clone());
                let server = Server::with_bench(listener, &hub, access.collect(), bench);
                print::note(format_args!(
                    "ringtap: readers connect to {}",
                    readers.socket.display()
                ));
                Some(server.context("cannot open the socket's server")?)
            }
        };
        Ok(Mirror { hub, server })
    }

    /// Ends the sources; readers get what was mirrored. Tells why one failed, if one did.
    fn stop(&mut self) -> Result<Option<String>> {
        self.hub.handle().stop();
        let deadline = Instant::now() + LAST_READERS;
        loop {
            let status = self.hub.handle().status();
            let status = status.context("the hub's thread is gone")?;
            let mut sources = status.sources.iter();
            let ended = sources.all(|source| source.state == SourceState::Ended);
            if (ended && status.readers.is_empty()) || Instant::now() > deadline {
                drop(self.server.take());
                return Ok(status.sources.into_iter().find_map(|source| source.failure));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Running {
    /// Forwards in the kernel.
    pub(super) fn in_the_kernel(options: &BridgeOptions, readers: &Readers<'_>) -> Result<Self> {
        require_kernel()?;
        let listener = readers.listen()?;
        let Bridge { sides, account } = Bridge::open(options)?;
        let boxed = |side| Box::new(side) as Box<dyn Source>;
        let sources = sides.into_iter().map(boxed).collect();
        Ok(Running::Kernel {
            mirror: Mirror::open(sources, readers, listener, None)?,
            account: Box::new(account),
        })
    }

    /// Forwards in user space, where the filter runs.
    pub(super) fn in_user_space(options: &BridgeOptions, readers: &Readers<'_>) -> Result<Self> {
        let [one, other] = &options.interfaces;
        let interfaces = [Interface::find(one)?, Interface::find(other)?];
        bridge::check(&interfaces)?;
        let listener = readers.listen()?;
        let judge = FilterJudge(options.passing.clone());
        let user = UserOptions {
            interfaces,
            mirror_bytes: options.mirror_bytes,
            judge: readers.judge.clone(),
        };
        let mut bridge = UserBridge::open(&user, Box::new(judge))?;
        print::notes(&bridge.notes);
        let mirrors = bridge.take_mirrors();
        let mirror = match mirrors.is_empty() {
            true => None,
            false => {
                let boxed = |side| Box::new(side) as Box<dyn Source>;
                let sources = mirrors.into_iter().map(boxed).collect();
                Some(Mirror::open(sources, readers, listener, bridge.bench())?)
            }
        };
        Ok(Running::User {
            bridge: Box::new(bridge),
            mirror,
        })
    }

    pub(super) fn way(&self, from: usize) -> String {
        match self {
            Running::Kernel { account, .. } => account.way(from),
            Running::User { bridge, .. } => bridge.way(from),
        }
    }

    pub(super) fn counters(&self, from: usize, moment: Moment) -> Counters {
        match self {
            Running::Kernel { account, .. } => account.counters(from, moment),
            Running::User { bridge, .. } => bridge.counters(from, moment),
        }
    }

    /// How the reader that decides does, and how often it was late; `None` if none is to.
    pub(super) fn judge(&self) -> Option<(JudgeState, u64)> {
        match self {
            Running::User { bridge, .. } => bridge.bench().map(|_| bridge.judge()),
            Running::Kernel { .. } => None,
        }
    }

    /// Packets that passed though nobody had judged them.
    pub(super) fn unjudged_passed(&self, from: usize) -> u64 {
        match self {
            Running::User { bridge, .. } => bridge.unjudged_passed(from),
            Running::Kernel { .. } => 0,
        }
    }

    /// Why it has to end, if one of its sides went away.
    pub(super) fn failure(&mut self) -> Result<Option<String>> {
        match self {
            Running::Kernel { mirror, .. } => {
                let status = mirror.hub.handle().status();
                let sources = status.context("the hub's thread is gone")?.sources;
                Ok(sources.into_iter().find_map(|source| source.failure))
            }
            Running::User { bridge, .. } => {
                Ok(bridge.why_it_ended().map(|error| error.to_string()))
            }
        }
    }

    /// Detaches both sides; readers get what was mirrored. Tells why a side failed, if one did.
    pub(super) fn stop(&mut self) -> Result<Option<String>> {
        match self {
            Running::Kernel { mirror, .. } => mirror.stop(),
            Running::User { bridge, mirror } => {
                bridge.stop();
                mirror.as_mut().map_or(Ok(None), Mirror::stop)
            }
        }
    }
}

/// Decides by a filter.
struct FilterJudge(Passing);

impl Judge for FilterJudge {
    fn judge(&mut self, _side: usize, frame: &[u8]) -> Verdict {
        let takes = |filter: &Program| filter.matches(frame, to_u32(frame.len()));
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
