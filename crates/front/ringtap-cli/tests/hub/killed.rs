// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers and hubs that are killed or stopped.

use std::time::Duration;

use ringtap_file::FileReader;
use ringtap_ipc::protocol::HubStatus;
use ringtap_testkit::{Running, require_root};
use rustix::process::Signal;

use crate::support::{Account, BINARY, LARGE_POOL, LIMIT, RunningHub, missing_stamps};

const KILLS: u32 = 100;
/// Less than four chunks hold, and how often they are sent.
const BURST: u64 = 1_200;
const BURSTS: u64 = 8;
/// At a hundred thousand a second they take as long as the kills.
const PACKETS: u64 = 1_000_000;

#[test]
fn a_hundred_killed_readers_cost_the_others_nothing() {
    require_root!();
    let hub = RunningHub::with("hub-kill", LARGE_POOL, &["-g", "all"]);
    // What the hub makes for its first reader and keeps is no leak: a reader comes and leaves.
    let first = hub.count("all", &[]);
    let sent = hub.send(10_000, 100);
    hub.wait_until("the first reader reads", |status| {
        status
            .readers
            .iter()
            .all(|reader| reader.counters.delivered == sent)
    });
    let _first = Account::of(first);
    hub.wait_until("the first reader left", |status| status.readers.is_empty());
    let without_readers = hub.settled_resources();
    let readers: Vec<_> = (0..3).map(|_| hub.count("all", &["--stamps"])).collect();
    let with_readers = hub.resources();
    assert!(
        with_readers.descriptors >= without_readers.descriptors + 3,
        "each reader costs descriptors"
    );
    let sending = hub.start_sending(100_000, PACKETS);
    for _ in 0..KILLS {
        let victim = hub.count("all", &[]);
        std::thread::sleep(Duration::from_millis(10));
        victim.signal(Signal::KILL);
        let _killed = victim.wait(LIMIT);
        hub.wait_until("the subscription is given back", |status| {
            status.readers.len() == 3
        });
    }
    assert!(sending.wait(LIMIT).status.success());
    let idle = |chunks: u32| chunks <= 4;
    hub.wait_until("chunks come back", |status| {
        let mut lanes = status.sources.iter().flat_map(|source| &source.lanes);
        lanes.all(|lane| idle(lane.chunks_in_use))
    });
    for reader in readers {
        let (account, end) = Account::of(reader);
        assert_eq!(account.lost(), 0, "{account:?}");
        assert!(account.number("delivered") >= PACKETS, "{account:?}");
        assert_eq!(missing_stamps(&end), 0);
    }
    hub.wait_until("all left", |status| status.readers.is_empty());
    assert_eq!(hub.settled_resources(), without_readers, "nothing leaks");
    hub.finish();
}

/// Sends bursts to a reader of the group `small`, which is done with all `sent` before each.
fn send_what_it_can_hold(hub: &RunningHub, sent: &mut u64) {
    let is_done_with = |status: &HubStatus, packets: u64| {
        let mut readers = status.readers.iter();
        let small = readers.find(|reader| reader.group == "small");
        small.is_some_and(|reader| {
            reader.counters.delivered + reader.counters.dropped.overrun >= packets
        })
    };
    for _ in 0..BURSTS {
        hub.wait_until("it caught up", |status| is_done_with(status, *sent));
        *sent += hub.send(200_000, BURST);
    }
    hub.wait_until("it caught up", |status| is_done_with(status, *sent));
}

#[test]
fn a_stopped_reader_loses_by_its_own_credit_only_and_is_told_exactly() {
    require_root!();
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let text = "[[group]]\nname = \"small\"\ncredit = 4\n[[group]]\nname = \"all\"\n";
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().display().to_string();
    let hub = RunningHub::with("hub-stop", LARGE_POOL, &["-c", &config]);
    let others = [
        hub.count("all", &["--stamps"]),
        hub.count("all", &["--stamps"]),
    ];
    let stopped = hub.count("small", &["--stamps"]);
    // Less than its credit at a time, each of which it takes before the next one comes.
    let mut sent = 0;
    send_what_it_can_hold(&hub, &mut sent);
    stopped.signal(Signal::STOP);
    sent += hub.send(200_000, 400_000);
    stopped.signal(Signal::CONT);
    send_what_it_can_hold(&hub, &mut sent);
    for reader in others {
        let (account, end) = Account::of(reader);
        assert_eq!(
            (account.lost(), missing_stamps(&end)),
            (0, 0),
            "{account:?}"
        );
    }
    let (account, end) = Account::of(stopped);
    let lost = account.number("dropped.overrun");
    assert!(lost > 300_000, "four chunks hold far less: {account:?}");
    assert_eq!(account.lost(), lost, "{account:?}");
    assert!(
        account.number("delivered") >= 2 * BURSTS * BURST,
        "it goes on: {account:?}"
    );
    // Stamps begin anew with each run of the sender, so only the middle run can have holes.
    assert!(missing_stamps(&end) <= lost, "{account:?}");
    hub.finish();
}

