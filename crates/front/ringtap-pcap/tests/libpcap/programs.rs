// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packaged programs read through Ringtap and find every packet.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Namespace, Running, require_root, require_tool};

use crate::same::{build, run};
use crate::support::{
    LIMIT, Record, Tags, assert_same, exec, frames, hub, prefix, records, whole_records,
};

pub(crate) const SENT: u16 = 300;

/// A folder that programs can write to after dropping root.
pub(crate) fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), everybody).expect("ours");
    folder
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

pub(crate) fn expected(tags: Tags) -> Vec<Record> {
    let sent = frames(SENT, tags);
    sent.iter().map(|frame| Record::of(frame)).collect()
}

pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Waits until a program has printed `word` and captures.
pub(crate) fn begun(net: &Namespace, program: Running, word: &str) -> Running {
    program.wait_for_stderr(word, LIMIT);
    watched(net);
    program
}

/// Waits until Ringtap, or a packet socket with its filter, captures `rx0`.
pub(crate) fn watched(net: &Namespace) {
    // libpcap blocks all packets while it changes a filter.
    const NOTHING: &str = "bpf filter (1):  0x06 0 0 0,";
    let sockets = || net.run("ss", &["-0", "-b", "-n"]).success().stdout;
    let is_watched = |told: &str| told.contains("bpf filter (") && !told.contains(NOTHING);
    let begun = Instant::now();
    while !net.has_xdp("rx0") && !is_watched(&sockets()) {
        assert!(begun.elapsed() < LIMIT, "nobody captures: {}", sockets());
        pause(50);
    }
    // Nothing outside shows when the filter of Ringtap's reader is in force; it takes milliseconds.
    pause(700);
}

#[test]
fn tcpdump_gives_up_root_sets_its_filter_and_rotates_files() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_rotate");
    let folder = open_folder();
    let pattern = folder.path().join("%s.pcap");
    // Without -Z, tcpdump drops root before it sets its filter.
    let words = [
        "tcpdump",
        "-ni",
        "rx0",
        "-U",
        "-G",
        "1",
        "-w",
        text(&pattern),
        "udp",
    ];
    let program = Running::start(exec(&net, prefix, &words));
    let dump = begun(&net, program, "listening on");
    let sent = frames(SENT, Tags::None);
    let files = || {
        let files = fs::read_dir(folder.path()).expect("a folder");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    };
    for part in sent.chunks(100) {
        net.inject("tx0", part);
        pause(1100);
    }
    let wanted = expected(Tags::None).into_iter();
    let wanted: Vec<_> = wanted
        .filter(|record| record.data[12..14] == [8, 0])
        .collect();
    let begun = Instant::now();
    let written = || -> usize { files().iter().map(|file| whole_records(file)).sum() };
    while written() < wanted.len() && begun.elapsed() < LIMIT {
        pause(50);
    }
    dump.interrupt();
    let told = dump.wait(LIMIT).success().stderr;
    assert!(told.contains("rx0 is captured by tap:rx0"), "{told}");
    assert!(files().len() >= 3, "{:?}", files());
    let found: Vec<_> = files().iter().flat_map(|file| records(file)).collect();
    assert_same(&found, &wanted, &told);
}

/// Compares the output of each program over libpcap and over Ringtap.
#[test]
fn what_is_printed_is_what_libpcap_gives() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ngrep");
    let Some(prefix) = prefix() else { return };
    let dump = "tcpdump -nnvvXetl -c 60 -i rx0 udp or arp";
    let shark = "tshark -lnqi rx0 -c 60 -T fields -e frame.len -e eth.src -e ip.id -e arp.opcode \
                 -e udp.srcport -e data.data";
    let grep = "ngrep -lqxd rx0 -n 20 . udp";
    for (words, ready) in [
        (dump, "listening on"),
        (shark, "Capturing on"),
        (grep, "filter:"),
    ] {
        let words: Vec<_> = words.split_whitespace().collect();
        // A new namespace: the capture of the previous program may end later.
        let net = Namespace::with_veth("pcap_printed");
        let mut real = net.command(words[0]);
        real.args(&words[1..]);
        let [real, ours] = [real, exec(&net, prefix, &words)].map(|command| {
            let program = Running::start(command);
            match words[0] {
                "ngrep" => program.wait_for_stdout(ready, LIMIT),
                _ => program.wait_for_stderr(ready, LIMIT),
            }
            watched(&net);
            net.inject("tx0", &frames(SENT, Tags::None));
            program.wait(LIMIT).success().stdout
        });
        assert!(real.lines().count() >= 20, "{real}");
        assert_eq!(ours, real, "{words:?}");
    }
}

