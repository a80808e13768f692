// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's subscription: the request, and the hub's answer.
//!
//! A hub in this process and one in another process use the same types; the serde form is that of
//! the hub protocol. To another process, the answer is a message and descriptors.
//!
//! Invariants
//! - The reader checks every descriptor: a faulty hub can make it fail, not misbehave.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringtap_filter::flow::CutOff;
use ringtap_filter::{FilterLocation, GroupName, Program};
use ringtap_pool::memory::Region;
use ringtap_pool::number::{to_u64, to_usize};
use ringtap_pool::reader::Packet;
use ringtap_pool::source::Facts;
use ringtap_pool::view::{Pool, PoolError};
use serde::{Deserialize, Serialize};

use crate::doorbell::ReaderDoorbell;
use crate::mapping::{Access, Mapping};

/// Number of a subscription at its hub, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubscriptionId(pub u64);

/// A request for a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRequest {
    /// The group.
    pub group: String,
    /// The reader's name in `ringtap status`; the protocol sends it in `hello`.
    #[serde(skip)]
    pub name: String,
    /// The reader's own filter, in addition to the group's.
    #[serde(default = "Program::everything")]
    pub filter: Program,
    /// Chunks of one lane that the reader may hold; absent: the group's number.
    #[serde(default)]
    pub credit_chunks: Option<u32>,
    /// When the hub wakes the sleeping reader.
    #[serde(default)]
    pub watermark: Watermark,
    /// Asks for private delivery even in a group with shared delivery.
    #[serde(default)]
    pub private: bool,
    /// The filter is a guest's: it counts against the limits for filters of users, whoever asks.
    #[serde(default)]
    pub for_guest: bool,
    /// Withholds the packets behind this cut-off of every flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutoff: Option<CutOff>,
    /// Marks the packets that rules give to this group, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<GroupName>,
    /// Start with the first packet that the source captured, not the next one. Only for readers that
    /// attach before the hub runs, so it is not part of the protocol.
    #[serde(skip)]
    pub from_the_first: bool,
}

impl SubscriptionRequest {
    /// A request for all packets of a group, with the group's credit.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        SubscriptionRequest {
            group: group.into(),
            name: name.into(),
            filter: Program::everything(),
            credit_chunks: None,
            watermark: Watermark::default(),
            private: false,
            for_guest: false,
            cutoff: None,
            marks: None,
            from_the_first: false,
        }
    }
}

/// When the hub wakes a sleeping reader: at a number of packets, or after a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watermark {
    /// Number of waiting packets at which the reader is woken.
    pub packets: u32,
    /// Longest wait of the first packet until the reader is woken, in milliseconds.
    pub time_limit_ms: u32,
    /// While packets come fast, the pause of the reader after it has caught up with the writer, in
    /// microseconds.
    pub distance_us: u32,
}

impl Watermark {
    /// A watermark with defaults for absent values.
    pub fn or_default(
        packets: Option<u32>,
        time_limit_ms: Option<u32>,
        distance_us: Option<u32>,
    ) -> Self {
        let default = Watermark::default();
        Watermark {
            packets: packets.unwrap_or(default.packets),
            time_limit_ms: time_limit_ms.unwrap_or(default.time_limit_ms),
            distance_us: distance_us.unwrap_or(default.distance_us),
        }
    }
}

impl Default for Watermark {
    fn default() -> Self {
        Watermark {
            packets: 1,
            time_limit_ms: 10,
            distance_us: 100,
        }
    }
}

/// A reader's access to every source of a hub, and a doorbell.
pub struct Subscription {
    /// Number of the subscription at the hub.
    pub id: SubscriptionId,
    /// One endpoint for each source.
    pub endpoints: Vec<Endpoint>,
    /// Wakes the sleeping reader; the reader signals it to wake the hub.
    pub doorbell: Arc<ReaderDoorbell>,
    /// When the hub wakes the sleeping reader.
    pub watermark: Watermark,
}

