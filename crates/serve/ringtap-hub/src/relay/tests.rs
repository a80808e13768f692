// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a relay whose thread is held up.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::doorbell;
use ringtap_ipc::subscription::SubscriptionRequest;
use ringtap_testkit::LIMIT;

use super::*;
use crate::{Hub, HubOptions, fed};

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_relay_ends_without_waiting_for_its_thread() {
    let source = fed::FedSource::quiet();
    let groups = vec![Group::new("all")];
    let (hub, _) =
        Hub::start(vec![source], groups, HubOptions::default(), Vec::new()).expect("a hub starts");
    let request = SubscriptionRequest::new("all", "test");
    let mut inner = hub.handle().attach(request).expect("a subscription");
    let (doorbell, readers_doorbell) = doorbell().expect("descriptors");
    inner.doorbell = Arc::new(readers_doorbell);
    let wanted = inner.endpoints.iter().map(|one| one.wanted.clone());
    let wanted: Vec<_> = wanted.collect();
    let signal = Event::new().expect("a descriptor");
    let group = Group::new("all");
    let started = Relay::start(inner, Arc::new(doorbell), &group, signal, None);
    let (relay, _private) = started.expect("a thread starts");

    // Between its new filters and its counters, the thread does not look whether it has to end.
    let common = Arc::clone(&relay.common);
    let held_up = lock(&common.counters);
    relay.set_wanted(wanted);
    wait_until("the thread takes the filters", || {
        lock(&common.wanted).is_none()
    });
    let ending = std::thread::spawn(move || {
        relay.stop();
        drop(relay);
    });
    wait_until("the relay is dropped", || ending.is_finished());
    assert!(!common.has_ended.load(Acquire), "its thread is held up");
    drop(held_up);
    wait_until("the thread ends", || common.has_ended.load(Acquire));
}