#[test]
fn tcpdump_stops_after_its_count() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_count");
    let words = ["tcpdump", "-nlc", "7", "-i", "tap:rx0", "arp"];
    let program = Running::start(exec(&net, prefix, &words));
    let dump = begun(&net, program, "listening on");
    net.inject("tx0", &frames(SENT, Tags::None));
    let end = dump.wait(LIMIT).success();
    assert_eq!(end.stdout.lines().count(), 7, "{}", end.stdout);
    assert!(end.stderr.contains("7 packets captured"), "{}", end.stderr);
}

#[test]
fn the_hub_knows_how_many_packets_a_program_took_of_its_last_batch() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("stops");
    let net = Namespace::with_veth("pcap_last_batch");
    let folder = open_folder();
    let socket = folder.path().join("hub.sock");
    let hub = hub(&net, prefix, &socket, &["-i", "tap:rx0?direction=in"]);
    let cases = [
        ("hub:all", "loop"),
        ("hub:all?private", "loop"),
        ("hub:all", "next"),
    ];
    for (number, (device, case)) in cases.into_iter().enumerate() {
        let mut program = exec(&net, prefix, &[text(&built)]);
        program.env("RINGTAP_SOCKET", &socket);
        run(&net, program, device, case);
        let begun = Instant::now();
        while hub.stderr().matches(" left ").count() <= number {
            assert!(begun.elapsed() < LIMIT, "{}", hub.stderr());
            pause(20);
        }
        let told = hub.stderr();
        assert_eq!(
            told.matches("delivered=3 ").count(),
            number + 1,
            "{case}: {told}"
        );
    }
    let _built = fs::remove_file(built);
}

#[test]
fn dumpcap_records_and_lists_the_hubs_groups() {
    require_root!();
    require_tool!("dumpcap");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_dumpcap");
    let folder = open_folder();
    let socket = folder.path().join("hub.sock");
    let hub = hub(
        &net,
        prefix,
        &socket,
        &["-i", "tap:rx0", "-g", "rec", "-g", "web:udp"],
    );
    let at_hub = |words: &[&str]| {
        let mut command = exec(&net, prefix, words);
        command.env("RINGTAP_SOCKET", &socket);
        command
    };
    let listed = Running::start(at_hub(&["dumpcap", "-D"]))
        .wait(LIMIT)
        .success()
        .stdout;
    assert!(listed.contains("hub:rec"), "{listed}");
    assert!(
        listed.contains("hub:web") && listed.contains("lo"),
        "{listed}"
    );
    if ringtap_testkit::tool_exists("tshark") {
        let shown = Running::start(at_hub(&["tshark", "-D"])).wait(LIMIT);
        let shown = shown.success().stdout;
        for device in ["hub:rec", "hub:web", "rx0"] {
            assert!(shown.contains(device), "{shown}");
        }
    }
    // By the group's name, and by the interface that the hub captures.
    for device in ["hub:rec", "rx0"] {
        let file = folder.path().join(format!("{device}.pcap"));
        let words = [
            "dumpcap",
            "-P",
            "-i",
            device,
            "-w",
            text(&file),
            "-c",
            "300",
        ];
        let dump = begun(&net, Running::start(at_hub(&words)), "File:");
        net.inject("tx0", &frames(SENT, Tags::Some));
        let told = dump.wait(LIMIT).success().stderr;
        assert_same(&records(&file), &expected(Tags::Some), &told);
        let said = told.contains("rx0 is read through hub:rec");
        assert_eq!(said, device == "rx0", "{told}");
    }
    hub.interrupt();
    let told = hub.wait(LIMIT).success().stdout;
    assert!(told.contains(": balanced"), "{told}");
}

