// SPDX-License-Identifier: MIT OR Apache-2.0
//! Too little memory, too slow readers, an interface that goes away.

use ringtap_ipc::protocol::SourceState;
use ringtap_testkit::require_root;
use rustix::process::Signal;

use crate::support::{Account, LIMIT, RunningHub, missing_stamps};

#[test]
fn congestion_pauses_capture_until_readers_have_caught_up() {
    require_root!();
    let device = "tap:rx0?exclusive&direction=in&pool=2MiB";
    let hub = RunningHub::with("hub-congest", device, &["--congestion", "20:60"]);
    let reader = hub.count("all", &[]);
    reader.signal(Signal::STOP);
    hub.send(100_000, 60_000);
    let paused = hub.wait_until("capture pauses", |status| {
        status.sources[0].state == SourceState::Paused
    });
    let lost = |status: &ringtap_ipc::protocol::HubStatus| -> u64 {
        status.sources[0]
            .lanes
            .iter()
            .map(|lane| lane.counters.dropped.pool_full)
            .sum()
    };
    assert!(
        lost(&paused) > 0,
        "packets of the pause are counted: {paused:#?}"
    );
    reader.signal(Signal::CONT);
    let goes_on = hub.wait_until("capture goes on", |status| {
        status.sources[0].state == SourceState::Capturing
    });
    let sent = hub.send(20_000, 2_000);
    let (account, _) = Account::of(reader);
    assert!(account.number("delivered") >= sent, "{account:?}");
    let after = lost(&goes_on);
    assert!(account.number("dropped.pool_full") >= after, "{account:?}");
    hub.finish();
}

#[test]
fn a_stopped_private_reader_fills_only_its_own_pool() {
    require_root!();
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let text = "[[group]]\nname = \"own\"\ndelivery = \"private\"\nprivate_pool = \"1MiB\"\n\
                [[group]]\nname = \"all\"\n";
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().display().to_string();
    let hub = RunningHub::with(
        "hub-full",
        "tap:rx0?exclusive&direction=in",
        &["-c", &config],
    );
    let other = hub.count("all", &["--stamps"]);
    let stopped = hub.count("own", &["--stamps"]);
    stopped.signal(Signal::STOP);
    let sent = hub.send(100_000, 60_000);
    stopped.signal(Signal::CONT);
    hub.send(20_000, 2_000);
    let (own, end) = Account::of(stopped);
    let lost = own.number("dropped.overrun");
    assert!(
        lost > sent / 2 && lost < sent,
        "a mebibyte holds some: {own:?}"
    );
    assert_eq!(own.lost(), lost, "{own:?}");
    assert!(missing_stamps(&end) <= lost, "{own:?}");
    let (all, end) = Account::of(other);
    assert_eq!((all.lost(), missing_stamps(&end)), (0, 0), "{all:?}");
    hub.finish();
}

#[test]
fn policies_keep_a_sample_or_the_beginning_of_packets() {
    require_root!();
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let text = "[[group]]\nname = \"some\"\ncredit = 16\npolicy = \"sample:4\"\n\
                [[group]]\nname = \"short\"\ncredit = 16\npolicy = \"cut:20\"\n";
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().display().to_string();
    let hub = RunningHub::with(
        "hub-policy",
        "tap:rx0?exclusive&direction=in",
        &["-c", &config],
    );
    let sampling = hub.count("some", &["--stamps"]);
    // What is cut to 20 bytes has lost its stamp.
    let cutting = hub.count("short", &["--stamps"]);
    sampling.signal(Signal::STOP);
    cutting.signal(Signal::STOP);
    let sent = hub.send(100_000, 40_000);
    sampling.signal(Signal::CONT);
    cutting.signal(Signal::CONT);
    let (some, _) = Account::of(sampling);
    let lost = some.number("dropped.overrun");
    assert!(lost > 0 && lost < sent, "{some:?}");
    let (short, _) = Account::of(cutting);
    assert!(short.number("delivered") > 0, "{short:?}");
    hub.finish();
}

#[test]
fn an_interface_that_goes_away_ends_readers_and_hub_with_the_reason() {
    require_root!();
    let hub = RunningHub::new("hub-gone", &["all"]);
    let reader = hub.count("all", &[]);
    let sent = hub.send(100_000, 10_000);
    hub.net.ip(&["link", "del", "rx0"]);
    let told = reader.wait(LIMIT);
    assert_eq!(told.status.code(), Some(3), "{}", told.stderr);
    assert!(told.stderr.contains("rx0"), "{}", told.stderr);
    assert!(told.stdout.contains("\"balanced\":true"), "{}", told.stdout);
    let end = hub.hub.wait(LIMIT);
    assert_eq!(end.status.code(), Some(3), "{}", end.stderr);
    assert!(end.stdout.contains("balanced"), "{}", end.stdout);
    assert!(sent == 10_000);
}

#[test]
fn a_source_that_ends_leaves_the_others_to_new_readers() {
    require_root!();
    let device = "tap:rx0?exclusive&direction=in";
    let hub = RunningHub::with("hub-one-gone", device, &["-i", "packet:lo", "-g", "all"]);
    let before = hub.count("all", &["--filter", "udp"]);
    hub.net.ip(&["link", "del", "rx0"]);
    hub.wait_until("its end", |status| {
        status.sources[0].state == SourceState::Ended
    });
    let after = hub.count("all", &["--filter", "tcp"]);
    for reader in [before, after] {
        reader.interrupt();
        let told = reader.wait(LIMIT);
        assert!(told.stdout.contains("\"balanced\":true"), "{}", told.stdout);
    }
    hub.hub.interrupt();
    let end = hub.hub.wait(LIMIT);
    assert!(end.stderr.contains("rx0"), "why it ended: {}", end.stderr);
    assert!(!end.stderr.contains("accepts no rules"), "{}", end.stderr);
}

#[test]
fn who_wants_none_of_what_it_missed_lost_nothing() {
    require_root!();
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let text = "[[group]]\nname = \"small\"\ncredit = 4\n";
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().display().to_string();
    let hub = RunningHub::with(
        "hub-wants",
        "tap:rx0?exclusive&direction=in",
        &["-c", &config],
    );
    let filters = ["tcp port 81", "udp port 4242", "icmp", "udp"];
    let readers: Vec<_> = filters
        .iter()
        .map(|filter| hub.count("small", &["--filter", filter]))
        .collect();
    readers
        .iter()
        .for_each(|reader| reader.signal(Signal::STOP));
    let sent = hub.send(100_000, 40_000);
    readers
        .iter()
        .for_each(|reader| reader.signal(Signal::CONT));
    for (reader, filter) in readers.into_iter().zip(filters) {
        let (account, _) = Account::of(reader);
        let lost = account.number("dropped.overrun");
        match filter {
            "udp" => assert!(lost > 0 && lost < sent, "{filter}: {account:?}"),
            _ => assert_eq!(lost, 0, "{filter}: {account:?}"),
        }
    }
    hub.finish();
}
