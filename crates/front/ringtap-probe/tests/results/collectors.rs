// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPFIX and NetFlow v9 in `nfcapd` of nfdump and `nfacctd` of pmacct.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::ipfix::{FlowExporter, FlowProtocol};
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use rustix::process::Signal;
use serde_json::Value;

use crate::flows::{Totals, flows, records, totals, with_texts};

const UDP: &str = "udp://127.0.0.1:9995";
const EVERY: Duration = Duration::from_secs(600);

#[test]
fn nfcapd_gets_the_packets_and_bytes_of_each_flow() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    for protocol in [
        FlowProtocol::Ipfix,
        FlowProtocol::IpfixUniflow,
        FlowProtocol::NetflowV9,
    ] {
        let net = Namespace::new("nfcapd");
        let folder = tempfile::tempdir().expect("a folder");
        let collector = nfcapd(&net, folder.path());
        let flows = with_texts(flows(200));
        net.enter(|| {
            let mut exporter = exporter(protocol, UDP);
            for part in flows.chunks(7) {
                exporter.write(&records(part)).expect("it is sent");
                drained(&net);
            }
            assert_eq!(exporter.lost(), 0);
        });
        assert_eq!(
            nfdump(collector, folder.path()),
            totals(&flows),
            "{protocol:?}"
        );
    }
}

#[test]
fn tshark_reads_the_application_and_the_host_of_each_flow() {
    require_tool!("tshark");
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = collector.local_addr().expect("it is bound").port();
    let mut exporter = exporter(FlowProtocol::Ipfix, &format!("udp://127.0.0.1:{port}"));
    exporter
        .write(&records(&with_texts(flows(60))))
        .expect("it is sent");
    // Over the loopback interface, what was sent is there.
    collector.set_nonblocking(true).expect("a socket");
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 101_u32] {
        file.extend(word.to_le_bytes());
    }
    let mut message = [0; 2000];
    while let Ok(length) = collector.recv(&mut message) {
        let builder = etherparse::PacketBuilder::ipv4([127, 0, 0, 1], [127, 0, 0, 1], 64);
        let mut packet = Vec::new();
        let written = builder
            .udp(port, port)
            .write(&mut packet, &message[..length]);
        written.expect("memory");
        let length = u32::try_from(packet.len()).expect("small");
        for word in [0, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("messages.pcap");
    fs::write(&path, file).expect("a file");
    let mut command = std::process::Command::new("tshark");
    command.args([
        "-r",
        text(&path),
        "-V",
        "-d",
        &format!("udp.port=={port},cflow"),
    ]);
    let told = Running::start(command).wait(LIMIT).success().stdout;
    let found = |what: &str| {
        told.lines()
            .filter(|line| line.trim().starts_with(what))
            .count()
    };
    assert!(!told.contains("Malformed"), "{told}");
    // Biflows have one record each; a fourth of the flows has one direction, so one record, too.
    assert_eq!(found("ApplicationName: http"), 20, "{told}");
    assert_eq!(found("HTTP Request Host: www."), 20, "{told}");
}

#[test]
fn nfacctd_gets_the_packets_and_bytes_of_each_flow() {
    require_root!();
    require_tool!("nfacctd");
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("nfacctd");
        let folder = tempfile::tempdir().expect("a folder");
        let printed = folder.path().join("printed");
        let config = folder.path().join("config");
        let lines = format!(
            "nfacctd_ip: 127.0.0.1\nnfacctd_port: 9995\nplugins: print\nprint_output: json\n\
             aggregate: proto, src_host, dst_host, src_port, dst_port\nprint_refresh_time: 3600\n\
             print_output_file: {}\nlogfile: {}\n",
            printed.display(),
            folder.path().join("log").display()
        );
        fs::write(&config, lines).expect("a file");
        let collector = net.spawn("nfacctd", &["-f", text(&config)]);
        listening(&net);
        let flows = with_texts(flows(200));
        net.enter(|| {
            let mut exporter = exporter(protocol, UDP);
            for part in flows.chunks(7) {
                exporter.write(&records(part)).expect("it is sent");
                drained(&net);
            }
        });
        collector.signal(Signal::INT);
        let _ended = collector.wait(LIMIT);
        let mut got = Totals::new();
        for line in fs::read_to_string(&printed)
            .expect("nfacctd wrote it")
            .lines()
        {
            let line: Value = serde_json::from_str(line).expect("JSON");
            add(
                &mut got,
                &line,
                [
                    "ip_proto", "ip_src", "ip_dst", "port_src", "port_dst", "packets", "bytes",
                ],
            );
        }
        assert_eq!(got, totals(&flows), "{protocol:?}");
    }
}

