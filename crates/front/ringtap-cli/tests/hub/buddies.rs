// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members in processes of their own divide the lanes of live sources, and help one that is stopped.

use std::path::Path;

use ringtap_testkit::require_root;
use rustix::process::Signal;

use crate::support::{Account, BINARY, RunningHub};

/// Packets from each of the first two CPUs, which are two lanes of a tap.
const EACH: u64 = 8_000;

fn send_from(hub: &RunningHub, cpu: &str) {
    let count = EACH.to_string();
    let args = [
        "send", "-i", "tx0", "--size", "64", "--rate", "20000pps", "-c", &count, "--cpu", cpu,
    ];
    let _sent = hub.net.run(BINARY, &args).success();
}

fn buddies_help_on(test: &str, device: &str) {
    let groups = ["-g", "ids:2:lanes:offload=20"];
    let hub = RunningHub::with(test, device, &groups);
    let members = [hub.count("ids", &[]), hub.count("ids", &[])];
    // Whichever lanes are its own: one of them gets packets.
    members[0].signal(Signal::STOP);
    let is_there = |cpu: &&str| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let sending: Vec<_> = ["0", "1"].into_iter().filter(is_there).collect();
    for cpu in &sending {
        send_from(&hub, cpu);
    }
    let status = hub.wait_until("a member helps", |status| {
        status.groups[0].buddies.offloaded_packets > 0
    });
    assert!(status.groups[0].buddies.offloaded_chunks > 0, "{status:#?}");
    members[0].signal(Signal::CONT);
    let sent = EACH * u64::try_from(sending.len()).expect("two");
    // A member that leaves earlier leaves packets that the hub has yet to deliver.
    hub.wait_until("the members have every packet", |status| {
        let taken = status
            .readers
            .iter()
            .map(|one| one.counters.delivered + one.counters.dropped.overrun);
        taken.sum::<u64>() >= sent
    });
    let accounts = members.map(|member| Account::of(member).0);
    let delivered: u64 = accounts.iter().map(|one| one.number("delivered")).sum();
    let lost: u64 = accounts.iter().map(Account::lost).sum();
    for account in &accounts {
        assert_eq!(account.0["balanced"], true, "{account:?}");
    }
    // The hosts' own packets come on top of those that were sent.
    assert!(delivered + lost >= sent, "{accounts:?}");
    assert!(accounts[1].number("delivered") > 0, "{accounts:?}");
    hub.finish();
}

#[test]
fn buddies_help_on_a_tap() {
    require_root!();
    let device = "tap:rx0?exclusive&direction=in&chunks=256&packets=16";
    buddies_help_on("hub-buddies-tap", device);
}

#[test]
fn buddies_help_on_af_xdp() {
    require_root!();
    buddies_help_on("hub-buddies-xdp", "xdp:rx0?pool=8MiB");
}

#[test]
fn buddies_help_on_a_packet_socket() {
    require_root!();
    let device = "packet:rx0?chunks=256&packets=16&snap=128";
    buddies_help_on("hub-buddies-packet", device);
}
