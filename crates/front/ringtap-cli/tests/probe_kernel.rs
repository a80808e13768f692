// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap probe` with analyses in the kernel.

use std::collections::BTreeMap;

use ringtap_testkit::{
    Finished, LIMIT, Namespace, Running, require_root, require_tool, say_skipped,
    settle_everywhere, usable_cpus,
};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// Long enough that no time-out divides a flow, however slow the machine is.
const FLOWS: &str = "[[analysis]]\nkind = \"flows\"\nidle = \"5h\"\nactive = \"10h\"\n";

/// SYNs from random sources.
fn flood(count: u32) -> Vec<Vec<u8>> {
    let syn = segment((1, 1024), (2, 443), 1, 0x02, 0);
    let spoofed = |number: u32| {
        let mixed = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
        let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
        let mut frame = syn.clone();
        frame[26..30].copy_from_slice(&mixed.to_be_bytes());
        frame
    };
    (1..=count).map(spoofed).collect()
}

/// Types of service of the segments from 10.0.0.1 and from others: DSCP EF and AF11.
const SERVICES: [u8; 2] = [0xb8, 0x28];

/// An Ethernet frame with a TCP segment between 10.0.0.`from` and 10.0.0.`to`.
fn segment(from: (u8, u16), to: (u8, u16), sequence: u32, flags: u8, payload: u16) -> Vec<u8> {
    let service = SERVICES[usize::from(from.0 != 1)];
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, service];
    frame.extend((40 + payload).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from.0, 10, 0, 0, to.0]);
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, flags, 4, 0, 0, 0, 0, 0]);
    frame.resize(54 + usize::from(payload), 7);
    frame
}

/// Connections with a handshake, data, a retransmission and no end.
fn connections(flows: u16) -> Vec<Vec<u8>> {
    let (syn, ack) = (0x02, 0x10);
    let steps = [
        (1, syn, 0, false),
        (1, syn | ack, 0, true),
        (2, ack, 0, false),
        (2, ack, 100, false),
        (2, ack, 100, false),
        (2, ack, 300, true),
    ];
    let mut frames = Vec::new();
    for (sequence, flags, payload, backward) in steps {
        for port in 1..=flows {
            let (client, server) = ((1, 10_000 + port), (2, 443));
            frames.push(if backward {
                segment(server, client, sequence, flags, payload)
            } else {
                segment(client, server, sequence, flags, payload)
            });
        }
    }
    frames
}

fn probe(net: &Namespace, folder: &TempDir, name: &str, config: &str) -> Running {
    let path = folder.path().join(name);
    std::fs::write(&path, config).expect("a file of the test");
    let path = path.display().to_string();
    let device = "tap:rx0?direction=in";
    let words = [
        "probe",
        "-i",
        device,
        "--json",
        "--workers",
        "2",
        "--config",
        &path,
    ];
    let running = net.spawn(BINARY, &words);
    running.wait_for_stderr("ringtap: probe of", LIMIT);
    running
}

fn end(running: Running) -> Finished {
    running.interrupt();
    running.wait(LIMIT).success()
}

fn objects(end: &Finished, of_type: &str) -> Vec<Value> {
    let lines = end.stdout.lines().map(serde_json::from_str::<Value>);
    let lines = lines.map(|line| line.expect("each line is one object"));
    lines.filter(|object| object["type"] == of_type).collect()
}

/// The records without times, by the originator's port.
fn flows(end: &Finished) -> BTreeMap<u64, Value> {
    let records = objects(end, "flow").into_iter().map(|mut record| {
        let fields = record.as_object_mut().expect("an object");
        assert!(fields.contains_key("handshake_rtt"), "{fields:?}");
        for time in ["ts", "duration", "handshake_rtt", "first_payload_ts"] {
            fields.remove(time);
        }
        (record["id.orig_p"].as_u64().expect("a port"), record)
    });
    records.collect()
}

