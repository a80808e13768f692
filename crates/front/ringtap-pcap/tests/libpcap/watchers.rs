// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with unusual calls print the same over libpcap and over Ringtap: `poll` and odd batches
//! (p0f), a loop that a signal ends (tcpflow), a thread that is cancelled (iftop), packets that the program changes (arpwatch, nmap),
//! packets that it sends (arp-scan, nmap).
//!
//! A program is ready when it reports the probe packets that the tests send.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ringtap_testkit::{Namespace, Running, require_root, require_tool};

use crate::programs::{open_folder, pause, text, watched};
use crate::support::{LIMIT, Tags, exec, frames, prefix};

const CONNECTIONS: u8 = 8;
/// Number of the host in probe packets.
const PROBE: u8 = 99;

/// A program's findings by name: a file, a host, a line.
type Findings = BTreeMap<String, String>;

/// One end of a connection.
#[derive(Clone, Copy)]
struct End {
    net: u8,
    host: u8,
    port: u16,
}

fn frame(from: End, to: End, kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, to.net, to.host, 2, 0, 0, 0, from.net, from.host];
    frame.extend(kind);
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A TCP packet with checksums of zero, as with checksum offload.
fn tcp(from: End, to: End, flags: u8, numbers: [u32; 2], data: &[u8]) -> Vec<u8> {
    const SYN: u8 = 2;
    let options: &[u8] = if flags & SYN != 0 {
        // MSS 1460, SACK permitted, time stamp, nothing, window scale 7.
        b"\x02\x04\x05\xb4\x04\x02\x08\x0a\x00\x00\x03\xe8\x00\x00\x00\x00\x01\x03\x03\x07"
    } else {
        b""
    };
    let header = 20 + options.len();
    let total = u16::try_from(20 + header + data.len()).expect("small");
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([
        0, from.host, 0x40, 0, 64, 6, 0, 0, 10, 0, from.net, from.host,
    ]);
    ip.extend([10, 0, to.net, to.host]);
    ip.extend(from.port.to_be_bytes());
    ip.extend(to.port.to_be_bytes());
    ip.extend(numbers[0].to_be_bytes());
    ip.extend(numbers[1].to_be_bytes());
    ip.extend([
        u8::try_from(header / 4 * 16).expect("small"),
        flags,
        0xfa,
        0xf0,
        0,
        0,
        0,
        0,
    ]);
    ip.extend(options);
    ip.extend(data);
    frame(from, to, [8, 0], &ip)
}

/// All packets of a connection with one HTTP request and its response.
fn connection(host: u8) -> Vec<Vec<u8>> {
    let (client, server) = (
        End {
            net: 1,
            host,
            port: 30_000 + u16::from(host),
        },
        End {
            net: 2,
            host,
            port: 80,
        },
    );
    let question = format!(
        "GET /{host} HTTP/1.1\r\nHost: h{host}.example\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
    );
    let length = 900 * usize::from(host);
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    answer.resize(answer.len() + length, b'a' + host % 26);
    let asked = 101 + u32::try_from(question.len()).expect("small");
    let mut frames = vec![
        tcp(client, server, 0x02, [100, 0], b""),
        tcp(server, client, 0x12, [500, 101], b""),
        tcp(client, server, 0x10, [101, 501], b""),
        tcp(client, server, 0x18, [101, 501], question.as_bytes()),
    ];
    let mut at = 501;
    for part in answer.chunks(1400) {
        frames.push(tcp(server, client, 0x18, [at, asked], part));
        at += u32::try_from(part.len()).expect("small");
        frames.push(tcp(client, server, 0x10, [asked, at], b""));
    }
    frames.push(tcp(client, server, 0x11, [asked, at], b""));
    frames.push(tcp(server, client, 0x11, [at, asked + 1], b""));
    frames
}

/// An ARP request from 10.0.3.HOST for 10.0.3.1.
fn arp(host: u8) -> Vec<u8> {
    let (from, to) = (
        End {
            net: 3,
            host,
            port: 0,
        },
        End {
            net: 3,
            host: 1,
            port: 0,
        },
    );
    let mut question = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 3, host, 10, 0, 3, host];
    question.extend([0, 0, 0, 0, 0, 0, 10, 0, 3, 1]);
    let mut frame = frame(from, to, [8, 6], &question);
    frame[..6].fill(0xff);
    frame
}

/// One program and its packets.
struct Watcher<'a> {
    name: &'a str,
    /// The program's command line, given a folder for its files.
    words: &'a dyn Fn(&Path) -> Vec<String>,
    probe: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    /// Reads the findings from the program's folder and output.
    findings: &'a dyn Fn(&Path, &Running) -> Findings,
    /// Names of findings with this text come from probe packets.
    of_probe: &'a str,
}

