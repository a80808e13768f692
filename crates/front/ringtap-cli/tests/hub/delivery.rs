// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared and private delivery, many readers, files, waits.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_client::{Cursor, Deadline, Look, Next, SubscriptionRequest, Tally, Watermark};
use ringtap_file::{FileReader, PacketDirection};
use ringtap_testkit::{Running, require_root, require_tool};

use crate::support::{
    Account, BINARY, LARGE_POOL, LIMIT, RunningHub, drain, missing_stamps, read_all, request, sent,
};

#[test]
fn shared_and_private_readers_get_the_same_packets() {
    require_root!();
    let hub = RunningHub::new("hub-same", &["shared", "own:private"]);
    let readers = [
        hub.count("shared", &["--stamps"]),
        hub.count("own", &["--stamps"]),
        hub.count("shared", &["--stamps", "udp src port 10003"]),
        hub.count("own", &["--stamps", "udp src port 10003"]),
    ];
    // As many as a lane of either pool holds, even if the hub or a reader is late.
    let sent = hub.send(200_000, 112_000);
    // The copying threads may be behind the source.
    hub.wait_until("private readers have read everything", |status| {
        let mut private = status.readers.iter().filter(|one| one.group == "own");
        private.all(|one| one.counters.delivered + one.counters.filtered >= sent)
    });
    let accounts = readers.map(Account::of);
    for (account, end) in &accounts[..2] {
        assert_eq!(account.lost(), 0, "{account:?}");
        assert!(account.number("delivered") >= sent, "{account:?}");
        assert_eq!(missing_stamps(end), 0);
    }
    for (account, _) in &accounts[2..] {
        assert_eq!(account.number("delivered"), sent / 16, "{account:?}");
    }
    hub.finish();
}

#[test]
fn a_recorder_at_a_hub_writes_a_whole_file() {
    require_root!();
    require_tool!("capinfos");
    let hub = RunningHub::new("hub-record", &["rec"]);
    let file = hub.path("all.pcapng");
    let mut command = Command::new(BINARY);
    command
        .args(["record", "-q", "-i", &hub.device("rec"), "-w"])
        .arg(&file);
    command.arg("udp");
    let recorder = Running::start(command);
    hub.wait_until("it attaches", |status| !status.readers.is_empty());
    let sent = hub.send(100_000, 100_000);
    recorder.interrupt();
    let _ended = recorder.wait(LIMIT).success();
    let mut command = Command::new("capinfos");
    command.args(["-M", "-c"]).arg(&file);
    let told = Running::start(command).wait(LIMIT).success().stdout;
    assert!(told.contains(&sent.to_string()), "{sent} packets: {told}");
    hub.finish();
}

/// Each flow is in one file, and the files together have every packet.
#[test]
fn recorders_of_one_group_divide_the_flows_among_their_files() {
    require_root!();
    let hub = RunningHub::new("hub-parts", &["rec:2:flow"]);
    let files = [hub.path("1.pcapng"), hub.path("2.pcapng")];
    let recorders = files.each_ref().map(|file| {
        let mut command = Command::new(BINARY);
        command.args(["record", "-q", "-i", &hub.device("rec"), "-w"]);
        command.arg(file).arg("udp");
        Running::start(command)
    });
    hub.wait_until("both attach", |status| status.readers.len() == 2);
    let sent = hub.send(100_000, 100_000);
    for recorder in recorders {
        recorder.interrupt();
        let _ended = recorder.wait(LIMIT).success();
    }
    let ports = files.map(|file| {
        let mut reader = FileReader::open(file.to_str().expect("UTF-8")).expect("a file");
        let mut ports = Vec::new();
        while let Some(packet) = reader.next_packet().expect("a packet") {
            ports.push([packet.data[34], packet.data[35]]);
        }
        ports
    });
    let packets: usize = ports.iter().map(Vec::len).sum();
    assert_eq!(u64::try_from(packets), Ok(sent));
    let [one, other] = ports.map(|ports| ports.into_iter().collect::<BTreeSet<_>>());
    assert!(one.is_disjoint(&other), "{one:?} {other:?}");
    assert!(!one.is_empty() && !other.is_empty());
    hub.finish();
}

/// Lanes are CPUs: two senders fill two of them.
#[test]
fn a_recorder_that_asks_for_it_gets_all_lanes_in_the_order_of_time() {
    require_root!();
    require_tool!("capinfos", "taskset");
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return ringtap_testkit::say_skipped("there is one CPU, so one lane");
    }
    let hub = RunningHub::new("hub-merge", &["rec"]);
    let file = hub.path("all.pcapng");
    let mut command = Command::new(BINARY);
    command
        .args(["record", "-qv", "--in-order", "60000", "-i"])
        .arg(hub.device("rec"))
        .arg("-w")
        .arg(&file);
    let recorder = Running::start(command);
    hub.wait_until("it attaches", |status| !status.readers.is_empty());
    let senders = ["0", "1"].map(|cpu| {
        let mut command = hub.net.command("taskset");
        command.args(["-c", cpu, BINARY, "send", "-i", "tx0", "--size", "64"]);
        command.args(["--json", "--rate", "20000pps", "-c", "20000"]);
        Running::start(command)
    });
    let sent = senders.map(|sender| sent(&sender.wait(LIMIT).success()));
    let sent: u64 = sent.iter().sum();
    let status = hub.status();
    recorder.interrupt();
    let told = recorder.wait(LIMIT).success();
    assert!(
        told.stderr.contains(", 0 later"),
        "none came too late: {}",
        told.stderr
    );
    let filled = status.sources[0]
        .lanes
        .iter()
        .filter(|lane| lane.counters.delivered > 10_000);
    assert_eq!(filled.count(), 2, "{status:?}");
    let mut command = Command::new("capinfos");
    command.args(["-M", "-c", "-o"]).arg(&file);
    let told = Running::start(command).wait(LIMIT).success().stdout;
    assert!(told.contains(&sent.to_string()), "{sent} packets: {told}");
    assert!(told.contains("True"), "in the order of time: {told}");
    hub.finish();
}

