// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns, lines and objects of packets in a file, compared with what the packets were made of.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod made;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type};
use made::{FIRST_NS, capture_file, frames};
use ringtap::{Capture, Next, OpenOptions};
use ringtap_columns::{
    AddressForm, ColumnOptions, LaneLinks, LinePacket, PacketColumns, PacketLine, TakenPackets,
};

fn open(file: &std::path::Path, filter: &str) -> Capture {
    let options = OpenOptions::new().filter(filter);
    options.open(&format!("pcap:{}", file.display())).unwrap()
}

fn batches(capture: &mut Capture) -> Vec<Arc<TakenPackets>> {
    let mut batches = Vec::new();
    while let Next::Batch(batch) = capture.next(None).unwrap() {
        batches.push(Arc::new(TakenPackets::take(capture, batch).unwrap()));
    }
    batches
}

fn table(capture: &mut Capture, options: ColumnOptions) -> RecordBatch {
    let mut columns = PacketColumns::new(options, LaneLinks::new(capture).into());
    for batch in batches(capture) {
        columns.extend(&batch);
    }
    columns.finish().unwrap()
}

const ALL: ColumnOptions = ColumnOptions {
    headers: true,
    addresses: AddressForm::Text,
    community_id: Some(0),
    inner: true,
    data: true,
};

fn texts(table: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = table.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|text| text.map(str::to_owned)).collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    let text = |text: &&str| (!text.is_empty()).then(|| (*text).to_owned());
    texts.iter().map(text).collect()
}

#[test]
fn each_packet_has_its_values_in_all_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture_file(folder.path(), &frames());
    let table = table(&mut open(&file, ""), ALL);
    assert_eq!(table.num_rows(), 5);
    let column = |name| table.column_by_name(name).unwrap();
    let times = column("time").as_primitive::<TimestampNanosecondType>();
    assert_eq!(times.values()[4], FIRST_NS + 4000);
    let numbers = |name| {
        let column = column(name).as_primitive::<UInt16Type>();
        column.iter().collect::<Vec<_>>()
    };
    let small = |name| {
        let column = column(name).as_primitive::<UInt8Type>();
        column.iter().collect::<Vec<_>>()
    };
    let large = |name| {
        let column = column(name).as_primitive::<UInt32Type>();
        column.iter().collect::<Vec<_>>()
    };
    // TCP with a SYN, UDP over IPv6 in a VLAN, ARP, a later fragment, TCP in VXLAN.
    let lengths: Vec<_> = frames()
        .iter()
        .map(|one| Some(u32::try_from(one.len()).unwrap()))
        .collect();
    assert_eq!(large("wire_length"), lengths);
    assert_eq!(large("captured"), lengths);
    assert_eq!(numbers("vlan"), [None, Some(7), None, None, None]);
    let types = [0x0800, 0x86dd, 0x0806, 0x0800, 0x0800];
    assert_eq!(numbers("eth_type"), types.map(Some));
    let source = ["10.0.0.1", "2001:db8::1", "", "10.0.0.3", "192.0.2.1"];
    assert_eq!(texts(&table, "src"), some(&source));
    let destination = ["10.0.0.2", "2001:db8::2", "", "10.0.0.4", "192.0.2.2"];
    assert_eq!(texts(&table, "dst"), some(&destination));
    assert_eq!(
        small("protocol"),
        [Some(6), Some(17), None, Some(17), Some(17)]
    );
    assert_eq!(
        numbers("src_port"),
        [Some(40_000), Some(5353), None, None, Some(1)]
    );
    assert_eq!(
        numbers("dst_port"),
        [Some(443), Some(53), None, None, Some(4789)]
    );
    assert_eq!(small("tcp_flags"), [Some(2), None, None, None, None]);
    let offsets = [Some(54), Some(66), None, Some(34), Some(42)];
    assert_eq!(large("payload_offset"), offsets);
    let tunnels = ["", "", "", "", "vxlan"];
    assert_eq!(texts(&table, "tunnel"), some(&tunnels));
    assert_eq!(large("tunnel_id"), [None, None, None, None, Some(77)]);
    assert_eq!(
        texts(&table, "inner_src"),
        some(&["", "", "", "", "10.0.0.1"])
    );
    assert_eq!(numbers("inner_dst_port")[4], Some(443));
    assert_eq!(large("inner_payload_offset")[4], Some(42 + 8 + 54));
    let ids = texts(&table, "community_id");
    // That of the packet inside is that of the first packet, as both are of one flow.
    assert!(ids[0].is_some() && ids[0] == ids[4] && ids[1].is_some());
    assert_eq!((&ids[2], &ids[3]), (&None, &None));
}