#[test]
fn tshark_reads_through_its_dumpcap() {
    require_root!();
    require_tool!("tshark", "dumpcap");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_tshark");
    let words = [
        "tshark",
        "-lni",
        "rx0",
        "-c",
        "200",
        "-f",
        "udp",
        "-T",
        "fields",
        "-e",
        "udp.srcport",
    ];
    let program = Running::start(exec(&net, prefix, &words));
    let shark = begun(&net, program, "Capturing on");
    net.inject("tx0", &frames(SENT, Tags::None));
    let end = shark.wait(LIMIT).success();
    let ports = expected(Tags::None);
    let ports = ports.iter().filter(|record| record.data[12..14] == [8, 0]);
    let ports =
        ports.map(|record| u16::from_be_bytes([record.data[34], record.data[35]]).to_string());
    let ports: Vec<_> = ports.take(200).collect();
    let found: Vec<_> = end.stdout.lines().collect();
    assert_eq!(found, ports, "{}", end.stderr);
}

#[test]
fn ngrep_finds_what_it_looks_for() {
    require_root!();
    require_tool!("ngrep");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_ngrep");
    let words = ["ngrep", "-lqtd", "tap:rx0", "-n", "3", "needle", "udp"];
    let grep = Running::start(exec(&net, prefix, &words));
    grep.wait_for_stdout("filter:", LIMIT);
    watched(&net);
    let mut sent = frames(100, Tags::None);
    for number in [20, 30, 41, 50] {
        sent[number].truncate(42);
        sent[number].extend(b"a needle in hay   ");
        let length = u16::try_from(sent[number].len() - 14).expect("small");
        sent[number][16..18].copy_from_slice(&length.to_be_bytes());
        sent[number][38..40].copy_from_slice(&(length - 20).to_be_bytes());
    }
    net.inject("tx0", &sent);
    let end = grep.wait(LIMIT).success();
    assert_eq!(
        end.stdout.matches("a needle in hay").count(),
        3,
        "{}",
        end.stdout
    );
}

#[test]
fn softflowd_exports_flows_to_nfcapd() {
    require_root!();
    require_tool!("softflowd", "nfcapd", "nfdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_flows");
    let folder = open_folder();
    let flows = folder.path().join("flows");
    fs::create_dir(&flows).expect("a folder");
    let collector = net.spawn(
        "nfcapd",
        &[
            "-w",
            text(&flows),
            "-b",
            "127.0.0.1",
            "-p",
            "9995",
            "-t",
            "60",
        ],
    );
    let sockets = || net.run("ss", &["-Hun", "-a"]).success().stdout;
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LIMIT, "{what}: {}", sockets());
            pause(100);
        }
    };
    until("the collector listens", &|| sockets().contains(":9995"));
    // The daemon's chroot folder, which a service would create at boot.
    fs::create_dir_all("/run/softflowd/chroot").expect("root may make it");
    let control = folder.path().join("control");
    let pid = folder.path().join("pid");
    // The daemon forks after it has opened the device.
    let words = [
        "softflowd",
        "-i",
        "tap:rx0",
        "-n",
        "127.0.0.1:9995",
        "-v",
        "9",
        "-c",
        text(&control),
        "-p",
        text(&pid),
    ];
    let started = Running::start(exec(&net, prefix, &words))
        .wait(LIMIT)
        .success();
    watched(&net);
    net.inject("tx0", &frames(SENT, Tags::None));
    let ask = |what: &str| {
        let mut command = net.command("softflowctl");
        command.args(["-c", text(&control), what]);
        Running::start(command).wait(LIMIT).stdout
    };
    // The answer may be late.
    let answered_by = Instant::now() + LIMIT;
    loop {
        let told = ask("statistics");
        if told.contains("Packets processed: 273") {
            break;
        }
        assert!(Instant::now() < answered_by, "{told}{}", started.stderr);
        pause(200);
    }
    let number = fs::read_to_string(&pid).expect("its process");
    let running = Path::new("/proc").join(number.trim()).join("exe");
    let _ended = ask("shutdown");
    // A zombie counts as ended.
    until("it ends", &|| fs::read_link(&running).is_err());
    // The collector's queue is the first number of its line.
    let is_empty = |line: &str| line.split_whitespace().nth(1) == Some("0");
    until("all is collected", &|| sockets().lines().all(is_empty));
    pause(500);
    collector.interrupt();
    let _collected = collector.wait(LIMIT);
    let mut command = Command::new("nfdump");
    command.args([
        "-R",
        text(&flows),
        "-q",
        "-o",
        "fmt:%sp %pkt",
        "-O",
        "tstart",
    ]);
    let listed = Running::start(command).wait(LIMIT).success().stdout;
    let mut ports: Vec<u16> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    ports.sort_unstable();
    let wanted = (0..SENT)
        .filter(|number| number % 11 != 10)
        .map(|number| 5000 + number);
    assert_eq!(ports, wanted.collect::<Vec<_>>(), "{listed}");
}