/// Messages are the same over TCP, which neither collector speaks: the test passes them on.
#[test]
fn a_tcp_session_after_a_break_is_one_that_nfcapd_understands() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    let net = Namespace::new("ipfix_tcp");
    let folder = tempfile::tempdir().expect("a folder");
    let collector = nfcapd(&net, folder.path());
    let flows = flows(90);
    let (probes, rest) = flows.split_at(1);
    net.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:4739").expect("a free port");
        let mut exporter = exporter(FlowProtocol::Ipfix, "tcp://127.0.0.1:4739");
        exporter.write(&records(&flows)).expect("it is sent");
        drop(listener.accept().expect("the exporter connects"));
        listener.set_nonblocking(true).expect("a socket");
        let again = || listener.accept().map(|(session, _)| session).ok();
        let mut session = patiently("the exporter connects again", || {
            let _may_break = exporter.write(&records(probes));
            again()
        });
        exporter.write(&records(rest)).expect("it is sent");
        drop(exporter);
        session.set_nonblocking(false).expect("a socket");
        let mut bytes = Vec::new();
        session.read_to_end(&mut bytes).expect("a stream");
        let relay = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut left = bytes.as_slice();
        while let [_, _, high, low, ..] = *left {
            let (message, others) = left.split_at(u16::from_be_bytes([high, low]).into());
            relay
                .send_to(message, "127.0.0.1:9995")
                .expect("it is sent");
            drained(&net);
            left = others;
        }
    });
    let mut got = nfdump(collector, folder.path());
    got.retain(|way, _| !totals(probes).contains_key(way));
    assert_eq!(got, totals(rest));
}

#[test]
fn a_udp_collector_that_returns_gets_templates_at_once_and_what_it_missed_is_counted() {
    require_root!();
    let net = Namespace::new("ipfix_gone");
    net.enter(|| {
        let flows = records(&flows(3));
        let mut exporter = exporter(FlowProtocol::Ipfix, UDP);
        patiently("the loss is counted", || {
            exporter
                .write(&flows)
                .expect("a datagram needs no collector");
            (exporter.lost() >= 30).then_some(())
        });
        assert_eq!(exporter.lost() % 3, 0, "whole messages are lost");
        assert!(exporter.tick().is_err(), "the refusal is reported");
        let collector = UdpSocket::bind("127.0.0.1:9995").expect("a free port");
        collector.set_nonblocking(true).expect("a socket");
        patiently("templates", || {
            exporter.write(&flows).expect("it is sent");
            let mut message = [0; 2000];
            collector.recv(&mut message).ok()?;
            // The first set is one of templates.
            (message[16..18] == [0, 2]).then_some(())
        });
        let lost = exporter.lost();
        exporter.write(&flows).expect("it is sent");
        assert_eq!(exporter.lost(), lost);
    });
}

