// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands behind a handle: a seat at a hub, the packets under way, the account.
//!
//! Invariants
//! - The receiver is asked for more only once everything it lent out was given out and the caller
//!   came back: what C holds stays valid until its next call.
#![forbid(unsafe_code)]

use std::ffi::{CString, c_int};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_capture::files::LinkType;
use ringtap_capture::filter::Filter;
use ringtap_client::{Connection, Control as _, Next, ReceiveError, Receiver, Tally, Wish};
use ringtap_filter::Program;
use ringtap_pool::ledger::Ledger;
use ringtap_pool::wake::FIRST_SLEEP;

use crate::descriptor::{Descriptor, Look};
use crate::error::CallError;
use crate::pending::Pending;
use crate::types::Packet;

/// `LINKTYPE_ETHERNET`: what sources are taken to be until the hub says otherwise.
const ETHERNET: LinkType = LinkType(1);
/// For filters: more than any packet has.
const SNAP_BYTES: u32 = 262_144;
/// Batches without a packet of ours after which a call that must not wait returns.
const MOST_BATCHES: u32 = 64;

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Endless,
}

/// What a call found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Packets,
    Nothing,
    Ended,
}

/// A source, as C is told of it.
pub(crate) struct SourceText {
    pub(crate) device: CString,
    pub(crate) offered_from: CString,
    pub(crate) link_type: u16,
    pub(crate) snap_length_bytes: u32,
    pub(crate) first_lane: u32,
    pub(crate) lanes: u32,
}

/// A seat at a hub.
pub(crate) struct Session {
    pending: Pending,
    receiver: Receiver,
    connection: Arc<Connection>,
    tally: Tally,
    sources: Vec<SourceText>,
    descriptor: Option<Descriptor>,
    /// Packets came since the reader last said that it sleeps.
    fresh: bool,
}

impl Session {
    /// Takes a seat; `filter` is compiled for what the hub's sources really give.
    pub(crate) fn open(
        socket: Option<PathBuf>,
        mut wish: Wish,
        filter: &str,
    ) -> Result<Self, CallError> {
        let path = socket.unwrap_or_else(ringtap_client::default_socket);
        wish.filter = Some(compile(filter, ETHERNET)?);
        let mut session = Session::attach(&path, &wish)?;
        // Only now it is known what the sources are; nothing was given out yet.
        let given = session.link_type();
        if !filter.trim().is_empty() && given? != ETHERNET {
            wish.filter = Some(compile(filter, session.link_type()?)?);
            drop(session);
            session = Session::attach(&path, &wish)?;
        }
        Ok(session)
    }

