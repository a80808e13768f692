// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captured bytes equal those on the wire: jumbo frames, VLAN tags, snap length, time.

use std::time::{SystemTime, UNIX_EPOCH};

use ringtap_capture::tap::Mode;
use ringtap_device::Queues;
use ringtap_pool::format::flag;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{Tagging, attach, finish, frame, options, own, python, sending, tagged};

const HOOKS: [Mode; 3] = [Mode::Native, Mode::Generic, Mode::Tc];

#[test]
fn jumbo_frames_are_captured_whole_on_every_hook() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let net = Namespace::with_veth("jumbo");
        for end in ["tx0", "rx0"] {
            net.ip(&["link", "set", end, "mtu", "9000"]);
        }
        let frames: Vec<_> = [9014, 4096, 3000, 9013, 64]
            .map(|size| frame(1, size))
            .into();
        let tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        net.inject("tx0", &frames);
        let (captured, counts) = finish(tap);
        assert_eq!(own(&captured), frames, "{mode:?}");
        assert!(
            counts.lanes.iter().all(|lane| lane.dropped.kernel == 0),
            "{mode:?}: {counts:?}"
        );
        let wire: Vec<_> = captured
            .iter()
            .map(|packet| packet.slot.wire_length)
            .collect();
        assert!(
            wire.contains(&9014) && wire.contains(&9013),
            "{mode:?}: {wire:?}"
        );
    }
}

#[test]
fn a_tag_that_is_in_the_packet_is_captured_as_it_is() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let net = Namespace::with_veth("vlan_in_band");
        let plain = frame(1, 100);
        let frames = [tagged(&plain, 7), tagged(&tagged(&plain, 9), 8), plain];
        let tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        net.inject("tx0", &frames);
        assert_eq!(own(&finish(tap).0), frames, "{mode:?}");
    }
}

#[test]
fn a_tag_that_was_stripped_is_put_back() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Auto, Mode::Native, Mode::Tc] {
        let net = Namespace::with_veth("vlan_stripped");
        let _tagging = Tagging::on(&net, "tx0");
        let frames: Vec<_> = [60, 64, 1514].map(|size| frame(3, size)).into();
        let tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        net.inject("tx0", &frames);
        let (captured, counts) = finish(tap);
        let expected: Vec<_> = frames.iter().map(|frame| tagged(frame, 5)).collect();
        assert_eq!(own(&captured), expected, "{mode:?}");
        let wire = captured.iter().map(|it| u64::from(it.slot.wire_length));
        let counted = counts.lanes.iter().map(|lane| lane.bytes);
        assert_eq!(
            counted.sum::<u64>(),
            wire.sum::<u64>(),
            "{mode:?}: {counts:?}"
        );
        for packet in captured
            .iter()
            .filter(|packet| packet.data[12..14] == [0x81, 0])
        {
            assert_ne!(packet.slot.flags & flag::VLAN_RESTORED, 0, "{mode:?}");
            assert_eq!(
                u64::from(packet.slot.wire_length),
                packet.data.len() as u64,
                "{mode:?}"
            );
        }
    }
}

#[test]
fn a_hook_that_cannot_see_stripped_tags_says_so() {
    require_root!();
    require_tool!("ip", "ethtool");
    let net = Namespace::with_veth("vlan_note");
    // A veth passes tags beside the packets also without this offload.
    let _ = net
        .run("ethtool", &["-K", "rx0", "rxvlan", "off"])
        .success();
    let tap = attach(&net, &with(options("rx0"), |it| it.on.mode = Mode::Generic));
    let notes = &tap.facts().notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("VLAN tags") && note.contains("mode=tc")),
        "{notes:?}"
    );
}

#[test]
fn the_snap_length_cuts_the_bytes_and_not_the_length() {
    require_root!();
    require_tool!("ip", "python3");
    for snap_length in [1, 13, 15, 17, 64, 65] {
        let net = Namespace::with_veth("snap");
        let sent = frame(1, 200);
        let tap = attach(
            &net,
            &with(options("rx0"), |it| it.on.snap_length = Some(snap_length)),
        );
        net.inject("tx0", std::slice::from_ref(&sent));
        let _tagging = Tagging::on(&net, "tx0");
        net.inject("tx0", std::slice::from_ref(&sent));
        let (captured, _) = finish(tap);
        let snap = usize::try_from(snap_length).unwrap();
        let found: Vec<_> = captured
            .iter()
            .map(|it| (it.slot.wire_length, &it.data[..]))
            .collect();
        let with_tag = tagged(&sent, 5);
        assert!(
            found.contains(&(200, &sent[..snap])),
            "snap {snap}: {found:?}"
        );
        assert!(
            found.contains(&(204, &with_tag[..snap])),
            "snap {snap}: {found:?}"
        );
    }
}