#[test]
fn a_tcp_collector_that_does_not_read_costs_counted_records_and_one_that_is_gone_a_failure() {
    require_root!();
    let net = Namespace::new("ipfix_slow");
    net.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:4739").expect("a free port");
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a socket");
        let flows = records(&flows(5000));
        let mut exporter = exporter(FlowProtocol::Ipfix, "tcp://127.0.0.1:4739");
        patiently("the loss is counted", || {
            let _may_fail = exporter.write(&flows);
            (exporter.lost() > 0).then_some(())
        });
        drop(listener);
        let failure = patiently("no connection", || exporter.write(&flows).err());
        assert!(failure.0.contains("tcp://127.0.0.1:4739"), "{failure}");
    });
}

/// Calls this until it gives a value.
fn patiently<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exporter(protocol: FlowProtocol, collector: &str) -> FlowExporter {
    let collector = collector.parse().expect("an address");
    FlowExporter::new(protocol, collector, 7, EVERY).expect("a socket")
}

fn nfcapd(net: &Namespace, folder: &Path) -> Running {
    let running = net.spawn(
        "nfcapd",
        &[
            "-w",
            text(folder),
            "-b",
            "127.0.0.1",
            "-p",
            "9995",
            "-t",
            "3600",
        ],
    );
    listening(net);
    running
}

/// Ends the collector and reads what it stored.
fn nfdump(collector: Running, folder: &Path) -> Totals {
    collector.signal(Signal::TERM);
    let _ended = collector.wait(LIMIT);
    let mut command = std::process::Command::new("nfdump");
    command.args(["-q", "-6", "-R", text(folder), "-o", "json"]);
    let json = Running::start(command).wait(LIMIT).success().stdout;
    let mut got = Totals::new();
    // nfdump leaves out the brackets with -q.
    let lines: Vec<Value> = serde_json::from_str(&format!("[{json}]")).expect("JSON");
    for line in &lines {
        let (source, destination) = match line.get("src4_addr") {
            Some(_) => ("src4_addr", "dst4_addr"),
            None => ("src6_addr", "dst6_addr"),
        };
        add(
            &mut got,
            line,
            [
                "proto",
                source,
                destination,
                "src_port",
                "dst_port",
                "in_packets",
                "in_bytes",
            ],
        );
        if line.get("out_packets").is_some_and(|packets| *packets != 0) {
            add(
                &mut got,
                line,
                [
                    "proto",
                    destination,
                    source,
                    "dst_port",
                    "src_port",
                    "out_packets",
                    "out_bytes",
                ],
            );
        }
    }
    got
}

fn add(totals: &mut Totals, line: &Value, names: [&str; 7]) {
    let number = |name: &str| {
        line[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {line}"))
    };
    let address = |name: &str| {
        line[name]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{name} in {line}"))
    };
    let [
        protocol,
        source,
        destination,
        source_port,
        destination_port,
        packets,
        bytes,
    ] = names;
    let protocol = match &line[protocol] {
        Value::String(name) if name == "tcp" => 6,
        Value::String(name) if name == "udp" => 17,
        _ => number(protocol),
    };
    let key = (
        protocol,
        address(source),
        address(destination),
        number(source_port),
        number(destination_port),
    );
    let sum = totals.entry(key).or_default();
    *sum = (sum.0 + number(packets), sum.1 + number(bytes));
}

/// Waits until a collector has its socket.
fn listening(net: &Namespace) {
    until(net, "the collector listens", |line| line.is_some());
}

/// Waits until the collector has taken all datagrams, none of which was dropped.
fn drained(net: &Namespace) {
    until(net, "the collector reads", |line| {
        line.is_some_and(|line| line.contains(":00000000 00:") && line.ends_with(" 0"))
    });
}

/// Waits for a state of the socket of port 9995, as `/proc/net/udp` shows it.
fn until(net: &Namespace, what: &str, is_so: impl Fn(Option<&str>) -> bool) {
    let begun = Instant::now();
    loop {
        let sockets = net.run("cat", &["/proc/net/udp"]).success().stdout;
        if is_so(
            sockets
                .lines()
                .map(str::trim)
                .find(|line| line.contains(":270B 00000000:0000")),
        ) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {sockets}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary names are text")
}