#[test]
fn the_bytes_are_those_of_the_file_and_outlive_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture_file(folder.path(), &frames());
    // Packets of which some are inline in their views, with packets between them that do not pass.
    let table = table(&mut open(&file, "not arp"), ALL);
    let data = table.column_by_name("data").unwrap().as_binary_view();
    let expected: Vec<_> = frames();
    let expected = [0, 1, 3, 4].map(|at| &*expected[at]);
    assert_eq!(data.iter().flatten().collect::<Vec<_>>(), expected);
}

#[test]
fn a_chunk_lent_to_a_table_comes_back_when_the_last_array_is_dropped() {
    let mut capture = ringtap::open("sim:max?burst=1000").unwrap();
    let mut columns = PacketColumns::new(ALL, LaneLinks::new(&capture).into());
    let Next::Batch(batch) = capture.next(None).unwrap() else {
        panic!("no packets");
    };
    let batch = Arc::new(TakenPackets::take(&mut capture, batch).unwrap());
    columns.extend(&batch);
    let lent = Arc::downgrade(&batch);
    drop(batch);
    let data = columns
        .finish()
        .unwrap()
        .column_by_name("data")
        .unwrap()
        .clone();
    drop((columns, capture));
    assert_eq!(data.as_binary_view().value(0).len(), 60);
    assert!(lent.upgrade().is_some());
    drop(data);
    assert!(lent.upgrade().is_none());
}

#[test]
fn slots_are_those_of_the_reader_in_the_order_of_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture_file(folder.path(), &frames());
    for (filter, expected) in [("", 5), ("udp", 2), ("arp", 1), ("port 443 or arp", 2)] {
        let mut slots = Vec::new();
        let mut times = Vec::new();
        for batch in batches(&mut open(&file, filter)) {
            batch.copy_slots(&mut slots);
            times.extend(
                batch
                    .packets()
                    .map(|(_, packet)| packet.slot().time_ns.to_le_bytes()),
            );
            assert!(
                batch
                    .slots()
                    .is_none_or(|own| own.len() == 32 * batch.len())
            );
        }
        let found: Vec<_> = slots
            .chunks(32)
            .map(|slot| <[u8; 8]>::try_from(&slot[..8]).unwrap())
            .collect();
        assert_eq!((found.len(), &found), (expected, &times), "{filter}");
    }
}

#[test]
fn a_line_has_what_tcpdump_shows_and_an_object_the_names_of_the_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture_file(folder.path(), &frames());
    let mut capture = open(&file, "");
    let links = LaneLinks::new(&capture);
    let mut lines = PacketLine::new(true, None);
    let (mut text, mut objects) = (String::new(), String::new());
    for batch in batches(&mut capture) {
        for (lane, packet) in batch.packets() {
            let packet = LinePacket::from_lane(lane, &packet, &links);
            lines.push_text(&packet, &mut text);
            lines.push_json(&packet, &mut objects).unwrap();
        }
    }
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let (time, first) = lines[0];
    assert!(
        time.len() == "12:00:00.000000".len() && time.ends_with(".123456"),
        "{time}"
    );
    assert_eq!(first, "IP 10.0.0.1.40000 > 10.0.0.2.443: tcp [S] length 60");
    assert_eq!(
        lines[1].1,
        "vlan 7 IP6 2001:db8::1.5353 > 2001:db8::2.53: udp length 76"
    );
    assert_eq!(lines[2].1, "ARP length 42");
    assert_eq!(lines[3].1, "IP 10.0.0.3 > 10.0.0.4: udp length 60");
    assert_eq!(
        lines[4].1,
        "IP 192.0.2.1.1 > 192.0.2.2.4789: udp vxlan 77 IP 10.0.0.1.40000 > 10.0.0.2.443: tcp [S] length 110"
    );
    let objects: Vec<serde_json::Value> = objects
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names = ColumnOptions {
        community_id: None,
        data: false,
        ..ALL
    }
    .schema();
    for field in names.fields().iter().skip(1) {
        assert!(objects[4].get(field.name()).is_some(), "{}", field.name());
    }
    assert_eq!(objects[4]["inner_src"], "10.0.0.1");
    assert_eq!(
        (objects[0]["tcp_flags"].as_u64(), objects[0].get("tunnel")),
        (Some(2), None)
    );
}
