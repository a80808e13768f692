// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters in front of the sockets: what nobody wants goes its way and is counted.

use std::sync::Arc;
use std::time::Duration;

use ringtap_capture::device::Mode;
use ringtap_capture::files::LinkType;
use ringtap_capture::filter::Filter;
use ringtap_capture::xdp::XdpOptions;
use ringtap_pool::classify::{Balance, Rule, Rules};
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{Pause, Source};
use ringtap_testkit::{Namespace, require_root, require_tool};

use crate::support::{finish, frame, open, options, own};

const LONG: Duration = Duration::from_secs(20);

fn rule(filter: &str, bit: u32) -> Rule {
    let filter = Filter::compile(filter, LinkType::ETHERNET, 262_144).unwrap();
    Rule {
        filter: Arc::from(filter.program().to_entries()),
        balance: Balance::Everyone,
        members: Arc::new([1_u64 << bit; 256]),
    }
}

#[test]
fn what_no_rule_wants_goes_to_the_host_and_is_counted() {
    require_root!();
    require_tool!("ip", "python3", "tcpdump");
    for mode in [Mode::Native, Mode::Generic] {
        let net = Namespace::with_veth("unwanted");
        let mut source = open(
            &net,
            &XdpOptions {
                mode,
                ..options("rx0")
            },
        );
        let rules = Rules(vec![rule("len > 500", 0), rule("ether[14] = 7", 1)]);
        source.classify(&rules).unwrap();
        let dump = net.spawn(
            "tcpdump",
            &[
                "-i",
                "rx0",
                "-Q",
                "in",
                "-c",
                "2",
                "-w",
                "/dev/null",
                "ether proto 0x88b5",
            ],
        );
        dump.wait_for_stderr("listening on", LONG);
        let sent = [
            frame(7, 100),
            frame(1, 100),
            frame(1, 600),
            frame(2, 100),
            frame(7, 900),
        ];
        net.inject("tx0", &sent);
        assert!(
            dump.wait(LONG).status.success(),
            "{mode:?}: two packets reach the host"
        );
        let (captured, counts) = finish(source);
        assert_eq!(
            own(&captured),
            [sent[0].clone(), sent[2].clone(), sent[4].clone()]
        );
        let masks: Vec<_> = captured.iter().map(|packet| packet.slot.mask).collect();
        assert_eq!(masks, [2, 1, 3], "{mode:?}");
        assert_eq!((counts.lanes[0].seen, counts.lanes[0].unwanted), (5, 2));
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
    assert_eq!((counts.lanes[0].seen, counts.lanes[0].no_chunk), (8, 5));
}
