// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters that come, change and go while traffic runs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ringtap_client::{Next, Receiver};
use ringtap_filter::LinkType;
use ringtap_filter::Program;
use ringtap_filter::text;
use ringtap_packet::stamp;
use ringtap_testkit::require_root;

use crate::support::{Account, LARGE_POOL, LIMIT, RunningHub, missing_stamps};

const CHANGES: u16 = 60;
const MOMENT: Duration = Duration::from_millis(30);

fn program(expression: &str) -> Program {
    text::compile(expression, LinkType(1), 262_144).expect("it is a filter")
}

/// Number of received packets by source port: waits for this many packets, and then a moment for
/// further ones.
fn ports(receiver: &mut Receiver, packets: u64) -> HashMap<u16, u64> {
    let mut seen = HashMap::new();
    let (deadline, moment) = (Instant::now() + LIMIT, Instant::now() + MOMENT);
    while Instant::now() < moment || seen.values().sum::<u64>() < packets {
        assert!(Instant::now() < deadline, "{packets} packets: {seen:?}");
        let Next::Batch(batch) = receiver
            .next(Some(Duration::from_millis(5)))
            .expect("a hub")
        else {
            continue;
        };
        for received in batch
            .packets()
            .map(Result::unwrap)
            .filter(|received| received.is_ours())
        {
            if stamp::parse(received.packet.data).is_some() {
                let port = [received.packet.data[34], received.packet.data[35]];
                *seen.entry(u16::from_be_bytes(port)).or_default() += 1;
            }
        }
    }
    seen
}

#[test]
fn a_filter_that_changes_under_traffic_holds_from_the_next_packet_on() {
    require_root!();
    let hub = RunningHub::with("hub-change", LARGE_POOL, &["-g", "all"]);
    let steady = hub.count("all", &["--stamps"]);
    let mut changing = hub.receiver("all");
    let sending = hub.start_sending(100_000, 500_000);
    let mut any = 0;
    for change in 0..CHANGES {
        let port = 10_000 + change % 16;
        let filter = program(&format!("udp src port {port}"));
        changing.set_filter(&filter).expect("it is changed");
        let seen = ports(&mut changing, 0);
        assert!(
            seen.keys().all(|one| *one == port),
            "only {port} is wanted: {seen:?}"
        );
        any += seen.values().sum::<u64>();
    }
    assert!(any > 0, "something was received");
    changing
        .set_filter(&Program::everything())
        .expect("it is taken away");
    assert!(sending.wait(LIMIT).status.success());
    let (account, end) = Account::of(steady);
    assert_eq!(account.lost(), 0, "{account:?}");
    assert_eq!(missing_stamps(&end), 0, "no packet is lost by a change");
    assert!(
        account.number("delivered") >= 500_000 && account.number("delivered") < 500_100,
        "no packet comes twice: {account:?}"
    );
    drop(changing);
    hub.finish();
}

#[test]
fn a_private_readers_filter_changes_where_its_packets_are_copied() {
    require_root!();
    let hub = RunningHub::new("hub-own-change", &["own:private"]);
    let mut receiver = hub.receiver("own");
    receiver
        .set_filter(&program("udp src port 10004"))
        .expect("it is changed");
    hub.send(50_000, 16_000);
    let seen = ports(&mut receiver, 1_000);
    assert_eq!(seen, HashMap::from([(10_004, 1_000)]));
    receiver
        .set_filter(&program("udp src port 10005"))
        .expect("it is changed again");
    hub.send(50_000, 16_000);
    let seen = ports(&mut receiver, 1_000);
    assert_eq!(seen, HashMap::from([(10_005, 1_000)]));
    drop(receiver);
    hub.finish();
}

#[test]
fn sixty_four_readers_with_sixty_four_filters_each_get_their_own() {
    require_root!();
    let hub = RunningHub::new("hub-64", &["all"]);
    let mut readers = Vec::new();
    for reader in 0..63_u16 {
        let filter = program(&format!(
            "udp src port {} or tcp port {reader}",
            10_000 + reader
        ));
        readers.push(hub.attach(&ringtap_client::SubscriptionRequest {
            filter,
            ..crate::support::request("all")
        }));
    }
    let status = hub.status();
    let elsewhere = status
        .readers
        .iter()
        .find(|reader| reader.not_in_source.is_some());
    assert!(elsewhere.is_none(), "all run in the kernel: {elsewhere:?}");
    let sent = hub.send(20_000, 16_000);
    for (reader, receiver) in (0_u16..).zip(&mut readers) {
        let expected = if reader < 16 { sent / 16 } else { 0 };
        let seen = ports(receiver, expected);
        let own = seen.get(&(10_000 + reader)).copied().unwrap_or(0);
        assert_eq!(
            (own, seen.len()),
            (expected, usize::from(reader < 16)),
            "{reader}: {seen:?}"
        );
    }
    drop(readers);
    hub.finish();
}