#[test]
fn records_of_the_kernel_are_those_of_workers() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("probe_kernel");
    let folder = TempDir::new().expect("a folder can be made");
    let workers = probe(&net, &folder, "workers.toml", FLOWS);
    let more = ["sizes", "load"].map(|kind| {
        format!("[[analysis]]\nkind = \"{kind}\"\nwhere = \"kernel\"\nevery = \"5h\"\n")
    });
    let kernel = format!("{FLOWS}where = \"kernel\"\n{}", more.concat());
    let kernel = probe(&net, &folder, "kernel.toml", &kernel);
    net.inject("tx0", &connections(500));
    settle_everywhere();
    let (workers, kernel) = (end(workers), end(kernel));
    let (expected, mut got) = (flows(&workers), flows(&kernel));
    assert_eq!(expected.len(), 500);
    for record in got.values_mut() {
        assert_eq!(
            [&record["orig_tos"], &record["resp_tos"]],
            SERVICES.map(Value::from).each_ref()
        );
        assert!(record["interface"].as_u64() > Some(0), "{record}");
        assert_eq!(
            [&record["orig_direction"], &record["resp_direction"]],
            ["ingress", "ingress"]
        );
        // The kernel counts retransmitted payload, too.
        assert_eq!(record["orig_bytes"], 200);
        record["orig_bytes"] = 100.into();
    }
    assert_eq!(got, expected);
    let ledger = &objects(&kernel, "probe")[0]["kernel"];
    assert_eq!(
        (&ledger["seen"], &ledger["analysed"]),
        (&3000.into(), &3000.into()),
        "{ledger}"
    );
    assert_eq!(objects(&kernel, "counters")[0]["delivered"], 3000);
    let packets: BTreeMap<_, _> = objects(&kernel, "measurement")
        .iter()
        .map(|one| (one["key"].to_string(), one["values"]["packets"].as_u64()))
        .collect();
    let expected = [
        ("null", 3000), // of `load`
        ("\"0-64\"", 1500),
        ("\"128-255\"", 1000),
        ("\"256-511\"", 500),
    ];
    let expected = expected.map(|(range, packets)| (range.to_owned(), Some(packets)));
    assert_eq!(packets, expected.into_iter().collect());
}

#[test]
fn a_sender_that_moves_between_processors_has_no_invented_retransmission() {
    require_root!();
    require_tool!("ip", "python3");
    let cpus: Vec<usize> = usable_cpus();
    if cpus.len() < 2 {
        say_skipped("needs two processors");
        return;
    }
    let net = Namespace::with_veth("probe_moves");
    let folder = TempDir::new().expect("a folder can be made");
    let config = format!("{FLOWS}where = \"kernel\"\n");
    let kernel = probe(&net, &folder, "kernel.toml", &config);
    let steps = (0..9_u32).flat_map(|step| {
        (1..=400).map(move |port| segment((1, port), (2, 443), 1 + 100 * step, 0x10, 100))
    });
    net.inject_from(&cpus[..2], 400, "tx0", &steps.collect::<Vec<_>>());
    settle_everywhere();
    let ended = end(kernel);
    let records = objects(&ended, "flow");
    assert_eq!(records.len(), 400);
    let count = |record: &Value| record["orig_retransmissions"].as_u64();
    for record in &records {
        assert_eq!(record["orig_pkts"], 9, "{record}");
        assert!(matches!(count(record), None | Some(0)), "{record}");
    }
}

#[test]
fn tunnels_and_inner_vlans_are_the_same_in_the_kernel_and_in_workers() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("probe_tunnels");
    let folder = TempDir::new().expect("a folder can be made");
    let workers = probe(&net, &folder, "workers.toml", FLOWS);
    let kernel = format!("{FLOWS}where = \"kernel\"\n");
    let kernel = probe(&net, &folder, "kernel.toml", &kernel);
    net.inject("tx0", &tunnelled());
    settle_everywhere();
    let parts = |end: &Finished| {
        let mut all: Vec<_> = objects(end, "flow")
            .iter()
            .map(|flow| {
                let names = [
                    "id.orig_h",
                    "id.orig_p",
                    "id.resp_p",
                    "orig_pkts",
                    "orig_ip_bytes",
                    "orig_tos",
                    "vlan",
                    "inner_vlans",
                    "tunnels",
                ];
                format!("{:?}", names.map(|name| &flow[name]))
            })
            .collect();
        all.sort();
        all
    };
    let (workers, kernel) = (end(workers), end(kernel));
    let expected = parts(&workers);
    assert_eq!(expected.len(), 9, "{expected:#?}");
    assert_eq!(parts(&kernel), expected);
    for ended in [&workers, &kernel] {
        let skipped = &objects(ended, "probe")[0];
        assert_eq!(skipped["skipped"]["not_ip"], 0, "{skipped}");
    }
}

