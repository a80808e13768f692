// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session behind a handle: a subscription at a hub, with descriptions of its sources for C.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_client::{
    Connection, Cursor, CursorPacket, Deadline, KeptPackets, Lasting, Look, PacketVerdict,
    Receiver, SubscriptionRequest, Verdict, VerdictSender,
};
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, Program, text};
use ringtap_pool::counters::Counters;
use ringtap_pool::ids::LaneId;

use crate::error::CallError;
use crate::flows::FlowSession;

/// A source, with its texts for C.
pub(crate) struct SourceText {
    pub(crate) device: CString,
    pub(crate) offered_from: CString,
    pub(crate) link_type: u16,
    pub(crate) snap_length_bytes: u32,
    pub(crate) first_lane: u32,
    pub(crate) lanes: u32,
}

pub(crate) struct Session {
    pub(crate) cursor: Cursor,
    pub(crate) connection: Arc<Connection>,
    pub(crate) sources: Vec<SourceText>,
    /// Sends the verdicts of an inline reader.
    verdicts: Option<VerdictSender>,
    /// Ends of flows.
    pub(crate) flows: FlowSession,
    /// Batches that the program keeps, by number.
    kept: HashMap<u64, KeptPackets>,
    /// Number of the last batch that the program took to keep.
    last_kept: u64,
}

impl Session {
    /// Subscribes; compiles `filter` for the link type of the hub's sources.
    pub(crate) fn open(
        socket: Option<PathBuf>,
        request: SubscriptionRequest,
        filter: &str,
        order_ms: u32,
    ) -> Result<Self, CallError> {
        let path = socket.unwrap_or_else(ringtap_client::default_socket);
        let (receiver, connection) =
            Receiver::subscribe(&path, request, |link_type| compile(filter, link_type))?;
        let receiver = match order_ms {
            0 => receiver,
            ms => receiver.in_order(Duration::from_millis(ms.into())),
        };
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
            cursor: Cursor::new(receiver),
            connection,
            verdicts: None,
            flows: FlowSession::default(),
            kept: HashMap::new(),
            last_kept: 0,
        })
    }

    /// Looks for packets; releases packets taken before, and sends the verdicts.
    pub(crate) fn look(&mut self, deadline: Deadline) -> Result<Look, CallError> {
        self.verdicts.iter().for_each(VerdictSender::send);
        Ok(self.cursor.look(deadline)?)
    }

    /// Keeps the packets that were found; returns the number of their batch, and the packets.
    pub(crate) fn keep(&mut self) -> (u64, &[CursorPacket]) {
        self.last_kept += 1;
        let kept = self.cursor.take_kept();
        let kept = self.kept.entry(self.last_kept).insert_entry(kept);
        (self.last_kept, kept.into_mut().packets())
    }

    /// Releases a kept batch.
    pub(crate) fn release(&mut self, batch: u64) -> Result<(), CallError> {
        let kept = self.kept.remove(&batch).map(drop);
        kept.ok_or_else(|| {
            CallError::argument(format!(
                "batch {batch} is not kept: it was released already, or never taken"
            ))
        })
    }

    pub(crate) fn set_filter(&mut self, text: &str) -> Result<(), CallError> {
        let filter = compile(text, self.cursor.receiver().link_type()?)?;
        Ok(self.cursor.set_filter(&filter)?)
    }

    /// Makes this session the inline reader of the bridge.
    pub(crate) fn inline(&mut self) -> Result<(), CallError> {
        self.verdicts = Some(self.connection.inline()?);
        Ok(())
    }

    /// The verdicts of an inline reader.
    pub(crate) fn verdicts(&mut self) -> Result<&mut VerdictSender, CallError> {
        let missing =
            || CallError::argument("this is no inline reader: call ringtap_inline() first");
        self.verdicts.as_mut().ok_or_else(missing)
    }

    /// Gives a verdict on a packet, or on its flow.
    pub(crate) fn decide(
        &mut self,
        lane: u32,
        sequence: u64,
        verdict: Verdict,
        for_flow: Option<Lasting>,
    ) -> Result<(), CallError> {
        let lanes = self.sources.last();
        let lanes = lanes.map_or(0, |source| source.first_lane + source.lanes);
        let verdicts = self.verdicts()?;
        if lane >= lanes {
            return Err(CallError::argument(format!(
                "lane {lane} is invalid: expected that of a packet of this handle"
            )));
        }
        verdicts.push(PacketVerdict {
            lane: LaneId(lane),
            sequence,
            verdict,
            for_flow,
        })?;
        Ok(())
    }

    /// The counters now, and whether these are final.
    pub(crate) fn counters(&self) -> Result<(Counters, bool), CallError> {
        let snapshot = self.cursor.receiver().snapshot()?;
        let ended = snapshot.sources.iter().all(|source| source.ended);
        Ok((self.cursor.tally().total(&snapshot), ended))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cursor.publish();
    }
}

/// The deadline of a call with this time-out; an error below -1.
pub(crate) fn deadline(timeout_ms: c_int) -> Result<Deadline, CallError> {
    match u64::try_from(timeout_ms) {
        Ok(0) => Ok(Deadline::Now),
        Ok(ms) => Ok(Deadline::At(Instant::now() + Duration::from_millis(ms))),
        Err(_) if timeout_ms == -1 => Ok(Deadline::Never),
        Err(_) => Err(CallError::argument(format!(
            "timeout_ms {timeout_ms} is invalid: -1 waits for ever, 0 not at all"
        ))),
    }
}

fn compile(filter: &str, link_type: LinkType) -> Result<Program, CallError> {
    Ok(text::compile(filter, link_type, MAX_SNAP_LENGTH)?)
}

/// The text for C; C takes no NUL in it.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}