    fn attach(path: &std::path::Path, wish: &Wish) -> Result<Self, CallError> {
        let attachment = Connection::attach(path, wish)?;
        let connection = Arc::clone(&attachment.control);
        let receiver = Receiver::new(attachment.seat, attachment.control)?;
        let sources = receiver.sources().map(|(facts, lanes)| SourceText {
            device: c_text(&facts.device),
            offered_from: c_text(&facts.offered_from),
            link_type: facts.link_type,
            snap_length_bytes: facts.snap_length,
            first_lane: lanes.start,
            lanes: lanes.end - lanes.start,
        });
        Ok(Session {
            sources: sources.collect(),
            pending: Pending::new(receiver.lanes()),
            tally: Tally::new(receiver.lanes()),
            receiver,
            connection,
            descriptor: None,
            fresh: true,
        })
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    pub(crate) fn source(&self, index: usize) -> Option<&SourceText> {
        self.sources.get(index)
    }

    /// The one link type of all sources.
    fn link_type(&self) -> Result<LinkType, CallError> {
        let mut types = self.sources.iter().map(|source| source.link_type);
        let first = types.next().unwrap_or(ETHERNET.0);
        match types.all(|other| other == first) {
            true => Ok(LinkType(first)),
            false => Err(CallError::LinkTypes),
        }
    }

    /// The next packet, once [`Session::find`] found some.
    pub(crate) fn one(&mut self) -> Option<&Packet> {
        self.pending.one(&mut self.tally)
    }

    /// All packets that [`Session::find`] found.
    pub(crate) fn all(&mut self) -> &[Packet] {
        let packets = self.pending.all(&mut self.tally);
        self.receiver.tell(&self.tally);
        packets
    }

    /// Looks for packets of ours; what was given out before goes back.
    pub(crate) fn find(&mut self, patience: Patience) -> Result<Found, CallError> {
        if !self.pending.is_empty() {
            return Ok(Found::Packets);
        }
        self.pending.finish(&mut self.tally);
        self.receiver.tell(&self.tally);
        let mut batches = 0;
        let mut announced = false;
        loop {
            match self.receiver.next()? {
                Next::Batch(batch) => {
                    let source = source_of(&self.sources, batch.lane().0);
                    self.fresh = true;
                    let loaded = self.pending.load(&batch, source, &mut self.tally);
                    loaded.map_err(ReceiveError::from)?;
                    if !self.pending.is_empty() {
                        return Ok(Found::Packets);
                    }
                    self.pending.finish(&mut self.tally);
                    batches += 1;
                    if is_over(patience, batches) {
                        self.look_again_at_once()?;
                        return Ok(Found::Nothing);
                    }
                }
                Next::Ended => return Ok(Found::Ended),
                Next::Empty if is_over(patience, MOST_BATCHES) => {
                    self.receiver.require_hub()?;
                    if announced || !self.announce()? {
                        return Ok(Found::Nothing);
                    }
                    announced = true;
                }
                Next::Empty => {
                    let until = match patience {
                        Patience::Until(deadline) => Some(deadline),
                        _ => None,
                    };
                    self.receiver.wait(until)?;
                }
            }
        }
    }

    /// Says that the reader sleeps, if somebody waits for its descriptor; then look once more.
    fn announce(&mut self) -> Result<bool, CallError> {
        let Some(descriptor) = &self.descriptor else {
            return Ok(false);
        };
        self.receiver.announce_sleep();
        let fresh = std::mem::replace(&mut self.fresh, false);
        descriptor.look(match self.receiver.look_again_in() {
            Some(left) => Look::After(left),
            // What was published in this very moment may be told late.
            None if fresh => Look::After(FIRST_SLEEP),
            None => Look::WhenWoken,
        })?;
        Ok(true)
    }

    fn look_again_at_once(&self) -> Result<(), CallError> {
        match &self.descriptor {
            Some(descriptor) => Ok(descriptor.look(Look::Now)?),
            None => Ok(()),
        }
    }

    /// What becomes readable when the reader has to be called.
    pub(crate) fn descriptor(&mut self) -> Result<c_int, CallError> {
        if let Some(descriptor) = &self.descriptor {
            return Ok(descriptor.number());
        }
        let connection = self.connection.connection();
        let connection = connection.unwrap_or_else(|| self.receiver.as_fd());
        let descriptor = Descriptor::new(self.receiver.as_fd(), connection)?;
        // Nobody said yet that the reader sleeps.
        descriptor.look(Look::Now)?;
        Ok(self.descriptor.insert(descriptor).number())
    }

    pub(crate) fn set_filter(&mut self, text: &str) -> Result<(), CallError> {
        let filter = compile(text, self.link_type()?)?;
        self.receiver.set_filter(&filter)?;
        self.pending.filter(&filter);
        Ok(())
    }

    /// The ledger now, and whether it is final.
    pub(crate) fn ledger(&self) -> Result<(Ledger, bool), CallError> {
        let snapshot = self.receiver.snapshot()?;
        let ended = snapshot.sources.iter().all(|source| source.ended);
        Ok((self.tally.total(&snapshot), ended))
    }
}

/// From milliseconds as C has them.
pub(crate) fn patience(timeout_ms: c_int) -> Result<Patience, CallError> {
    match u64::try_from(timeout_ms) {
        Ok(0) => Ok(Patience::None),
        Ok(ms) => Ok(Patience::Until(Instant::now() + Duration::from_millis(ms))),
        Err(_) if timeout_ms == -1 => Ok(Patience::Endless),
        Err(_) => Err(CallError::Value {
            what: "timeout_ms",
            value: timeout_ms.into(),
            want: "-1 waits for ever, 0 not at all",
        }),
    }
}

fn is_over(patience: Patience, batches: u32) -> bool {
    match patience {
        Patience::None => batches >= MOST_BATCHES,
        Patience::Until(deadline) => Instant::now() >= deadline,
        Patience::Endless => false,
    }
}

fn source_of(sources: &[SourceText], lane: u32) -> u32 {
    let after = |source: &SourceText| lane >= source.first_lane + source.lanes;
    u32::try_from(sources.iter().take_while(|source| after(source)).count()).unwrap_or(0)
}

fn compile(text: &str, link_type: LinkType) -> Result<Program, CallError> {
    let filter = Filter::compile(text, link_type, SNAP_BYTES)?;
    Ok(filter.program().clone())
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}