/// One packet of each of nine flows, whose inner addresses and ports are the same.
fn tunnelled() -> Vec<Vec<u8>> {
    let inner = segment((1, 1000), (2, 443), 1, 0x10, 10);
    let arp = [&inner[..12], &[8, 6], &[0; 46]].concat();
    let over = |protocol: u8, port: Option<u16>, data: &[u8]| {
        let mut header = Vec::new();
        if let Some(port) = port {
            let length = u16::try_from(8 + data.len()).expect("small");
            header = [9_u16, port, length, 0].map(u16::to_be_bytes).concat();
        }
        let length = u16::try_from(20 + header.len() + data.len()).expect("small");
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0xb8];
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        [frame, header, data.to_vec()].concat()
    };
    let vxlan = |number: u8, frame: &[u8]| {
        over(
            17,
            Some(4789),
            &[&[8, 0, 0, 0, 0, 0, number, 0], frame].concat(),
        )
    };
    let ip = &inner[14..];
    let mut tagged = inner.clone();
    tagged.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
    vec![
        inner.clone(),
        tagged,
        vxlan(1, &inner),
        vxlan(2, &inner),
        vxlan(3, &arp),
        over(
            17,
            Some(6081),
            &[&[0, 0, 0x65, 0x58, 0, 0, 1, 0], &inner[..]].concat(),
        ),
        over(47, None, &[&[0x20, 0, 8, 0, 0, 0, 0, 9], ip].concat()),
        over(
            17,
            Some(2152),
            &[&[0x30, 255, 0, 0, 0, 0, 0, 7], ip].concat(),
        ),
        over(4, None, ip),
    ]
}

#[test]
fn a_flood_beyond_the_kernels_room_is_counted_to_the_last_packet() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("probe_room");
    let folder = TempDir::new().expect("a folder can be made");
    let config = format!("{FLOWS}where = \"kernel\"\n[kernel]\nflows = 64\n");
    let kernel = probe(&net, &folder, "kernel.toml", &config);
    net.inject("tx0", &connections(5000));
    settle_everywhere();
    let end = end(kernel);
    let ledger = &objects(&end, "probe")[0]["kernel"];
    let number = |value: &Value| value.as_u64().expect("a number");
    assert_eq!(number(&ledger["seen"]), 30_000, "{ledger}");
    let skipped = number(&ledger["skipped"]["full"]);
    assert!(skipped > 0, "{ledger}");
    let records = objects(&end, "flow");
    let packets = |field: &str| records.iter().map(|flow| number(&flow[field])).sum::<u64>();
    assert_eq!(
        packets("orig_pkts") + packets("resp_pkts") + skipped,
        30_000
    );
}

#[test]
fn real_flows_survive_a_flood_of_random_sources() {
    require_root!();
    require_tool!("ip");
    for place in ["workers", "kernel"] {
        let net = Namespace::with_veth(&format!("probe_flood_{place}"));
        let folder = TempDir::new().expect("a folder can be made");
        let config = format!("{FLOWS}max_flows = 1000\nwhere = \"{place}\"\n");
        let probe = probe(&net, &folder, "flood.toml", &config);
        // 200 connections, the flood in two halves, and data of each connection before, between and behind.
        let data: Vec<_> = (1..=200)
            .map(|port| segment((1, 10_000 + port), (2, 443), 102, 0x10, 50))
            .collect();
        let flood = flood(40_000);
        net.inject("tx0", &connections(200));
        for half in flood.chunks(20_000) {
            net.inject("tx0", half);
            net.inject("tx0", &data);
        }
        settle_everywhere();
        let end = end(probe);
        let ledger = &objects(&end, "probe")[0];
        let number = |value: &Value| value.as_u64().expect("a number");
        assert!(number(&ledger["flows"]["evicted"]) > 38_000, "{ledger}");
        let records = objects(&end, "flow");
        let real: Vec<_> = records
            .iter()
            .filter(|flow| flow["id.orig_h"] == "10.0.0.1" && number(&flow["id.orig_p"]) > 10_000)
            .map(|flow| (number(&flow["orig_pkts"]), number(&flow["resp_pkts"])))
            .collect();
        assert_eq!(real, [(6, 2); 200], "{place}");
        let all = records
            .iter()
            .map(|flow| number(&flow["orig_pkts"]) + number(&flow["resp_pkts"]));
        assert_eq!(all.sum::<u64>(), 200 * 8 + 40_000, "{place}");
    }
}

#[test]
fn analyses_in_the_kernel_need_an_interface() {
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().join("kernel.toml");
    std::fs::write(&path, format!("{FLOWS}where = \"kernel\"\n")).expect("a file of the test");
    let mut command = std::process::Command::new(BINARY);
    command
        .args(["probe", "-r", "nothing.pcap", "--config"])
        .arg(&path);
    let end = Running::start(command).wait(LIMIT);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
    assert!(end.stderr.contains("need an interface"), "{}", end.stderr);
}
