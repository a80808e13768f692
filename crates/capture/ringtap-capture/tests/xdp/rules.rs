// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel filters of the sockets: filtered packets go to the network stack and are counted.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_device::Mode;
use ringtap_filter::{Balance, BucketMasks, Instruction, LinkType, Program, Rule, Rules, text};
use ringtap_pool::format::flag;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{Pause, Unclassified};
use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool, with};

use crate::support::{Captured, SOON, finish, frame, open, options, own};
use crate::tagging::{Tagging, tagged};

fn rule(filter: &str, bit: u32) -> Rule {
    Rule {
        filter: text::compile(filter, LinkType::ETHERNET, 262_144).unwrap(),
        balance: Balance::Everyone,
        members: BucketMasks::same(1 << bit),
    }
}

#[test]
fn what_no_rule_wants_goes_to_the_host_and_is_counted() {
    require_root!();
    require_tool!("ip", "python3", "tcpdump");
    for mode in [Mode::Native, Mode::Generic] {
        let net = Namespace::with_veth("filtered");
        let mut source = open(&net, &with(options("rx0"), |it| it.on.mode = mode));
        let rules = Rules::from(vec![rule("len > 500", 0), rule("ether[14] = 7", 1)]);
        source.rules.classify(&rules).unwrap();
        let dump = net.spawn(
            "tcpdump",
            &[
                "-i",
                "rx0",
                "-Q",
                "in",
                "-c",
                "2",
                // It gives its file, here the device, to the user that it becomes.
                "-Z",
                "root",
                "-w",
                "/dev/null",
                "ether proto 0x88b5",
            ],
        );
        dump.wait_for_stderr("listening on", LIMIT);
        let sent = [
            frame(7, 100),
            frame(1, 100),
            frame(1, 600),
            frame(2, 100),
            frame(7, 900),
        ];
        net.inject("tx0", &sent);
        assert!(
            dump.wait(SOON).status.success(),
            "{mode:?}: two packets reach the host"
        );
        let (captured, counts) = finish(source);
        assert_eq!(
            own(&captured),
            [sent[0].clone(), sent[2].clone(), sent[4].clone()]
        );
        let masks: Vec<_> = captured.iter().map(|packet| packet.slot.mask).collect();
        assert_eq!(masks, [2, 1, 3], "{mode:?}");
        assert_eq!((counts.lanes[0].offered, counts.lanes[0].filtered), (5, 2));
    }
}

#[test]
fn a_lane_that_is_paused_lets_packets_pass_and_counts_them() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("paused");
    let mut source = open(&net, &options("rx0"));
    source.pause(LaneId(0), Pause::Paused);
    net.inject("tx0", &vec![frame(1, 100); 5]);
    source.pause(LaneId(0), Pause::Capturing);
    net.inject("tx0", &vec![frame(2, 100); 3]);
    let (captured, counts) = finish(source);
    assert_eq!(own(&captured), vec![frame(2, 100); 3]);
    assert_eq!(
        (counts.lanes[0].offered, counts.lanes[0].dropped.pool_full),
        (8, 5)
    );
}

/// An IPv4 frame of this protocol.
fn ip(protocol: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 8, 0, 0]);
    bytes
}

/// UDP over IPv4, after more loads than fit into one function.
fn too_long_for_the_kernel() -> Program {
    let instruction = |code, jump_false, k| Instruction {
        code,
        jump_true: 0,
        jump_false,
        k,
    };
    let mut all = vec![instruction(0xb1, 0, 14)];
    all.extend((0..3500).map(|_| instruction(0x48, 0, 14)));
    all.extend([
        instruction(0x30, 0, 23),
        instruction(0x15, 1, 17),
        instruction(0x06, 0, 1),
        instruction(0x06, 0, 0),
    ]);
    Program::new(&all).unwrap()
}

