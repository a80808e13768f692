// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs receive every packet of a hub, balanced counters, and the end of the capture.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Namespace, Running, require_root};
use rustix::process::Signal;

use crate::support::{LIMIT, build, crate_folder, hub, ringtap, with_library};

const PACKETS: u32 = 30_000;

fn start(program: &Path, socket: &Path, args: &[&str]) -> Running {
    let mut command = with_library(Command::new(program), socket);
    command.args(args);
    Running::start(command)
}

#[test]
fn the_example_counts_every_packet_and_its_counters_balances() {
    require_root!();
    let Some(ringtap) = ringtap() else { return };
    let network = Namespace::with_veth("c_counts");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let device = "tap:rx0?exclusive&direction=in";
    let groups = ["-i", device, "-g", "all", "-g", "own:private"];
    let hub = hub(&ringtap, Some(&network), &socket, &groups);
    let count = build(&crate_folder().join("examples/count.c"));
    let poll = build(&crate_folder().join("tests/library/poll.c"));
    let readers = [
        start(&count, &socket, &["all"]),
        start(&count, &socket, &["own"]),
        start(&count, &socket, &["all", "udp src port 10003"]),
    ];
    for reader in &readers {
        reader.wait_for_stderr("count: reading", LIMIT);
    }
    // At the end, fewer packets wait for the second program than its watermark.
    let polling = [&["all"][..], &["all", "7000"]].map(|args| start(&poll, &socket, args));
    for reader in &polling {
        reader.wait_for_stdout("ready", LIMIT);
    }
    let number = PACKETS.to_string();
    let ringtap = ringtap.to_str().expect("a path of text");
    let args = [
        "send", "-i", "tx0", "--size", "64", "--rate", "50000pps", "--count", &number, "--flows",
        "16", "--stamp",
    ];
    let _sent = network.run(ringtap, &args).success();
    for reader in &polling {
        reader.wait_for_stdout(&format!("{PACKETS} packets\n"), LIMIT);
    }
    let share = format!("\n{} packets", PACKETS / 16);
    let everything = format!("\n{PACKETS} packets");
    let [all, own, some] = readers.map(|reader| {
        let begun = Instant::now();
        // One line a second; the last line before the program ends has all packets.
        while ![&everything, &share]
            .into_iter()
            .any(|it| reader.stdout().contains(it))
        {
            assert!(begun.elapsed() < LIMIT, "{}", reader.stdout());
            std::thread::sleep(Duration::from_millis(50));
        }
        reader.interrupt();
        reader.wait(LIMIT).success().stdout
    });
    for told in [&all, &own] {
        assert!(told.contains(&everything), "{told}");
    }
    for told in [&all, &own, &some] {
        assert!(told.contains("overrun 0), balanced"), "{told}");
    }
    assert!(some.contains(&share), "{some}");
    hub.interrupt();
    for reader in polling {
        let told = reader.wait(LIMIT).success().stdout;
        let end = format!("ended with -1 after {PACKETS} packets, 0 out of order");
        assert!(told.contains(&end), "{told}");
    }
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn the_hub_knows_how_many_packets_a_program_took_of_its_last_batch() {
    let Some(ringtap) = ringtap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let hub = hub(&ringtap, None, &socket, &["-i", "sim:1000pps"]);
    let stops = build(&crate_folder().join("tests/library/stops.c"));
    let reader = start(&stops, &socket, &[]);
    let _ended = reader.wait(LIMIT).success();
    hub.wait_for_stderr("delivered=3 ", LIMIT);
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn kept_batches_stay_readable_until_they_are_released_in_any_order() {
    let Some(ringtap) = ringtap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let device = "sim:20000pps?flows=997&pool=256KiB&chunk=4KiB";
    let hub = hub(&ringtap, None, &socket, &["-i", device]);
    let keeps = build(&crate_folder().join("tests/library/keeps.c"));
    let told = start(&keeps, &socket, &[]).wait(LIMIT).success().stdout;
    assert!(told.contains("all kept"), "{told}");
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn a_hub_that_is_killed_ends_a_poll_loop_with_its_error() {
    require_root!();
    let Some(ringtap) = ringtap() else { return };
    let network = Namespace::with_veth("c_killed");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let hub = hub(&ringtap, Some(&network), &socket, &["-i", "packet:rx0"]);
    let poll = build(&crate_folder().join("tests/library/poll.c"));
    let polling = start(&poll, &socket, &["all"]);
    polling.wait_for_stdout("ready", LIMIT);
    hub.signal(Signal::KILL);
    let told = polling.wait(LIMIT).success().stdout;
    assert!(told.contains("ended with -8 after 0 packets"), "{told}");
}