/// The sum of the losses that the packets of a file state.
fn stated_losses(file: &std::path::Path) -> u64 {
    let mut reader = FileReader::open(file.to_str().expect("text")).expect("a capture file");
    let mut lost = 0;
    while let Some(packet) = reader.next_packet().expect("a sound file") {
        lost += packet.drop_count().unwrap_or(0);
    }
    lost
}

#[test]
fn the_losses_that_a_files_packets_state_add_up_to_the_recorders_loss() {
    require_root!();
    // Small chunks, of which a stopped recorder may hold few.
    let device = "packet:rx0?chunks=256&packets=16&snap=128";
    let hub = RunningHub::with("hub-stated", device, &["-g", "all"]);
    let file = hub.path("stated.pcapng");
    let name = file.to_str().expect("text");
    let recorder = hub.reader("record", "all", &["-w", name, "less", "200"]);
    let send = |size: &str, packets: &str| {
        let args = [
            "send", "-i", "tx0", "--size", size, "--rate", "20000pps", "-c", packets,
        ];
        let _sent = hub.net.run(BINARY, &args).success();
    };
    let is_settled = |status: &HubStatus| status.readers.iter().all(|one| one.unread == 0);
    recorder.signal(Signal::STOP);
    send("64", "8000");
    hub.wait_until("it loses packets", |status| {
        status.readers[0].counters.dropped.overrun > 0
    });
    recorder.signal(Signal::CONT);
    // The first chunks after the loss have no packet for the recorder.
    send("1000", "100");
    hub.wait_until("it has read all", is_settled);
    send("64", "100");
    hub.wait_until("it has read all", is_settled);
    let (account, _) = Account::of(recorder);
    let lost = account.number("dropped.overrun");
    assert!(lost > 1000, "{account:?}");
    assert_eq!(stated_losses(&file), lost, "{account:?}");
    hub.finish();
}

#[test]
fn a_killed_hub_is_told_at_once_and_leaves_a_clean_interface() {
    require_root!();
    let mut hub = RunningHub::new("hub-dies", &["all", "own:private"]);
    let readers = [hub.count("all", &[]), hub.count("own", &[])];
    let file = hub.path("killed.pcapng");
    let recorder = hub.record("all", &file);
    let sent = hub.send(100_000, 10_000);
    hub.wait_until("all readers have all packets", |status| {
        let mut readers = status.readers.iter();
        readers.all(|reader| reader.counters.delivered == sent)
    });
    hub.hub.signal(Signal::KILL);
    for reader in readers.into_iter().chain([recorder]) {
        let (account, end) = Account::with_status(reader, 1);
        assert!(end.stderr.contains("the hub ended"), "{}", end.stderr);
        let known = ["offered", "delivered"].map(|name| account.number(name));
        assert_eq!((known, account.lost()), ([sent; 2], 0), "{account:?}");
    }
    let mut again = std::process::Command::new(BINARY);
    again.args(["count", "-q", "--json", "-r"]).arg(&file);
    let (recorded, _) = Account::of_ended(Running::start(again));
    assert_eq!(recorded.number("delivered"), sent, "{recorded:?}");
    let deadline = std::time::Instant::now() + LIMIT;
    while hub.net.has_xdp("rx0") {
        assert!(
            std::time::Instant::now() < deadline,
            "an XDP program is left"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    hub.restart(&["-g", "all"]);
    let reader = hub.count("all", &[]);
    let sent = hub.send(100_000, 10_000);
    assert!(Account::of(reader).0.number("delivered") >= sent);
    hub.finish();
}

#[test]
fn a_reader_without_a_hub_is_told_what_to_do() {
    let mut command = std::process::Command::new(BINARY);
    command.args(["count", "-i", "hub:all?socket=/nonexistent/hub.sock"]);
    let end = Running::start(command).wait(LIMIT);
    assert_eq!(end.status.code(), Some(1));
    assert!(end.stderr.contains("ringtap hub"), "{}", end.stderr);
}
