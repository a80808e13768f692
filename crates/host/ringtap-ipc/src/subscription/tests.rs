// SPDX-License-Identifier: MIT OR Apache-2.0
//! A subscription sent to another process.

use ringtap_filter::{FilterLocation, Program};
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
            marks: 0,
            place: FilterLocation::Reader("why".into()),
            filter: Program::everything(),
            from: vec![u64::MAX; 2],
        },
        files: Some(EndpointFiles {
            offset: 0,
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
    let (message, fds) = Attached::from_subscription(subscription).unwrap();
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
    assert!(Attached::from_subscription(&subscription).is_none());
}
