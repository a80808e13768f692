// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the agent in a guest and the host process of its virtual machine.
//!
//! Payloads of the application [`APPLICATION`] of vNPlug, in JSON. The application header's kind is
//! [`VERSION`], and an answer repeats the header's request.
//!
//! A guest has at most one subscription per group. Each group of the guest has a *part* of the pool
//! device and a part of the control device, which all its subscriptions use one after another. A part
//! of the pool device is a pool of one lane, and the host its writer.
//!
//! Invariants
//! - No message is longer than a payload of vNPlug may be.
//! - Filters that arrive are valid programs, and texts have no control characters.
#![forbid(unsafe_code)]

use ringtap_filter::Program;
use ringtap_filter::flow::CutOff;
use ringtap_ipc::protocol::{ParseError, Reply, Request, decode, encode};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::ChunkId;
use ringtap_vnplug::ctrl::message::{ApplicationId, ApplicationMessage, MAX_PAYLOAD_BYTES};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the application, by which host process and agent find each other.
pub const APPLICATION_NAME: &str = "ringtap";
/// Number of the application.
pub const APPLICATION: ApplicationId = 0x5254_564D;
/// Bytes of a chunk of a part.
const CHUNK_BYTES: u32 = 64 << 10;
/// Most rules, flows or ends of flows in a message, which so fits into a payload.
pub const MAX_ENTRIES: usize = 64;
/// Version of these messages.
pub const VERSION: u16 = 2;
/// The vector of the control device on which the host signals that a part has new packets. (The host
/// needs no signals from the guest.)
pub const PACKETS_VECTOR: u16 = 0;

/// Requests of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum GuestRequest {
    /// Subscribes to a group. The answer is [`HostMessage::Subscribed`].
    Subscribe {
        /// The group.
        group: String,
        /// Name of the reader, for `ringtap vm list` and `ringtap status` on the host.
        name: String,
        /// The filter.
        #[serde(default = "Program::everything")]
        filter: Program,
        /// What the host makes of the part.
        pool: GuestPool,
        /// What the guest missed before, if it was interrupted.
        #[serde(default)]
        gap: Option<GuestGap>,
        /// The cut-off of every flow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cutoff: Option<CutOff>,
    },
    /// Changes the filter of a subscription. The answer is [`HostMessage::Filtered`].
    ChangeFilter {
        /// The group.
        group: String,
        /// The new filter.
        filter: Program,
    },
    /// Ends a subscription. The answer is [`HostMessage::Unsubscribed`].
    Unsubscribe {
        /// The group.
        group: String,
    },
    /// Asks for [`HostMessage::Counters`] of a subscription.
    Statistics {
        /// The group.
        group: String,
    },
    /// Sets, removes or lists flow rules of a subscription, or takes the ends of its flows. The answer is
    /// [`HostMessage::FlowRules`].
    FlowRules {
        /// The group.
        group: String,
        /// A request of the hub's protocol with at most [`MAX_ENTRIES`] rules or flows. `reader` is absent, or any
        /// number: then the ends are those for programs beside the reader.
        request: Request,
    },
}

/// Answers and reports of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HostMessage {
    /// The groups that the guest may read: for a new agent, and when the hub is back (request 0).
    Granted {
        /// The groups.
        groups: Vec<GrantedGroup>,
    },
    /// The subscription has begun.
    Subscribed {
        /// The group.
        group: String,
        /// The part of the pool device.
        pool: DeviceRange,
        /// Number of the subscription: another one for each.
        epoch: u64,
        /// The part of the control device: the reader's control region.
        control: DeviceRange,
        /// Why the filter does not run in the host's kernel; absent if it does.
        not_in_source: Option<String>,
    },
    /// The new filter is in force.
    Filtered {
        /// The group.
        group: String,
        /// Sequence in the part of the first packet that the new filter classified.
        from: u64,
        /// Why the filter does not run in the host's kernel; absent if it does.
        not_in_source: Option<String>,
    },
    /// The subscription has ended as the guest asked; the part stays as it is until the next one: the guest reads
    /// what is left there.
    Unsubscribed {
        /// The group.
        group: String,
        /// The final counters.
        counters: GuestCounters,
    },
    /// The counters of a subscription.
    Counters {
        /// The group.
        group: String,
        /// Epoch of the subscription.
        epoch: u64,
        /// The counters.
        counters: GuestCounters,
    },
    /// The answer to flow rules.
    FlowRules {
        /// The group.
        group: String,
        /// The hub's answer, with at most [`MAX_ENTRIES`] rules or ends.
        reply: Reply,
    },
    /// The host does not carry out the request.
    Refused {
        /// Why, for the user.
        text: String,
    },
    /// The subscription has ended without a request of the guest (request 0). The part stays as it is until the
    /// next one: the guest reads what is left there.
    Ended {
        /// The group.
        group: String,
        /// Epoch of the subscription.
        epoch: u64,
        /// Why, for the user.
        reason: String,
        /// The final counters.
        #[serde(default)]
        counters: GuestCounters,
    },
    /// The host has noticed that the guest mapped a device (request 0).
    Mapped {
        /// The device's number.
        device: u64,
        /// Whether the host signals by interrupts.
        interrupts: bool,
    },
}