/// Debian's own Python, which has Debian's modules.
fn python(modules: &str) -> bool {
    let tried = Command::new("/usr/bin/python3")
        .args(["-c", &format!("import {modules}")])
        .output();
    let there = tried.is_ok_and(|output| output.status.success());
    if !there {
        ringtap_testkit::say_skipped(&format!("needs Python's {modules}"));
    }
    there
}

#[test]
fn python_reads_through_pcapy() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    if !python("pcapy") {
        return;
    }
    const SCRIPT: &str = "
import pcapy, sys
p = pcapy.open_live('tap:rx0', 100, 1, 100)
p.setfilter('udp dst port 1005')
print('ready', file=sys.stderr, flush=True)
for _ in range(20):
    header, data = p.next()
    while header is None:
        header, data = p.next()
    print(header.getlen(), header.getcaplen(), data[:header.getcaplen()].hex())
";
    let net = Namespace::with_veth("pcap_pcapy");
    let words = ["/usr/bin/python3", "-c", SCRIPT];
    let program = Running::start(exec(&net, prefix, &words));
    let reader = begun(&net, program, "ready");
    net.inject("tx0", &frames(SENT, Tags::None));
    let end = reader.wait(LIMIT).success();
    let sent = frames(SENT, Tags::None);
    let wanted = sent
        .iter()
        .filter(|frame| frame[12..14] == [8, 0] && frame[36..38] == 1005_u16.to_be_bytes());
    for (line, frame) in end.stdout.lines().zip(wanted) {
        let cut = &frame[..frame.len().min(100)];
        let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(line, format!("{} {} {hex}", frame.len(), cut.len()));
    }
    assert_eq!(end.stdout.lines().count(), 20, "{}", end.stderr);
}

#[test]
fn python_sniffs_through_scapy_which_loads_libpcap_by_name() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    if !python("scapy.all") {
        return;
    }
    const SCRIPT: &str = "
import sys, threading
from scapy.all import conf, sniff
conf.use_pcap = True
from scapy.arch.libpcap import L2pcapListenSocket
socket = L2pcapListenSocket(iface='rx0', filter='udp dst port 1005')
print('ready', file=sys.stderr, flush=True)
for packet in sniff(opened_socket=socket, count=15, timeout=50):
    print(packet.sport)
";
    let net = Namespace::with_veth("pcap_scapy");
    let words = ["/usr/bin/python3", "-c", SCRIPT];
    let program = Running::start(exec(&net, prefix, &words));
    let reader = begun(&net, program, "ready");
    net.inject("tx0", &frames(SENT, Tags::None));
    let end = reader.wait(LIMIT).success();
    assert!(
        end.stderr.contains("rx0 is captured by tap:rx0"),
        "{}",
        end.stderr
    );
    let wanted = (0..SENT).filter(|number| number % 8 == 5 && number % 11 != 10);
    let wanted: Vec<_> = wanted
        .take(15)
        .map(|number| (5000 + number).to_string())
        .collect();
    assert_eq!(
        end.stdout.lines().collect::<Vec<_>>(),
        wanted,
        "{}",
        end.stderr
    );
}
