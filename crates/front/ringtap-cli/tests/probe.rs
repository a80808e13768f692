// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap probe` on files and on interfaces.

use std::process::Command;
use std::time::Duration;

use ringtap_testkit::{
    Finished, LIMIT, Namespace, Running, require_root, require_tool, settle_everywhere,
};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// An Ethernet frame with a TCP segment between 10.0.0.`from` and 10.0.0.`to`.
fn segment(from: (u8, u16), to: (u8, u16), flags: u8, payload: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((40 + payload).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from.0, 10, 0, 0, to.0]);
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    // SYN takes a number of the sequence.
    let sequence = if flags & SYN != 0 { 1 } else { 2 };
    frame.extend([0, 0, 0, sequence, 0, 0, 0, 1]);
    frame.extend([0x50, flags, 4, 0, 0, 0, 0, 0]);
    frame.resize(54 + usize::from(payload), 7);
    frame
}

/// Four packets of each of `flows` connections, one packet of all in turn.
fn connections(flows: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (flags, payload, backward) in [
        (SYN, 0, false),
        (SYN | ACK, 0, true),
        (ACK, 0, false),
        (ACK, 100, false),
    ] {
        for port in 1..=flows {
            let (client, server) = ((1, 10_000 + port), (2, 443));
            frames.push(if backward {
                segment(server, client, flags, payload)
            } else {
                segment(client, server, flags, payload)
            });
        }
    }
    frames
}

fn file(folder: &TempDir, frames: &[Vec<u8>]) -> String {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for (number, frame) in (0..).zip(frames) {
        let length = u32::try_from(frame.len()).expect("small");
        bytes.extend(words(&[1_700_000_000, number, length, length]));
        bytes.extend(frame);
    }
    let path = folder.path().join("probe.pcap");
    std::fs::write(&path, bytes).expect("a file of the test");
    path.display().to_string()
}

/// All objects of a type among the lines that a probe printed.
fn objects(end: &Finished, of_type: &str) -> Vec<Value> {
    let lines = end.stdout.lines().map(serde_json::from_str::<Value>);
    let lines = lines.map(|line| line.expect("each line is one object"));
    lines.filter(|object| object["type"] == of_type).collect()
}

fn sum(flows: &[Value], field: &str) -> u64 {
    flows
        .iter()
        .map(|flow| flow[field].as_u64().expect("a number"))
        .sum()
}

/// The only object of this type.
fn only(end: &Finished, of_type: &str) -> Value {
    let mut found = objects(end, of_type);
    assert_eq!(found.len(), 1, "{}", end.stdout);
    found.remove(0)
}

#[test]
fn any_number_of_workers_gives_the_same_flows_of_a_file() {
    let folder = TempDir::new().expect("a folder can be made");
    let mut frames = connections(3000);
    let arp = [vec![0xff; 6], vec![2; 6], vec![8, 6], vec![0; 46]].concat();
    frames.push(arp);
    let file = file(&folder, &frames);
    let mut all = Vec::new();
    for workers in ["1", "3"] {
        let mut command = Command::new(BINARY);
        command.args(["probe", "-r", &file, "--json", "--workers", workers]);
        let end = Running::start(command).wait(LIMIT).success();
        let mut flows = objects(&end, "flow");
        assert_eq!(flows.len(), 3000);
        flows.sort_by_key(|flow| flow["id.orig_p"].as_u64());
        let ledger = only(&end, "probe");
        assert_eq!(
            (&ledger["captured"], &ledger["analysed"]),
            (&12_001.into(), &12_000.into())
        );
        assert_eq!(ledger["skipped"]["not_ip"], 1);
        let top = objects(&end, "measurement");
        let port = top
            .iter()
            .find(|one| one["analysis"] == "top port")
            .expect("a result");
        assert_eq!(
            (&port["key"], &port["values"]["packets"]),
            (&"443/tcp".into(), &12_000.into())
        );
        all.push(flows);
    }
    assert_eq!(all[0], all[1]);
    let flow = &all[0][0];
    assert_eq!(
        (&flow["orig_pkts"], &flow["resp_pkts"]),
        (&3.into(), &1.into())
    );
    assert_eq!(
        (&flow["orig_ip_bytes"], &flow["orig_bytes"]),
        (&220.into(), &100.into())
    );
    assert_eq!(
        (&flow["conn_state"], &flow["handshake_rtt"]),
        (&"S1".into(), &0.006.into())
    );
}

/// A frame in a VXLAN tunnel.
fn tunnelled(frame: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + 8 + frame.len()).expect("small");
    let mut outer = vec![2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 8, 0, 0x45, 0];
    outer.extend((20 + length).to_be_bytes());
    outer.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    outer.extend([0xc0, 0, 0x12, 0xb5]);
    outer.extend(length.to_be_bytes());
    outer.extend([0, 0, 8, 0, 0, 0, 0, 0, 5, 0]);
    [&outer, frame].concat()
}