#[test]
fn cells_whose_packets_nobody_wants_are_used_again() {
    const MANY: usize = 1000;
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("filtered-cells");
    // About 500 cells. The kernel cannot run this filter, so every packet takes a cell.
    let mut source = open(
        &net,
        &with(options("rx0"), |it| it.on.pool.bytes = Some(1 << 20)),
    );
    let rules = Rules::from(vec![Rule {
        filter: too_long_for_the_kernel(),
        ..rule("", 0)
    }]);
    let mut loader = std::mem::replace(&mut source.rules, Box::new(Unclassified));
    // Refused and remembered.
    loader.classify(&rules).unwrap();
    loader.classify(&rules).unwrap();
    let mut left = 3 * MANY;
    while left > 0 {
        let now = left.min(100);
        net.inject("tx0", &vec![ip(1); now]);
        left -= now;
        let settled = || {
            let lane = source.counts().lanes[0];
            lane.filtered + lane.delivered + lane.dropped.pool_full + lane.dropped.kernel
        };
        wait_for(u64::try_from(3 * MANY - left).unwrap(), settled);
    }
    net.inject("tx0", &vec![ip(17); 3]);
    let (captured, counts) = finish(source);
    let lane = counts.lanes[0];
    let udp = |packet: &&Captured| packet.data == ip(17);
    assert_eq!(captured.iter().filter(udp).count(), 3, "{lane:?}");
    assert_eq!(
        (lane.dropped.pool_full, lane.dropped.kernel),
        (0, 0),
        "{lane:?}"
    );
}

#[test]
fn filters_see_the_whole_packet_and_the_snap_length_cuts_afterwards() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("filtered-snap");
    let options = with(options("rx0"), |it| it.on.snap_length = Some(20));
    let mut source = open(&net, &options);
    let in_kernel = rule("ether[90] = 1", 0);
    let by_thread = Rule {
        filter: too_long_for_the_kernel(),
        ..rule("", 1)
    };
    let marked = |mark: u8| {
        let mut bytes = frame(mark, 100);
        bytes[90] = mark;
        bytes
    };
    for (rules, count) in [
        (vec![in_kernel.clone()], 3),
        (vec![in_kernel, by_thread], 6),
    ] {
        source.rules.classify(&Rules::from(rules)).unwrap();
        net.inject("tx0", &[marked(1), marked(2), marked(1)]);
        wait_for(count, || source.counts().lanes[0].accounted());
    }
    let (captured, counts) = finish(source);
    let lane = counts.lanes[0];
    assert_eq!((captured.len(), lane.filtered), (4, 2), "{lane:?}");
    assert!(captured.iter().all(|packet| packet.data == marked(1)[..20]));
}

#[test]
fn filters_change_on_another_thread_while_the_source_is_driven() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("filtered-thread");
    let mut source = open(&net, &options("rx0"));
    let mut loader = std::mem::replace(&mut source.rules, Box::new(Unclassified));
    for wanted in [1, 2] {
        let rules = Rules::from(vec![rule(&format!("ether[14] = {wanted}"), 0)]);
        std::thread::scope(|scope| {
            let loaded = scope.spawn(|| loader.classify(&rules).map_err(|error| error.to_string()));
            while !loaded.is_finished() {
                source.counts();
                source.pause(LaneId(0), Pause::Capturing);
            }
            loaded.join().unwrap().unwrap();
        });
        let sent = [frame(1, 100), frame(2, 100)];
        net.inject("tx0", &sent);
        wait_for(2 * wanted, || source.counts().lanes[0].accounted());
    }
    let (captured, counts) = finish(source);
    assert_eq!(own(&captured), [frame(1, 100), frame(2, 100)]);
    assert_eq!((counts.lanes[0].offered, counts.lanes[0].filtered), (4, 2));
    // A loader outlives its source, and then changes nothing.
    loader
        .classify(&Rules::from(vec![rule("ether[14] = 3", 0)]))
        .unwrap();
}

#[test]
fn tags_that_were_stripped_are_put_back_and_filters_see_them() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("xdp-tags");
    let _tagging = Tagging::on(&net, "tx0");
    let mut source = open(&net, &options("rx0"));
    let frames = [60, 100, 200, 1514].map(|length| frame(3, length));
    net.inject("tx0", &frames);
    wait_for(4, || source.counts().lanes[0].accounted());
    let rules = vec![rule("vlan 5 and len = 104", 0), rule("len = 204", 1)];
    source.rules.classify(&Rules::from(rules)).unwrap();
    net.inject("tx0", &frames);
    let (captured, counts) = finish(source);
    let [short, one, two, long] = frames.map(|frame| tagged(&frame, 5));
    let expected = [&short, &one, &two, &long, &one, &two];
    assert_eq!(own(&captured), expected.map(Clone::clone));
    assert_eq!(counts.lanes[0].filtered, 2, "{counts:?}");
    for packet in captured {
        assert_eq!(packet.slot.flags, flag::VLAN_RESTORED);
        assert_eq!(u64::from(packet.slot.wire_length), packet.data.len() as u64);
    }
}

fn wait_for(least: u64, mut count: impl FnMut() -> u64) {
    let start = Instant::now();
    while count() < least {
        assert!(start.elapsed() < SOON, "{} of {least}", count());
        sleep(Duration::from_millis(1));
    }
}