/// A reader's access to one source.
pub struct Endpoint {
    /// Description of the source, with the reader's policy.
    pub facts: Facts,
    /// The source's pool.
    pub pool: Pool,
    /// The reader's control region.
    pub control: Region,
    /// The source's own signal, if it has one; readable when a lane has new packets.
    pub wake: Option<Arc<OwnedFd>>,
    /// Which packets belong to the reader.
    pub wanted: Wanted,
    /// Descriptors with which another process maps pool and control region; `None` if it cannot.
    pub files: Option<EndpointFiles>,
}

/// Descriptors of an endpoint's memory.
pub struct EndpointFiles {
    /// The pool, read-only.
    pub pool: OwnedFd,
    /// Where in its memory the pool begins.
    pub offset: u64,
    /// The control region.
    pub control: OwnedFd,
}

/// Which packets of a source belong to a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Each of the reader's packets has one of these bits in its slot's mask.
    pub mask: u64,
    /// Each packet of the reader's balanced group has one of these bits in its slot's mask, also
    /// packets for other members; 0 without such a group.
    #[serde(default)]
    pub group: u64,
    /// Packets with one of these bits in their slot's mask are marked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marks: u64,
    /// Where the filter runs.
    #[serde(rename = "not_in_source", with = "place")]
    pub place: FilterLocation,
    /// The filters of the reader and its group combined.
    pub filter: Program,
    /// Per lane, the first sequence that the source classified with this filter; the reader filters
    /// earlier packets itself.
    pub from: Vec<u64>,
}

/// Recipient of a packet, as far as one reader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// This reader.
    ThisReader,
    /// Another member of this reader's balanced group.
    OtherMember,
    /// No member of the group: the packet does not pass the filter.
    NoMember,
}

impl Wanted {
    /// First sequence of a lane from which on the mask alone decides.
    #[inline]
    pub fn classified_from(&self, lane: usize) -> u64 {
        match &self.place {
            _ if self.filter.takes_everything() => 0,
            FilterLocation::Source => self.from.get(lane).copied().unwrap_or(0),
            FilterLocation::Reader(_) => u64::MAX,
        }
    }

    /// Recipient of a packet of a lane with this [`Wanted::classified_from`].
    #[inline(always)]
    pub fn recipient(&self, packet: &Packet<'_>, classified_from: u64) -> Recipient {
        let mask = packet.slot().mask;
        if mask & self.mask == 0 {
            return match mask & self.group {
                0 => Recipient::NoMember,
                _ => Recipient::OtherMember,
            };
        }
        let is_ours = packet.sequence >= classified_from
            || self.filter.matches(packet.data, packet.slot().wire_length);
        if is_ours {
            Recipient::ThisReader
        } else {
            Recipient::NoMember
        }
    }
}

/// The answer to `attach`, without its descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// See [`Subscription::id`].
    pub reader: SubscriptionId,
    /// See [`Subscription::watermark`].
    pub watermark: Watermark,
    /// See [`Subscription::endpoints`].
    pub endpoints: Vec<AttachedEndpoint>,
}

/// An [`Endpoint`] without its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedEndpoint {
    /// Description of the source, with the reader's policy.
    #[serde(flatten)]
    pub facts: Facts,
    /// Epoch of the pool, as in the region header.
    pub epoch: u64,
    /// Bytes of the pool to map.
    pub pool_bytes: u64,
    /// Where in the memory of its descriptor the pool begins.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pool_offset: u64,
    /// Bytes of the control region to map.
    pub control_bytes: u64,
    /// A descriptor of the source's own signal accompanies the message.
    #[serde(default)]
    pub wakes: bool,
    /// Which packets belong to the reader.
    pub wanted: Wanted,
}