#[test]
fn analyses_of_headers_give_the_same_flows_of_a_file_and_refuse_payload_later() {
    let folder = TempDir::new().expect("a folder can be made");
    let mut frames: Vec<_> = connections(200).iter().map(|one| tunnelled(one)).collect();
    frames.extend((0..200).map(|port| tunnelled(&segment((1, port), (2, 80), ACK, 1300))));
    let file = file(&folder, &frames);
    let config = folder.path().join("probe.toml");
    let configure = |payload_bytes: u32| {
        let text = format!("[[analysis]]\nkind = \"flows\"\npayload_bytes = {payload_bytes}\n");
        std::fs::write(&config, text).expect("a file of the test");
    };
    let start = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["probe", "-r", &file, "--json", "--workers", "1", "--config"]);
        command.arg(&config).args(words);
        Running::start(command)
    };
    let flows = [0, 1000].map(|payload_bytes| {
        configure(payload_bytes);
        let end = start(&[]).wait(LIMIT).success();
        let mut flows = objects(&end, "flow");
        flows.sort_by_key(|flow| (flow["id.resp_p"].as_u64(), flow["id.orig_p"].as_u64()));
        flows
    });
    assert_eq!((flows[0].len(), &flows[0]), (400, &flows[1]));
    assert_eq!(sum(&flows[0], "orig_bytes"), 200 * 100 + 200 * 1300);
    configure(0);
    let socket = folder.path().join("ctl").display().to_string();
    let running = start(&["--control", &socket, "--speed", "1pps"]);
    running.wait_for_stderr("ringtap: probe of", LIMIT);
    let second = start(&["--control", &socket]).wait(LIMIT);
    let why = "uses this socket already: choose another --control";
    assert!(second.stderr.contains(why), "{}", second.stderr);
    configure(1000);
    let mut reload = Command::new(BINARY);
    reload.args(["probe", "ctl", "--control", &socket, "reload"]);
    let refused = Running::start(reload).wait(LIMIT);
    let why = "analyses of payload need a restart of the probe";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

fn probe(net: &Namespace, workers: &str, extra: &[&str]) -> Running {
    let words = [
        &[
            "probe",
            "-i",
            "tap:rx0?direction=in",
            "--json",
            "--workers",
            workers,
        ],
        extra,
    ]
    .concat();
    let running = net.spawn(BINARY, &words);
    running.wait_for_stderr("ringtap: probe of", LIMIT);
    running
}

#[test]
fn an_interface_gives_results_at_intervals_and_all_flows_at_the_end() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("probe_live");
    let running = probe(&net, "2", &["--every", "0.5", "tcp"]);
    net.inject("tx0", &connections(50));
    running.wait_for_stdout("\"analysis\":\"top flow\"", LIMIT);
    settle_everywhere();
    running.interrupt();
    let end = running.wait(LIMIT).success();
    let flows = objects(&end, "flow");
    // On a machine that stands still for a while, time-outs divide a flow.
    assert!(flows.len() >= 50, "{}", end.stdout);
    let packets = (sum(&flows, "orig_pkts"), sum(&flows, "resp_pkts"));
    assert_eq!(packets.0 + packets.1, 200, "{}", end.stdout);
    let counters = only(&end, "counters");
    assert_eq!(
        (&counters["delivered"], &counters["balanced"]),
        (&200.into(), &true.into())
    );
    let ledger = only(&end, "probe");
    assert_eq!(
        (&ledger["captured"], &ledger["analysed"]),
        (&200.into(), &200.into())
    );
}

#[test]
fn sixty_workers_give_their_results_in_time_and_end() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("probe_sixty");
    let running = probe(&net, "60", &["--every", "0.5", "tcp"]);
    for _ in 0..4 {
        net.inject("tx0", &connections(50));
        std::thread::sleep(Duration::from_millis(500));
    }
    settle_everywhere();
    running.interrupt();
    let end = running.wait(LIMIT).success();
    let flows = objects(&end, "flow");
    let packets = sum(&flows, "orig_pkts") + sum(&flows, "resp_pkts");
    assert_eq!(packets, 800, "{}", end.stdout);
    assert_eq!(only(&end, "probe")["analysed"], 800);
}

#[test]
fn a_removed_interface_ends_a_probe_with_all_its_flows() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("probe_removed");
    let running = probe(&net, "2", &["tcp"]);
    net.inject("tx0", &connections(20));
    settle_everywhere();
    net.ip(&["link", "delete", "rx0"]);
    let end = running.wait(LIMIT);
    assert_eq!(end.status.code(), Some(3), "{}", end.stderr);
    let flows = objects(&end, "flow");
    let packets = sum(&flows, "orig_pkts") + sum(&flows, "resp_pkts");
    assert_eq!(packets, 80, "{}", end.stdout);
}

#[test]
fn a_configuration_chooses_analyses_and_destinations_and_a_wrong_one_starts_nothing() {
    let folder = TempDir::new().expect("a folder can be made");
    let file = file(&folder, &connections(100));
    let (config, flows) = (
        folder.path().join("probe.toml"),
        folder.path().join("flows.json"),
    );
    let run = |text: &str| {
        std::fs::write(&config, text).expect("a file of the test");
        let mut command = Command::new(BINARY);
        command
            .args(["probe", "-r", &file, "--json", "--config"])
            .arg(&config);
        Running::start(command).wait(LIMIT)
    };
    let wrong = format!(
        "[[export]]\nto = \"json:{}\"\n[[analysis]]\nkind = \"flow\"\n",
        flows.display()
    );
    let end = run(&wrong);
    assert!(!end.status.success());
    assert!(
        end.stderr.contains("line 4, kind: expected flows, top"),
        "{}",
        end.stderr
    );
    assert!(!flows.exists());
    let right = wrong.replace("\"flow\"", "\"flows\"\nmax_flows = 10");
    let end = run(&right).success();
    let ledger = only(&end, "probe");
    assert!(
        ledger["flows"]["evicted"].as_u64() > Some(50),
        "{}",
        end.stdout
    );
    let written = std::fs::read_to_string(&flows).expect("it is written");
    let lines = written
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"));
    let flows: Vec<Value> = lines.collect();
    assert_eq!(sum(&flows, "orig_pkts") + sum(&flows, "resp_pkts"), 400);
    assert_eq!(
        ledger["exporters"][0]["written"].as_u64(),
        u64::try_from(flows.len()).ok()
    );
}