#[test]
fn times_are_wall_clock_and_between_before_and_after() {
    require_root!();
    require_tool!("ip", "python3");
    let now = || {
        u64::try_from(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos(),
        )
    };
    let net = Namespace::with_veth("time");
    let tap = attach(&net, &options("rx0"));
    let before = now().unwrap();
    net.inject("tx0", &[frame(1, 60), frame(2, 60)]);
    let after = now().unwrap();
    let (captured, _) = finish(tap);
    assert_eq!(own(&captured).len(), 2);
    for packet in captured {
        assert!(
            (before..=after).contains(&packet.slot.time_ns),
            "{}",
            packet.slot.time_ns
        );
    }
}

#[test]
fn every_cpu_writes_a_lane_of_its_own() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        ringtap_testkit::say_skipped("needs two CPUs");
        return;
    }
    let net = Namespace::with_veth("lanes");
    let tap = attach(&net, &options("rx0"));
    python(&net, "0", &sending("tx0", 30));
    python(&net, "1", &sending("tx0", 50));
    let (captured, counts) = finish(tap);
    let of_lane = |lane| {
        let ours = captured
            .iter()
            .filter(|it| it.lane == lane && it.data[12..14] == [0x88, 0xb5]);
        ours.count()
    };
    assert_eq!((of_lane(0), of_lane(1)), (30, 50), "{counts:?}");
}

#[test]
fn only_the_chosen_receive_queues_are_captured() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        ringtap_testkit::say_skipped("needs two CPUs");
        return;
    }
    let net = Namespace::new("queues");
    let queues = ["numrxqueues", "2", "numtxqueues", "2"];
    let mut link = vec!["link", "add", "tx0"];
    link.extend(queues);
    link.extend(["type", "veth", "peer", "name", "rx0"]);
    link.extend(queues);
    net.ip(&link);
    for end in ["tx0", "rx0"] {
        net.ip(&["link", "set", end, "up", "arp", "off"]);
    }
    let both = attach(&net, &options("rx0"));
    // A packet socket selects the queue by its CPU.
    python(&net, "0", &sending("tx0", 20));
    python(&net, "1", &sending("tx0", 30));
    let (captured, _) = finish(both);
    let on = |queue| {
        captured
            .iter()
            .filter(|packet| packet.slot.queue == queue)
            .count()
    };
    assert_eq!((on(0), on(1)), (20, 30));

    let one = attach(
        &net,
        &with(options("rx0"), |it| it.on.queues = Queues::chosen([1..=1])),
    );
    python(&net, "0", &sending("tx0", 20));
    python(&net, "1", &sending("tx0", 30));
    let (captured, counts) = finish(one);
    assert_eq!(captured.len(), 30);
    assert!(captured.iter().all(|packet| packet.slot.queue == 1));
    let offered: u64 = counts.lanes.iter().map(|lane| lane.offered).sum();
    assert_eq!(offered, 30, "other queues are not offered to this tap");
}

/// Opens both queues of the tap device mq0, and lets frames arrive on them: 20 and 30.
const ON_TWO_QUEUES: &str = "import fcntl, os, struct\n\
    tap, no_header, many_queues = 0x2, 0x1000, 0x100\n\
    queues = [os.open('/dev/net/tun', os.O_RDWR) for _ in range(2)]\n\
    for queue in queues:\n\
    \x20   name = struct.pack('16sH22x', b'mq0', tap | no_header | many_queues)\n\
    \x20   fcntl.ioctl(queue, 0x400454ca, name)\n\
    frame = bytes([2,0,0,0,0,2, 2,0,0,0,0,1, 0x88,0xb5]) + bytes(46)\n\
    for queue, count in zip(queues, (20, 30)):\n\
    \x20   for _ in range(count): os.write(queue, frame)\n";

/// A veth tells traffic control no receive queue, other devices do.
#[test]
fn traffic_control_has_the_receive_queue_that_a_device_tells() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("told_queues");
    net.ip(&["tuntap", "add", "mq0", "mode", "tap", "multi_queue"]);
    net.ip(&["link", "set", "mq0", "up", "arp", "off"]);
    let tap = attach(&net, &with(options("mq0"), |it| it.on.mode = Mode::Tc));
    python(&net, "0", ON_TWO_QUEUES);
    let (captured, _) = finish(tap);
    let on = |queue| captured.iter().filter(|it| it.slot.queue == queue).count();
    assert_eq!((on(0), on(1)), (20, 30));
}
