// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups share traffic out, and hand it over.

use std::time::{Duration, Instant};

use ringtap_client::{SubscriptionRequest, Tally};
use ringtap_ipc::protocol::HubStatus;
use ringtap_pool::counters::Counters;
use ringtap_testkit::require_root;
use rustix::process::Signal;

use crate::support::{Account, LIMIT, RunningHub, read, request};

#[test]
fn members_share_by_flow_and_a_killed_one_hands_its_share_over() {
    require_root!();
    let hub = RunningHub::new("hub-share", &["ids:4:flow", "rec"]);
    let members: Vec<_> = (0..4).map(|_| hub.count("ids", &[])).collect();
    let recorder = hub.count("rec", &[]);
    let first = hub.send(100_000, 80_000);
    let delivered = |status: &HubStatus| {
        let of_group = status.readers.iter().filter(|reader| reader.group == "ids");
        of_group
            .map(|reader| reader.counters.delivered)
            .collect::<Vec<_>>()
    };
    let all = hub.wait_until("members and recorder took each packet", |status| {
        let mut readers = status.readers.iter();
        let recorder = readers.find(|reader| reader.group == "rec");
        let recorded = recorder.is_some_and(|recorder| recorder.counters.delivered >= first);
        recorded && delivered(status).iter().sum::<u64>() >= first
    });
    let shares = delivered(&all);
    assert!(
        shares.iter().filter(|share| **share > 0).count() >= 2,
        "{shares:?}"
    );
    let mut members = members.into_iter();
    for member in members.by_ref().take(3) {
        member.signal(Signal::KILL);
        let _killed = member.wait(LIMIT);
    }
    let left = hub.wait_until("three left", |status| status.readers.len() == 2);
    let before = delivered(&left)[0];
    let second = hub.send(100_000, 80_000);
    let (last, _) = Account::of(members.next().expect("the fourth"));
    assert!(
        last.number("delivered") - before >= second,
        "everything is its own now: {last:?}"
    );
    let (all, _) = Account::of(recorder);
    assert!(all.number("delivered") >= first + second);
    assert_eq!(all.lost() + last.lost(), 0);
    hub.finish();
}

#[test]
fn members_count_packets_of_other_members_apart_from_filtered_ones() {
    require_root!();
    // The other group takes everything, so that packets which the balanced group does not take
    // are in the pool, too.
    let hub = RunningHub::new("hub-others", &["ids:3:flow:udp", "all"]);
    let attach = |private, credit_chunks| {
        let request = SubscriptionRequest {
            private,
            credit_chunks,
            ..request("ids")
        };
        let member = hub.attach(&request);
        let tally = Tally::new(member.lanes());
        (member, tally)
    };
    let everything = hub.count("all", &[]);
    let mut members = [
        attach(false, None),
        attach(true, None),
        // It does not read before all is sent, and loses packets.
        attach(false, Some(1)),
    ];
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 0);
    hub.net.inject("tx0", &[frame.clone(), frame.clone()]);
    let sent = hub.send(100_000, 20_000);
    hub.net.inject("tx0", &[frame]);
    let deadline = Instant::now() + LIMIT;
    loop {
        let counters: Vec<_> = members
            .iter_mut()
            .map(|(member, tally)| {
                read(member, tally, Duration::from_millis(1));
                tally.total(&member.snapshot().expect("the hub answers"))
            })
            .collect();
        let of_group: u64 = counters
            .iter()
            .map(|counters| counters.delivered + counters.dropped.overrun)
            .sum();
        let is_settled = |counters: &Counters| {
            let lost = counters.dropped.pool_full + counters.dropped.kernel;
            counters.balance().holds()
                && of_group + lost >= sent
                && counters.offered == counters.filtered + lost + of_group
                && counters.filtered >= 3
                && counters.other_members > 0
        };
        if counters.iter().all(is_settled) {
            break;
        }
        assert!(Instant::now() < deadline, "{sent} sent: {counters:#?}");
    }
    drop(members);
    let (all, _) = Account::of(everything);
    assert_eq!(all.number("other_members"), 0);
    hub.finish();
}

#[test]
fn round_robin_gives_every_member_as_much() {
    require_root!();
    let hub = RunningHub::new("hub-robin", &["rr:2:round-robin"]);
    let members = [hub.count("rr", &[]), hub.count("rr", &[])];
    let sent = hub.send(100_000, 50_000);
    let shares = members.map(|member| Account::of(member).0.number("delivered"));
    let [one, other] = shares;
    assert!(one + other >= sent, "{shares:?}");
    assert!(one.abs_diff(other) < sent / 20, "{shares:?}");
    hub.finish();
}

/// A bucket of 2,048 by the low byte of the source port, in a packet of IPv4 without options.
const BY_PORT: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int by_port(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if (data + 36 > (__u8 *)(long)ctx->data_end)
		return 0;
	return data[35] * 8;
}

char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn a_users_own_program_shares_a_group_out() {
    require_root!();
    let folder = tempfile::TempDir::new().expect("a folder can be made");
    let [text, object] = ["steer.c", "steer.o"].map(|name| folder.path().join(name));
    std::fs::write(&text, BY_PORT).expect("it can be written");
    let architecture = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = std::process::Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", &architecture, "-c"]);
    let compiled = clang.arg(&text).arg("-o").arg(&object).status();
    assert!(compiled.expect("clang runs").success());
    let group = format!("own:2:program:{}:udp", object.display());
    let hub = RunningHub::new("hub-own", &[&group]);
    let members = [hub.count("own", &[]), hub.count("own", &[])];
    // Ports below 128 are the first member's, the others the second's.
    let frame = |port: u8| {
        let mut frame = vec![0; 60];
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[35] = port;
        frame
    };
    let ports = [0, 1, 127, 128, 255, 255, 3, 4];
    hub.net.inject("tx0", &ports.map(frame));
    hub.wait_until("all are captured", |status| {
        let lanes = status.sources[0].lanes.iter();
        lanes.map(|lane| lane.counters.delivered).sum::<u64>() == 8
    });
    let shares = members.map(|member| Account::of(member).0.number("delivered"));
    assert_eq!(shares, [5, 3]);
    hub.finish();
}