#[test]
fn a_recording_of_two_sources_has_two_interfaces() {
    require_root!();
    let hub = RunningHub::with("hub-sources", LARGE_POOL, &["-i", "tap:tx0?direction=out"]);
    let file = hub.path("two.pcapng");
    let recorder = hub.record("all", &file);
    // Not by `send`, whose packets pass by the tap of a sending interface.
    let sent = 2_000;
    hub.net.inject("tx0", &vec![vec![0xff; 64]; 2_000]);
    hub.wait_until("both sources' packets are read", |status| {
        status.readers[0].counters.delivered >= 2 * sent
    });
    recorder.interrupt();
    let _told = recorder.wait(LIMIT).success();
    let mut file = FileReader::open(file.to_str().expect("text")).expect("a recording");
    let mut counts = [0; 2];
    while let Some(packet) = file.next_packet().expect("whole packets") {
        let out = packet.interface == 1;
        assert_eq!(packet.direction() == PacketDirection::Outbound, out);
        counts[usize::from(out)] += 1;
    }
    assert_eq!(counts, [sent, sent]);
    let told = file.interfaces().iter().map(|interface| {
        let counted = interface.statistics.clone().expect("statistics");
        (interface.name.clone().expect("a name"), counted.delivered)
    });
    let want = ["rx0", "tx0"].map(|name| (name.to_owned(), Some(sent)));
    assert_eq!(told.collect::<Vec<_>>(), want);
    hub.finish();
}

#[test]
fn eighty_readers_each_get_everything() {
    require_root!();
    let hub = RunningHub::new("hub-eighty", &["all"]);
    let mut readers: Vec<_> = (0..80).map(|_| hub.receiver("all")).collect();
    let last = hub
        .status()
        .readers
        .into_iter()
        .next_back()
        .expect("eighty");
    assert!(last.not_in_source.is_some(), "said aloud: {last:?}");
    let sent = hub.send(10_000, 1_000);
    for receiver in &mut readers {
        let counters = read_all(receiver, sent);
        assert!(counters.delivered >= sent, "{counters:?}");
    }
    drop(readers);
    hub.finish();
}

#[test]
fn a_watermark_gathers_packets_and_a_limit_ends_the_wait() {
    require_root!();
    let hub = RunningHub::new("hub-mark", &["all"]);
    let limit = Duration::from_secs(1);
    let mut receiver = hub.attach(&SubscriptionRequest {
        watermark: Watermark {
            packets: 1000,
            time_limit_ms: 1000,
            ..Watermark::default()
        },
        ..request("all")
    });
    // Whatever the interface said when it came up.
    let mut tally = Tally::new(receiver.lanes());
    drain(&mut receiver, &mut tally);
    let begun = Instant::now();
    // So fast that they leave together, whatever else the machine does.
    let sending = hub.start_sending(1_000_000, 5);
    let mut together = loop {
        if let Next::Batch(batch) = receiver.next(Some(LIMIT)).expect("the hub is there") {
            break batch.len();
        }
    };
    assert!(begun.elapsed() >= limit, "five packets wait for the limit");
    // The sender may have used two CPUs, and so two lanes.
    while let Next::Batch(batch) = receiver.try_next().expect("the hub is there") {
        together += batch.len();
    }
    assert!(together >= 5, "and come together: {together}");
    assert!(sending.wait(LIMIT).status.success());
    drop(receiver);
    hub.finish();
}

#[test]
fn a_reader_that_asks_without_waiting_is_not_held_up() {
    require_root!();
    let hub = RunningHub::new("hub-poll", &["all"]);
    let mut cursor = Cursor::new(hub.receiver("all"));
    let mut look = || cursor.look(Deadline::Now).expect("the hub is there");
    assert_eq!([look(), look()], [Look::Empty; 2]);
    cursor.descriptor().expect("a descriptor is free");
    hub.send(1_000, 1);
    // It is readable at once, then for each announced sleep.
    while cursor.look(Deadline::Now).expect("the hub is there") == Look::Empty {
        let descriptor = cursor.watched().expect("it is in use");
        let readable = ringtap_ipc::event::sleep_until_readable(&[descriptor], Some(LIMIT));
        assert!(readable.expect("it can be polled"));
    }
    assert!(cursor.take_one().is_some());
    drop(cursor);
    hub.finish();
}
