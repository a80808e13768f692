// SPDX-License-Identifier: MIT OR Apache-2.0
//! tcpdump over Ringtap writes packets of several CPUs in time order, as over libpcap.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ringtap_testkit::{
    LaneOrder, Namespace, Running, require_root, require_tool, say_skipped, send_on, usable_cpus,
};

use crate::support::{LIMIT, exec, prefix};

/// The packets of a pcap file with times in nanoseconds that may still be written.
fn order(file: &Path) -> LaneOrder {
    let bytes = fs::read(file).unwrap_or_default();
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut order = LaneOrder::default();
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let words: Vec<_> = head
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        let Some((frame, after)) = usize::try_from(words[2])
            .ok()
            .and_then(|length| after.split_at_checked(length))
        else {
            break;
        };
        order.add(
            u64::from(words[0]) * 1_000_000_000 + u64::from(words[1]),
            frame,
        );
        rest = after;
    }
    order
}

#[test]
fn tcpdump_writes_senders_on_changing_cpus_in_order() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let cpus = usable_cpus();
    if cpus.len() < 2 {
        return say_skipped("there is one CPU, so one lane");
    }
    let (net, folder) = (Namespace::with_veth("pcap_order"), tempfile::tempdir());
    let file = folder.as_ref().expect("a folder").path().join("all.pcap");
    let words = [
        "tcpdump",
        "-Z",
        "root",
        "-U",
        "-ni",
        "tap:rx0",
        "--time-stamp-precision=nano",
        "-w",
        file.to_str().expect("text"),
        "ether proto 0x88b5",
    ];
    let mut command = exec(&net, prefix, &words);
    // Longer than the test may last: no packet comes because its window is over, and none is late.
    command.env("RINGTAP_IN_ORDER", "86400000");
    let dump = Running::start(command);
    dump.wait_for_stderr("listening on", LIMIT);
    let senders = [
        send_on(&net, 0, &cpus),
        send_on(&net, 1, &cpus[..1]),
        send_on(&net, 2, &cpus[1..2]),
    ];
    let begun = Instant::now();
    while !order(&file).has_ended(senders.len()) {
        assert!(
            begun.elapsed() < LIMIT,
            "ends are missing: {}",
            dump.stderr()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(senders);
    dump.interrupt();
    let told = dump.wait(LIMIT).success().stderr;
    assert!(told.contains("\n0 packets dropped by kernel"), "{told}");
    order(&file).check();
}
