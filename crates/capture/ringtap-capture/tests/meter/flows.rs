// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of the meter: one record for each, marks of their packets, and where the packets go.

use super::*;
use crate::stack::{for_everyone, received};
use ringtap_testkit::with;

/// The meter has half as many buckets as flows: most flows share theirs.
#[test]
fn flows_that_share_a_bucket_have_one_record_each() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_buckets");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    let frame = |port| ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([port, 9], b"")));
    let frames: Vec<_> = (1000..3000).map(frame).collect();
    (0..3).for_each(|_| net.inject("tx0", &frames));
    let all = take(&mut meter);
    assert_eq!(packets(&meter, &all), 6000);
    assert_eq!(all.len(), 2000, "{:?}", meter.counters());
    assert!(all.iter().all(|one| one.packets == 3));
}

#[test]
fn a_flow_has_the_service_and_the_direction_of_its_first_packet() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_marks");
    let both = with(options(Taking::Pass), |it| {
        it.on.direction = Direction::InOut
    });
    let mut meter = net.enter(|| KernelMeter::attach(&both, &WANTS)).unwrap();
    let frame = |from, to, service: u8| {
        let mut packet = ipv4(UDP, from, to, &udp([5, 6], b""));
        packet[1] = service;
        ethernet(&[], 0x0800, &packet)
    };
    net.inject("tx0", &[frame(1, 2, 0xb8), frame(1, 2, 0x20)]);
    net.inject("rx0", &[frame(2, 1, 0x08)]);
    let all = take(&mut meter);
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.source[0] & 0xff, one.traffic_class, one.is_sent))
        .collect();
    assert_eq!(found, [(1, 0xb8, false), (2, 0x08, true)]);
}

#[test]
fn an_exclusive_meter_takes_packets_from_the_host_and_another_does_not() {
    require_root!();
    require_tool!("ip");
    let frame = for_everyone(ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([1, 2], b""))));
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        for (taking, expected) in [(Taking::Exclusive, 0), (Taking::Pass, 10)] {
            let net = Namespace::with_veth("meter_takes");
            let options = with(options(taking), |it| it.on.mode = mode);
            let mut meter = net.enter(|| KernelMeter::attach(&options, &WANTS)).unwrap();
            let before = received(&net);
            net.inject("tx0", &vec![frame.clone(); 10]);
            settle_everywhere();
            assert_eq!(received(&net) - before, expected, "{mode:?} {taking:?}");
            let all = take(&mut meter);
            assert_eq!(packets(&meter, &all), 10, "{mode:?}");
        }
    }
}