/// Why a message and its descriptors are not a valid subscription.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachedError {
    /// Too few descriptors.
    #[error("the hub sent too few descriptors")]
    Missing,
    /// The first two descriptors are not a doorbell.
    #[error("the hub's doorbell cannot be used: {0}")]
    Doorbell(io::Error),
    /// A descriptor cannot be mapped.
    #[error("the hub's memory cannot be read: {0}")]
    Mapping(io::Error),
    /// A mapping is not a valid pool.
    #[error("the hub's memory cannot be read: {0}")]
    Pool(#[from] PoolError),
}

impl Attached {
    /// The message and descriptors for a subscription; `None` if another process cannot map one of the
    /// pools.
    pub fn from_subscription(subscription: &Subscription) -> Option<(Self, Vec<BorrowedFd<'_>>)> {
        let mut fds = subscription.doorbell.descriptors().to_vec();
        let mut endpoints = Vec::new();
        for endpoint in &subscription.endpoints {
            let files = endpoint.files.as_ref()?;
            fds.extend([files.pool.as_fd(), files.control.as_fd()]);
            endpoints.push(AttachedEndpoint {
                facts: endpoint.facts.clone(),
                epoch: endpoint.pool.epoch(),
                pool_bytes: endpoint.pool.geometry().region_bytes(),
                pool_offset: files.offset,
                control_bytes: to_u64(endpoint.control.bytes()),
                wakes: endpoint.wake.is_some(),
                wanted: endpoint.wanted.clone(),
            });
        }
        let wakes = subscription
            .endpoints
            .iter()
            .filter_map(|e| e.wake.as_ref());
        fds.extend(wakes.map(|wake| wake.as_fd()));
        let message = Attached {
            reader: subscription.id,
            watermark: subscription.watermark,
            endpoints,
        };
        Some((message, fds))
    }

    /// Maps the memory that the hub sent.
    ///
    /// # Errors
    ///
    /// Every [`AttachedError`].
    pub fn open(self, fds: Vec<OwnedFd>) -> Result<Subscription, AttachedError> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(AttachedError::Missing);
        let doorbell =
            ReaderDoorbell::from_peer(next()?, next()?).map_err(AttachedError::Doorbell)?;
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        let mut wakes = Vec::with_capacity(self.endpoints.len());
        for message in self.endpoints {
            wakes.push(message.wakes);
            endpoints.push(message.open(next()?, next()?)?);
        }
        for (endpoint, _) in endpoints.iter_mut().zip(wakes).filter(|(_, wakes)| *wakes) {
            endpoint.wake = Some(Arc::new(next()?));
        }
        Ok(Subscription {
            id: self.reader,
            endpoints,
            doorbell: Arc::new(doorbell),
            watermark: self.watermark,
        })
    }
}

impl AttachedEndpoint {
    fn open(self, pool: OwnedFd, control: OwnedFd) -> Result<Endpoint, AttachedError> {
        let map = |file: &OwnedFd, offset, bytes: u64, access| {
            let mapping = Mapping::from_peer_at(file, offset, to_usize(bytes), access);
            mapping.map(Arc::new).map_err(AttachedError::Mapping)
        };
        let offset = self.pool_offset;
        let mapped = map(&pool, offset, self.pool_bytes, Access::Read)?;
        let region = map(&control, 0, self.control_bytes, Access::ReadWrite)?.region();
        Ok(Endpoint {
            facts: self.facts,
            pool: Pool::open(mapped.region(), self.epoch)?,
            control: region,
            wake: None,
            wanted: self.wanted,
            files: Some(EndpointFiles {
                pool,
                offset,
                control,
            }),
        })
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The wire form of where a filter runs: the reason why it does not run in the source.
mod place {
    use ringtap_filter::FilterLocation;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        place: &FilterLocation,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match place {
            FilterLocation::Source => None,
            FilterLocation::Reader(reason) => Some(reason),
        }
        .serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<FilterLocation, D::Error> {
        let reason = Option::deserialize(from)?;
        Ok(reason.map_or(FilterLocation::Source, FilterLocation::Reader))
    }
}

#[cfg(test)]
mod tests;