/// Runs the program over both libraries at once, on the same packets.
fn finds_the_same(watcher: &Watcher<'_>) {
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth(&format!("pcap_{}", watcher.name));
    let folder = open_folder();
    let start = |over: &str| {
        let own: PathBuf = folder.path().join(over);
        fs::create_dir(&own).expect("a folder");
        let words = (watcher.words)(&own);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let mut command = match over {
            "libpcap" => {
                let mut command = net.command(words[0]);
                command.args(&words[1..]);
                command
            }
            _ => exec(&net, prefix, &words),
        };
        command.current_dir(&own);
        (own, Running::start(command))
    };
    let both = [start("libpcap"), start("ringtap")];
    let found = || {
        both.each_ref()
            .map(|(own, running)| (watcher.findings)(own, running))
    };
    let told = || {
        both.each_ref()
            .map(|(_, running)| running.stdout() + &running.stderr())
    };
    let begun = Instant::now();
    let of_probe = |name: &String| name.contains(watcher.of_probe);
    while !found().iter().all(|one| one.keys().any(of_probe)) {
        assert!(begun.elapsed() < LIMIT, "{:#?}", told());
        net.inject("tx0", &watcher.probe);
        pause(100);
    }
    net.inject("tx0", &watcher.sent);
    let counted = |one: &Findings| -> Findings {
        let rest = one.iter().filter(|(name, _)| !of_probe(name));
        rest.map(|(name, what)| (name.clone(), what.clone()))
            .collect()
    };
    let begun = Instant::now();
    loop {
        let [theirs, ours] = found().each_ref().map(counted);
        if theirs == ours && theirs.len() >= usize::from(CONNECTIONS) {
            break;
        }
        let late = begun.elapsed() > LIMIT;
        assert!(!late, "{theirs:#?}\nover Ringtap: {ours:#?}\n{:#?}", told());
        pause(100);
    }
    for (_, running) in both {
        running.interrupt();
        let _whatever_it_thinks_of_signals = running.wait(LIMIT);
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn connections() -> Vec<Vec<u8>> {
    (1..=CONNECTIONS).flat_map(connection).collect()
}

#[test]
fn p0f_which_polls_knows_the_same_systems() {
    require_root!();
    require_tool!("p0f");
    let findings = |own: &Path, _: &Running| {
        let log = fs::read_to_string(own.join("log")).unwrap_or_default();
        // The program writes a line in several parts.
        let whole = log
            .lines()
            .filter(|line| line.contains("|raw_") || line.contains("|lang="));
        let lines = whole.filter_map(|line| Some(line.split_once("] ")?.1.to_owned()));
        lines.map(|line| (line, String::new())).collect()
    };
    finds_the_same(&Watcher {
        name: "p0f",
        words: &|own| owned(&["p0f", "-i", "rx0", "-o", text(&own.join("log"))]),
        probe: connection(PROBE),
        sent: connections(),
        findings: &findings,
        of_probe: "10.0.1.99",
    });
}

#[test]
fn tcpflow_puts_the_same_streams_together() {
    require_root!();
    require_tool!("tcpflow");
    let findings = |own: &Path, _: &Running| {
        let files = fs::read_dir(own)
            .expect("its folder")
            .map(|file| file.expect("a file").path());
        let flows = files.filter(|path| text(path).contains("-010.000."));
        flows
            .map(|path| {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .expect("text");
                (name.to_owned(), fs::read_to_string(&path).expect("of text"))
            })
            .collect()
    };
    finds_the_same(&Watcher {
        name: "tcpflow",
        words: &|own| owned(&["tcpflow", "-i", "rx0", "-o", text(own)]),
        probe: connection(PROBE),
        sent: connections(),
        findings: &findings,
        of_probe: ".099.",
    });
}

#[test]
fn arpwatch_which_swaps_bytes_in_packets_sees_the_same_stations() {
    require_root!();
    require_tool!("arpwatch");
    let findings = |_: &Path, running: &Running| {
        let said = running.stdout();
        let mails = said
            .split("From: ")
            .filter(|mail| mail.contains("timestamp: "));
        let told = mails.filter_map(|mail| {
            let (facts, _) = mail.split_once("timestamp: ")?;
            let subject = facts.lines().find(|line| line.starts_with("Subject: "))?;
            Some((subject.to_owned(), facts.to_owned()))
        });
        told.collect()
    };
    finds_the_same(&Watcher {
        name: "arpwatch",
        words: &|own| {
            let file = own.join("arp.dat");
            fs::write(&file, "").expect("a file");
            owned(&[
                "arpwatch",
                "-d",
                "-i",
                "rx0",
                "-n",
                "10.0.3.0/24",
                "-f",
                text(&file),
            ])
        },
        probe: vec![arp(PROBE)],
        sent: (1..=CONNECTIONS).map(|number| arp(10 + number)).collect(),
        findings: &findings,
        of_probe: "10.0.3.99",
    });
}

/// A namespace with `rx0`, and one with the other end, which answers at 10.9.0.2 and .7.
fn neighbours(name: &str) -> (Namespace, Namespace) {
    let (near, far) = (
        Namespace::with_veth(name),
        Namespace::new(&format!("{name}_far")),
    );
    near.move_device("tx0", &far);
    near.ip(&["addr", "add", "10.9.0.1/24", "dev", "rx0"]);
    for address in ["10.9.0.2/24", "10.9.0.7/24"] {
        far.ip(&["addr", "add", address, "dev", "tx0"]);
    }
    near.ip(&["link", "set", "rx0", "arp", "on"]);
    far.ip(&["link", "set", "tx0", "arp", "on"]);
    far.ip(&["link", "set", "lo", "up"]);
    (near, far)
}

/// The lines that are the same in each run, over libpcap and over Ringtap.
fn lines_of_both(
    near: &Namespace,
    words: &[&str],
    keep: fn(&str) -> bool,
) -> Option<[Vec<String>; 2]> {
    let mut real = near.command(words[0]);
    real.args(&words[1..]);
    let run = |command: Command| {
        let said = Running::start(command).wait(LIMIT).success().stdout;
        said.lines()
            .filter(|line| keep(line))
            .map(str::to_owned)
            .collect()
    };
    Some([run(real), run(exec(near, prefix()?, words))])
}

#[test]
fn arp_scan_finds_the_same_neighbours() {
    require_root!();
    require_tool!("arp-scan");
    let (near, _far) = neighbours("pcap_arpscan");
    let words = ["arp-scan", "-I", "rx0", "-t", "500", "10.9.0.0/28"];
    let keep = |line: &str| line.starts_with("10.9.0.");
    let Some([theirs, ours]) = lines_of_both(&near, &words, keep) else {
        return;
    };
    assert_eq!(theirs.len(), 2, "{theirs:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn nmap_finds_the_same_ports_and_mends_what_it_was_sent() {
    require_root!();
    require_tool!("nmap");
    let (near, far) = neighbours("pcap_nmap");
    let _open = far.enter(|| TcpListener::bind("10.9.0.2:22").expect("nobody has it"));
    // Both scans need every answer.
    let set = far.run("sysctl", &["-qw", "net.ipv4.icmp_ratelimit=0"]);
    assert!(set.status.success(), "{}", set.stderr);
    let words = [
        "nmap",
        "-n",
        "-sS",
        "-O",
        "--max-os-tries",
        "1",
        "-p",
        "22,23",
        "10.9.0.2",
    ];
    // nmap writes into the ICMP answer that shows the distance.
    let keep = |line: &str| {
        ["22/tcp", "23/tcp", "MAC ", "Network "]
            .iter()
            .any(|begin| line.starts_with(begin))
    };
    let Some([theirs, ours]) = lines_of_both(&near, &words, keep) else {
        return;
    };
    assert_eq!(theirs.len(), 4, "{theirs:?}");
    assert_eq!(ours, theirs);
}

/// The hosts that iftop lists; it ends its reader by `pthread_cancel`.
fn hosts(net: &Namespace, command: Command) -> Vec<String> {
    let mut iftop = Running::start(command);
    iftop.wait_for_stderr("MAC address is", LIMIT);
    watched(net);
    // Its time passes with packets.
    let begun = Instant::now();
    while iftop.is_running() && begun.elapsed() < LIMIT {
        net.inject("tx0", &frames(20, Tags::None));
        pause(100);
    }
    let end = iftop.wait(LIMIT);
    assert!(end.status.success(), "{:?}\n{}", end.status, end.stderr);
    let words = end.stdout.split_whitespace();
    let mut hosts: Vec<_> = words.filter(|word| word.starts_with("10.0.0.")).collect();
    hosts.sort_unstable();
    hosts.into_iter().map(str::to_owned).collect()
}

#[test]
fn iftop_which_cancels_its_reader_ends_and_lists_the_same_hosts() {
    require_root!();
    require_tool!("iftop");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_iftop");
    let words = ["iftop", "-t", "-n", "-p", "-s", "4", "-i", "rx0"];
    let mut real = net.command(words[0]);
    real.args(&words[1..]);
    let expected = hosts(&net, real);
    assert!(expected.len() >= 2, "{expected:?}");
    // iftop asks the kernel about its interface, so a name of Ringtap's is none.
    for via in ["tap", "packet"] {
        let mut command = exec(&net, prefix, &words);
        command.env("RINGTAP_VIA", via);
        assert_eq!(hosts(&net, command), expected, "{via}");
    }
}