/// A group that a guest may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedGroup {
    /// Its name.
    pub name: String,
    /// The hub's sources, as the user wrote them.
    pub devices: Vec<String>,
    /// Link type of all sources (`LINKTYPE_*`).
    pub link_type: u16,
    /// Bytes of its part of the pool device.
    pub pool_bytes: u64,
}

/// The pool that a guest wants in a part: readers may still have chunks of the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPool {
    /// Number of chunks, as for [`pool_geometry`].
    pub chunks: u32,
    /// Epoch of the pool.
    pub epoch: u64,
    /// Sequence of the first packet.
    pub begins_at: u64,
    /// Chunks that the host leaves as they are, in order: the first of each run, and how many.
    pub without: Vec<[u32; 2]>,
}

impl GuestPool {
    /// The chunks that the pool leaves as they are, in order. A run counts from behind the runs before it on, so that
    /// no list of runs makes much work.
    pub fn chunks_without(&self) -> Vec<ChunkId> {
        let mut from = 1;
        let runs = self.without.iter().flat_map(|[first, count]| {
            let end = first.saturating_add(*count).min(self.chunks);
            let run = from.max(*first)..end;
            from = from.max(end);
            run
        });
        runs.map(ChunkId).collect()
    }
}

/// An interruption of a guest's subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestGap {
    /// Packets of the capture before it.
    pub after: u64,
    /// How long it lasts.
    pub duration_ns: u64,
}

/// The sizes of a pool in a part; `None` for impossible numbers.
pub fn pool_geometry(chunks: u32) -> Option<Geometry> {
    Geometry::contiguous(CHUNK_BYTES, chunks, 1, CHUNK_BYTES).ok()
}

/// The most chunks in a part of these bytes.
pub fn chunks_in(bytes: u64) -> u32 {
    u32::try_from(bytes / u64::from(CHUNK_BYTES)).unwrap_or(u32::MAX)
}

/// A piece of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRange {
    /// The device's number.
    pub device: u64,
    /// Offset in the application's memory of the device.
    pub at: u64,
    /// Size.
    pub bytes: u64,
}

/// Counters of a guest's subscription since it began, at one moment. All packets that were offered to
/// it are the sum of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// Packets in the part.
    pub copied: u64,
    /// Packets that do not pass the filter.
    pub filtered: u64,
    /// Packets that flow rules withheld.
    #[serde(default)]
    pub shunted: u64,
    /// Packets for other members of a balanced group.
    pub other_members: u64,
    /// Packets lost by the NIC or its driver.
    pub nic: u64,
    /// Packets lost by the host's kernel.
    pub kernel: u64,
    /// Packets lost because the hub's pool had no room.
    pub pool_full: u64,
    /// Packets lost because the host process was past its credit at the hub.
    pub overrun: u64,
    /// Packets lost because the part had no room: the guest did not return its chunks.
    pub part_full: u64,
}

impl GuestCounters {
    /// Adds the counters of another subscription.
    pub fn add(&mut self, more: &GuestCounters) {
        let GuestCounters {
            copied,
            filtered,
            shunted,
            other_members,
            nic,
            kernel,
            pool_full,
            overrun,
            part_full,
        } = self;
        for (sum, more) in [
            (copied, more.copied),
            (filtered, more.filtered),
            (shunted, more.shunted),
            (other_members, more.other_members),
            (nic, more.nic),
            (kernel, more.kernel),
            (pool_full, more.pool_full),
            (overrun, more.overrun),
            (part_full, more.part_full),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Why a message cannot be sent or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is too long.
    #[error(
        "a message of {0} bytes, of which {MAX_PAYLOAD_BYTES} can be sent: use a shorter filter"
    )]
    TooLong(usize),
    /// The other end has another version.
    #[error(
        "version {0} of the messages, this side has {VERSION}: install the same version of Ringtap on host and guest"
    )]
    Version(u16),
    /// The payload is not a message.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// A message of this application in the form of vNPlug.
///
/// # Errors
///
/// [`MessageError::TooLong`].
pub fn pack(message: &impl Serialize, request: u32) -> Result<ApplicationMessage, MessageError> {
    let payload = encode(message);
    if payload.len() <= MAX_PAYLOAD_BYTES {
        Ok(ApplicationMessage {
            application: APPLICATION,
            kind: VERSION,
            request,
            payload,
        })
    } else {
        Err(MessageError::TooLong(payload.len()))
    }
}

/// The [`GuestRequest`] or [`HostMessage`] that arrived in the form of vNPlug.
///
/// # Errors
///
/// [`MessageError::Version`], [`MessageError::Parse`].
pub fn unpack<T: DeserializeOwned>(message: &ApplicationMessage) -> Result<T, MessageError> {
    match message.kind {
        VERSION => Ok(decode(&message.payload)?),
        other => Err(MessageError::Version(other)),
    }
}

#[cfg(test)]
mod tests;
