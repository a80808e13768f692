// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder's counters where not all that it took reaches a file.

use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ringtap_file::FileReader;
use ringtap_testkit::{Finished, LIMIT, Namespace, Running, require_root, require_tool};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
const PACKETS: u32 = 5_000;
const PACKET_BYTES: u32 = 1_000;

/// A pcap file of equal packets.
fn write_capture(path: &Path) {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for number in 0..PACKETS {
        bytes.extend(words(&[number, 0, PACKET_BYTES, PACKET_BYTES]));
        bytes.resize(bytes.len() + 1_000, 7);
    }
    fs::write(path, bytes).expect("a file of the test");
}

/// Runs `script` in a mount namespace of its own; `$1` is ringtap, `$2` the folder.
fn run(folder: &TempDir, script: &str) -> Finished {
    write_capture(&folder.path().join("in.pcap"));
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-c",
        script,
        "bash",
    ]);
    command.arg(BINARY).arg(folder.path());
    Running::start(command).wait(LIMIT)
}

#[test]
fn a_full_disk_counts_as_delivered_what_the_file_holds() {
    require_root!();
    let tmpfs = r#"mount -t tmpfs -o size=700k tmpfs "$2/full""#;
    let ext4 = r#"truncate -s 5M "$2/disk" && mkfs.ext4 -qF "$2/disk" && mount -o loop "$2/disk" "$2/full""#;
    for (mount, flag) in [(tmpfs, ""), (ext4, "--direct-io")] {
        let folder = TempDir::new().expect("a folder");
        let script = format!(
            r#"mkdir "$2/full"; {mount} || exit 99
               "$1" record -r "$2/in.pcap" -w "$2/full/out.pcapng" --json --quiet {flag}; status=$?
               cp "$2/full/out.pcapng" "$2/"; exit $status"#
        );
        let end = run(&folder, &script);
        let counters = require_true_counters(&folder, &end);
        let lost = counters["dropped"]["not_written"].as_u64();
        assert!(lost > Some(0), "{counters}");
        assert!(
            end.stdout.contains("lost in the write buffer"),
            "{}",
            end.stderr
        );
    }
}

/// The counters are exactly those of the packets in the files below the folder; returns them.
fn require_true_counters(folder: &TempDir, end: &Finished) -> Value {
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    let counters = end.stdout.lines().last().unwrap_or_default();
    let counters: Value = serde_json::from_str(counters).expect("the counters are the last line");
    let files = fs::read_dir(folder.path()).expect("the folder");
    let files = files.map(|file| file.expect("a file").path());
    let mut kept = 0;
    for file in files.filter(|file| file.extension().is_some_and(|name| name == "pcapng")) {
        // A file for whose first block the disk had no room is empty.
        if file.metadata().is_ok_and(|file| file.len() == 0) {
            continue;
        }
        let mut reader = FileReader::open(&file.display().to_string()).expect("the file is valid");
        while reader.next_packet().expect("whole packets").is_some() {
            kept += 1;
        }
    }
    assert!(kept > 0, "a file is full: {}", end.stderr);
    assert_eq!(counters["delivered"], kept, "{counters} {}", end.stderr);
    assert_eq!(counters["bytes"], kept * PACKET_BYTES, "{counters}");
    assert_eq!(counters["balanced"], true, "{counters}");
    counters
}

