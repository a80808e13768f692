// SPDX-License-Identifier: MIT OR Apache-2.0
//! Message and descriptors that pass a subscription to a reader in another process.
//!
//! Invariants
//! - The reader checks every descriptor: a faulty hub can make it fail, not misbehave.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringtap_pool::number::{to_u64, to_usize};
use ringtap_pool::source::Facts;
use ringtap_pool::view::{Pool, PoolError};
use serde::{Deserialize, Serialize};

use crate::doorbell::ReaderDoorbell;
use crate::mapping::{Access, Mapping};
use crate::subscription::{
    Endpoint, EndpointFiles, Subscription, SubscriptionId, Wanted, Watermark,
};

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
    pub fn of(subscription: &Subscription) -> Option<(Self, Vec<BorrowedFd<'_>>)> {
        let mut fds = subscription.doorbell.descriptors().to_vec();
        let mut endpoints = Vec::new();
        for endpoint in &subscription.endpoints {
            let files = endpoint.files.as_ref()?;
            fds.extend([files.pool.as_fd(), files.control.as_fd()]);
            endpoints.push(AttachedEndpoint {
                facts: endpoint.facts.clone(),
                epoch: endpoint.pool.epoch(),
                pool_bytes: endpoint.pool.geometry().region_bytes(),
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
        let map = |file: &OwnedFd, bytes: u64, access| {
            let mapping = Mapping::of_peer(file, to_usize(bytes), access);
            mapping.map(Arc::new).map_err(AttachedError::Mapping)
        };
        let mapped = map(&pool, self.pool_bytes, Access::Read)?;
        let region = map(&control, self.control_bytes, Access::ReadWrite)?.region();
        Ok(Endpoint {
            facts: self.facts,
            pool: Pool::open(mapped.region(), self.epoch)?,
            control: region,
            wake: None,
            wanted: self.wanted,
            files: Some(EndpointFiles { pool, control }),
        })
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::{Place, Program};
    use ringtap_pool::control::control_bytes;
    use ringtap_pool::format::Geometry;

    use super::*;
    use crate::event::{Event, sleep_until_readable};
    use crate::memfd::{SealedPool, SharedMemory};
    use crate::protocol::{decode, encode};

    fn endpoint(lanes: u32, wake: Option<OwnedFd>) -> Endpoint {
        let geometry = Geometry::contiguous(4096, 9, lanes, 100).unwrap();
        let pool = SealedPool::create(geometry).unwrap();
        let control = SharedMemory::create(control_bytes(&geometry)).unwrap();
        Endpoint {
            facts: Facts::default(),
            pool: pool.readable,
            control: control.region,
            wake: wake.map(Arc::new),
            wanted: Wanted {
                mask: 1 << lanes,
                group: 0,
                place: Place::Reader("why".into()),
                filter: Program::everything(),
                from: vec![u64::MAX; 2],
            },
            files: Some(EndpointFiles {
                pool: pool.file.try_clone().unwrap(),
                control: control.file,
            }),
        }
    }

    /// A subscription at two sources; the second has a signal of its own, which is returned too.
    fn subscription() -> (Subscription, Event) {
        let signal = Event::new().unwrap();
        let wake = signal.as_fd().try_clone_to_owned().unwrap();
        let (_hub, doorbell) = crate::doorbell::doorbell().unwrap();
        let subscription = Subscription {
            id: SubscriptionId(7),
            endpoints: vec![endpoint(1, None), endpoint(2, Some(wake))],
            doorbell: Arc::new(doorbell),
            watermark: Watermark {
                packets: 5,
                ..Watermark::default()
            },
        };
        (subscription, signal)
    }

    /// The message and its descriptors as they arrive.
    fn sent(subscription: &Subscription) -> (Attached, Vec<OwnedFd>) {
        let (message, fds) = Attached::of(subscription).unwrap();
        let fds = fds.iter().map(|fd| fd.try_clone_to_owned().unwrap());
        (decode(&encode(&message)).unwrap(), fds.collect())
    }

    #[test]
    fn a_subscription_arrives_as_it_was_sent() {
        let (subscription, signal) = subscription();
        let (message, fds) = sent(&subscription);
        let arrived = message.open(fds).unwrap();
        assert_eq!(arrived.id, subscription.id);
        assert_eq!(arrived.watermark, subscription.watermark);
        for (arrived, sent) in arrived.endpoints.iter().zip(&subscription.endpoints) {
            assert_eq!(arrived.pool.geometry(), sent.pool.geometry());
            assert_eq!(arrived.control.bytes(), sent.control.bytes());
            assert_eq!(arrived.wanted, sent.wanted);
        }
        assert!(arrived.endpoints[0].wake.is_none());
        ringtap_pool::wake::Signal::signal(&signal);
        let wake = arrived.endpoints[1].wake.as_ref().unwrap();
        assert!(sleep_until_readable(&[wake.as_fd()], Some(std::time::Duration::ZERO)).unwrap());
    }

    #[test]
    fn missing_and_exchanged_descriptors_are_refused() {
        let (subscription, _signal) = subscription();
        let all = sent(&subscription).1.len();
        assert_eq!(all, 7);
        for count in 0..all {
            let (message, mut fds) = sent(&subscription);
            fds.truncate(count);
            assert!(
                matches!(message.open(fds), Err(AttachedError::Missing)),
                "{count}"
            );
        }
        let (message, mut fds) = sent(&subscription);
        fds.swap(0, 1);
        assert!(matches!(message.open(fds), Err(AttachedError::Doorbell(_))));
        let (message, mut fds) = sent(&subscription);
        fds.swap(2, 3);
        assert!(message.open(fds).is_err(), "a pool that is no pool");
        let (mut message, fds) = sent(&subscription);
        message.endpoints[1].pool_bytes += 4096;
        assert!(matches!(message.open(fds), Err(AttachedError::Mapping(_))));
    }

    #[test]
    fn a_pool_without_a_file_cannot_be_sent() {
        let (mut subscription, _signal) = subscription();
        subscription.endpoints[1].files = None;
        assert!(Attached::of(&subscription).is_none());
    }
}