#[test]
fn without_a_next_file_the_packets_of_the_last_one_are_counted() {
    require_root!();
    // Files for the folder itself and for two recordings; then disks that are full in a file, at its end
    // and at the beginning of the next one.
    for disk in [
        "nr_inodes=3",
        "size=100k",
        "size=200k",
        "size=204k",
        "size=208k",
        "size=212k",
    ] {
        let folder = TempDir::new().expect("a folder");
        let script = format!(
            r#"mkdir "$2/few"; mount -t tmpfs -o {disk} tmpfs "$2/few" || exit 99
               "$1" record -r "$2/in.pcap" -w "$2/few/out.pcapng" -C 100kB --json --quiet; status=$?
               cp "$2/few"/* "$2/"; exit $status"#
        );
        let _counters = require_true_counters(&folder, &run(&folder, &script));
    }
}

#[test]
fn a_folder_that_is_moved_away_or_may_not_be_written_ends_a_recording_with_true_counters() {
    require_root!();
    let lose = [
        (r#"mv "$2/few" "$2/gone""#, "$2/gone"),
        (r#"chmod a-w "$2/few""#, "$2/few"),
    ];
    for (lose, then) in lose {
        let folder = TempDir::new().expect("a folder");
        // The recorder has its first file when the folder is lost, and reads the rest afterwards. As
        // nobody, because root may write everywhere.
        let script = format!(
            r#"install -m 755 "$1" "$2/ringtap"; chmod 755 "$2"; install -d -o nobody "$2/few"
               {{ head -c 50000 "$2/in.pcap"
                  until ls "$2/few"/*.pcapng; do sleep 0.05; done >&2
                  {lose}; tail -c +50001 "$2/in.pcap"; }} |
               setpriv --reuid nobody --clear-groups "$2/ringtap" record -r - -w "$2/few/out.pcapng" \
                   -C 100kB --json --quiet; status=$?
               cp "{then}"/* "$2/"; exit $status"#
        );
        let end = run(&folder, &script);
        assert!(end.stderr.contains("cannot be created"), "{}", end.stderr);
        require_true_counters(&folder, &end);
    }
}

#[test]
fn a_pipe_that_is_closed_ends_the_recording_quietly() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    let end = run(
        &folder,
        r#""$1" record -r "$2/in.pcap" -w - --quiet | head -c 1000 | wc -c
           exit "${PIPESTATUS[0]}""#,
    );
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert_eq!(end.stdout.trim(), "1000");
    assert!(!end.stderr.contains("ringtap:"), "{}", end.stderr);
    assert!(end.stderr.contains("balanced: "), "{}", end.stderr);
}

#[test]
fn signals_begin_the_next_file_and_write_what_waits_and_each_file_gets_its_command() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, done) = (path("t.pcapng"), path("done"));
    let command_text = format!("echo >>{done}");
    let mut command = Command::new(BINARY);
    command.args([
        "record",
        "-q",
        "-i",
        "sim:1000pps",
        "-w",
        &file,
        "-C",
        "1GB",
    ]);
    command.args(["-z", &command_text]);
    let recorder = Running::start(command);
    let files = || {
        let entries = fs::read_dir(folder.path()).expect("the folder");
        let names = entries
            .flatten()
            .map(|one| one.path().display().to_string());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".pcapng")).collect();
        names.sort();
        names
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < LIMIT, "{what}: {:?}", files());
            sleep(Duration::from_millis(20));
        }
    };
    until("the first file", &|| files().len() == 1);
    recorder.signal(Signal::USR2);
    until("the second file", &|| files().len() == 2);
    until("the command for the first file", &|| {
        fs::read_to_string(&done).is_ok_and(|text| text.trim() == files()[0])
    });
    recorder.interrupt();
    let _end = recorder.wait(LIMIT).success();
    let told = fs::read_to_string(&done).expect("the command ran");
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        files(),
        "one line for each file"
    );
}

/// Packets in the files of the folder whose names end so, in the order of the names.
fn packets_in(folder: &Path, ending: &str) -> Vec<u64> {
    let files = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    names.retain(|name| name.display().to_string().ends_with(ending));
    names.sort();
    let count = |name: &PathBuf| {
        let mut reader = FileReader::open(&name.display().to_string()).expect("the file is valid");
        let mut count = 0;
        while reader.next_packet().expect("whole packets").is_some() {
            count += 1;
        }
        count
    };
    names.iter().map(count).collect()
}

#[test]
fn criteria_of_dumpcap_end_files_and_the_recording() {
    let folder = TempDir::new().expect("a folder");
    let mut command = Command::new(BINARY);
    command.args([
        "record",
        "-i",
        "sim:max",
        "-a",
        "files:3",
        "-b",
        "packets:1000",
        "-w",
    ]);
    command.arg(folder.path().join("t.pcap.zst"));
    let end = Running::start(command).wait(LIMIT).success();
    assert_eq!(packets_in(folder.path(), ".pcap.zst"), [1_000; 3]);
    assert!(
        end.stderr.contains("neither counters nor directions"),
        "{}",
        end.stderr
    );
}

#[test]
fn a_ring_leaves_the_space_on_disk_that_it_was_told_to() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    let end = run(
        &folder,
        r#"mkdir "$2/disk"; mount -t tmpfs -o size=4m tmpfs "$2/disk" || exit 99
           "$1" record -r "$2/in.pcap" -w "$2/disk/t.pcapng" -C 200kB --min-free 50% --json --quiet || exit 98
           df --output=pcent "$2/disk" | tail -1 >&2; cp "$2/disk"/* "$2/"
           "$1" record -r "$2/in.pcap" -w "$2/disk/t.pcapng" -C 200kB --min-free 50% --at-limit stop"#,
    );
    let kept = packets_in(folder.path(), ".pcapng");
    assert!((5..=11).contains(&kept.len()), "{kept:?} {}", end.stderr);
    let used: u64 = end
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_suffix('%')?.parse().ok())
        .expect("df");
    assert!((25..=51).contains(&used), "{used} %");
    assert!(
        end.stderr.contains("used up their space") || end.stderr.contains("no room"),
        "{}",
        end.stderr
    );
}

#[test]
fn a_signal_is_an_event_that_writes_what_came_before() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("t.pcapng");
    let mut command = Command::new(BINARY);
    command.args([
        "record",
        "-q",
        "--json",
        "-i",
        "sim:1000pps",
        "--before",
        "1000",
        "-w",
    ]);
    command.arg(&file);
    let recorder = Running::start(command);
    let size = || fs::metadata(&file).map_or(0, |file| file.len());
    let until = |is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < LIMIT, "{} bytes", size());
            sleep(Duration::from_millis(20));
        }
    };
    until(&|| size() > 0);
    let head = size();
    until(&|| {
        recorder.signal(Signal::USR2);
        size() > head
    });
    recorder.interrupt();
    let end = recorder.wait(LIMIT).success();
    let counters: Value = end
        .stdout
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .expect("counters");
    let events = end
        .stdout
        .lines()
        .find(|line| line.contains("packets_outside"))
        .expect("events");
    let events: Value = serde_json::from_str(events).expect("JSON");
    let kept = packets_in(folder.path(), ".pcapng");
    let outside = events["packets_outside"].as_u64().expect("a number");
    assert_eq!(
        counters["delivered"].as_u64(),
        Some(kept[0] + outside),
        "{events} {counters}"
    );
    assert!(kept[0] > 0);
}

#[test]
fn a_copy_of_a_file_or_pipe_says_what_it_leaves_out() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    let end = run(
        &folder,
        r#"cd "$2"; "$1" record -r in.pcap -w a.pcapng >/dev/null; echo next >&2
           "$1" record -r a.pcapng -w b.pcapng >/dev/null; echo next >&2
           cat a.pcapng | "$1" record -r - -w c.pcapng >/dev/null; echo next >&2
           "$1" record -qr a.pcapng -w d.pcapng >/dev/null"#,
    );
    let notes: Vec<_> = end.stderr.split("next").collect();
    let says = notes
        .iter()
        .map(|note| note.contains("comments, interface names"));
    assert_eq!(
        says.collect::<Vec<_>>(),
        [false, true, true, false],
        "with -q, nothing is said: {}",
        end.stderr
    );
}

/// By time, by number, by size, and by signals.
#[test]
fn direct_io_begins_files_under_traffic_and_they_have_all_packets() {
    require_root!();
    require_tool!("capinfos", "tcpdump");
    let net = Namespace::with_veth("record-direct");
    let traffic = "send -q -i tx0 --size 1000 --rate 20kpps -c 40000";
    for criterion in ["-G 1", "-b packets:7000", "-b filesize:5000", "-C 1GB"] {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("t.pcapng").display().to_string();
        let words =
            format!("record -q --json -i tap:rx0?direction=in --direct-io {criterion} -w {path}");
        let mut recorder = net.command(BINARY);
        recorder.args(words.split(' '));
        let recorder = Running::start(recorder);
        let begun = Instant::now();
        while fs::read_dir(folder.path()).expect("the folder").count() == 0 {
            assert!(begun.elapsed() < LIMIT, "{}", recorder.stderr());
            sleep(Duration::from_millis(20));
        }
        let mut sender = net.command(BINARY);
        sender.args(traffic.split(' '));
        let mut sender = Running::start(sender);
        while sender.is_running() {
            sleep(Duration::from_millis(300));
            if criterion == "-C 1GB" {
                recorder.signal(Signal::USR2);
            }
        }
        recorder.interrupt();
        let end = recorder.wait(LIMIT).success();
        let counters = end.stdout.lines().last().unwrap_or_default();
        let counters: Value = serde_json::from_str(counters).expect("the counters");
        let told = format!("{criterion}: {counters}");
        let packets = packets_in(folder.path(), ".pcapng");
        assert!(packets.len() > 2, "{told} {packets:?}");
        assert_eq!(counters["delivered"], packets.iter().sum::<u64>(), "{told}");
        assert_eq!(counters["balanced"], true, "{told}");
        // What other programs find in the files, in the order of their names.
        let found = net.run(
            "bash",
            &["-c", r#"cd "$1"; set -e; for file in *; do
                 tcpdump -qnr "$file" 2>/dev/null | wc -l; capinfos -McT "$file" | tail -1 | cut -f2; done"#,
              "bash", &folder.path().display().to_string()],
        );
        let found = found.success().stdout;
        let twice: Vec<_> = packets
            .iter()
            .flat_map(|count| [count.to_string(), count.to_string()])
            .collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), twice, "{told}");
    }
}

/// Packets that are recorded past the page cache are those of a usual recording, also while files rotate and
/// signals flush the buffer.
#[test]
fn direct_io_writes_the_same_packets() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    let end = run(
        &folder,
        r#"cd "$2"; "$1" record -qr in.pcap --direct-io -w one.pcapng >/dev/null || exit 1
           "$1" record -qr in.pcap -w two.pcapng >/dev/null || exit 1
           cmp <(tail -c +300 one.pcapng | head -c 5000000) <(tail -c +300 two.pcapng | head -c 5000000) || exit 2
           "$1" record -q --json -i sim:20kpps --duration 3 -C 3MB -W 2 --direct-io -w s.pcapng >counters &
           for turn in 1 2 3 4 5; do sleep 0.4; kill -USR1 $!; kill -USR2 $!; done
           wait $! || exit 3
           ls s_*.pcapng | wc -l"#,
    );
    let told = format!("{}{}", end.stdout, end.stderr);
    assert!(end.status.success(), "{told}");
    assert_eq!(end.stdout.trim(), "2", "{told}");
    let counters = fs::read_to_string(folder.path().join("counters")).expect("counters");
    let counters: Value = serde_json::from_str(counters.lines().last().unwrap_or_default())
        .expect("the counters are the last line");
    assert_eq!(counters["balanced"], true, "{counters}");
    for file in fs::read_dir(folder.path()).expect("the folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|name| name != "pcapng") {
            continue;
        }
        let mut reader = FileReader::open(&path.display().to_string()).expect("valid");
        while reader.next_packet().expect("whole packets").is_some() {}
        assert!(
            reader.interfaces()[0].statistics.is_some(),
            "{}",
            path.display()
        );
    }
}
