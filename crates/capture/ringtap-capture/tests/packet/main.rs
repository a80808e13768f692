// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `packet` source in private network namespaces.

mod capture;
#[path = "../shared/flow_sources.rs"]
mod flow_sources;
#[cfg(test)]
mod flows;
mod rights;
mod rules;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use capture::{Capture, Captured};

use ringtap_capture::{InterfaceOptions, packet};
use ringtap_device::{ChunkOptions, Direction, StampClock};
use ringtap_pool::{
    conformance::{self, Harness, PoolSize, UnderTraffic},
    format::flag,
    source::Source,
};
use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool, settle_everywhere, with};

const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

fn options() -> InterfaceOptions {
    packet::options("rx0")
}

/// A frame with `tags` (TPID, TCI) between its addresses and its type.
fn frame(tags: &[(u16, u16)], length: usize) -> Vec<u8> {
    let mut bytes = ADDRESSES.to_vec();
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.resize(length, 0x5a);
    bytes
}

fn bytes(packets: &[Captured]) -> Vec<Vec<u8>> {
    packets.iter().map(|packet| packet.data.clone()).collect()
}

struct Veth(Option<Namespace>);

impl Harness for Veth {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Source {
        let net = self.0.insert(Namespace::with_veth("packet_conforms"));
        let pool_bytes = (size == PoolSize::Tiny).then_some(0);
        let source = net.enter(|| packet::open(&with(options(), |it| it.pool.bytes = pool_bytes)));
        net.inject("tx0", frames);
        source.expect("the source opens")
    }

    fn capture_under_traffic(&mut self, frames: &[Vec<u8>], suite: UnderTraffic<'_>) {
        let net = Namespace::with_veth("packet_conforms");
        let source = net
            .enter(|| packet::open(&options()))
            .expect("the source opens");
        net.inject_during("tx0", frames, |all_offered| suite(source, all_offered));
    }
}

#[test]
fn the_packet_source_conforms() {
    require_root!();
    conformance::check(&mut Veth(None));
}

#[test]
fn vlan_tags_are_as_on_the_wire() {
    require_root!();
    let net = Namespace::with_veth("packet_vlan");
    let sent = vec![
        frame(&[], 60),
        frame(&[(0x8100, 0x6007)], 64),
        frame(&[(0x88a8, 100)], 80),
        frame(&[(0x88a8, 5), (0x8100, 0x2fff)], 90),
        frame(&[(0x8100, 0)], 64),
    ];
    let mut capture = Capture::start(&net, &options());
    net.inject("tx0", &sent);
    capture.read_until(sent.len());
    let (packets, _) = capture.finish();
    assert_eq!(bytes(&packets), sent);
    let restored: Vec<_> = packets
        .iter()
        .map(|one| one.has(flag::VLAN_RESTORED))
        .collect();
    assert_eq!(restored, [false, true, true, true, true]);
    for (packet, sent) in packets.iter().zip(&sent) {
        assert_eq!(packet.slot.wire_length, u32::try_from(sent.len()).unwrap());
    }
}

#[test]
fn a_direction_is_chosen_by_the_kernel_and_marked() {
    require_root!();
    let net = Namespace::with_veth("packet_direction");
    let (arriving, leaving) = (vec![frame(&[], 61); 3], vec![frame(&[], 62); 5]);
    for (direction, lengths) in [
        (Direction::In, vec![61; 3]),
        (Direction::Out, vec![62; 5]),
        (Direction::InOut, [vec![61; 3], vec![62; 5]].concat()),
    ] {
        let asked = with(options(), |it| it.direction = direction);
        let mut capture = Capture::start(&net, &asked);
        net.inject("tx0", &arriving);
        net.inject("rx0", &leaving);
        capture.read_until(lengths.len());
        let (packets, counts) = capture.finish();
        let found: Vec<_> = packets.iter().map(|one| one.data.len()).collect();
        assert_eq!(found, lengths, "{direction:?}");
        assert_eq!(
            counts.lanes[0].offered,
            u64::try_from(lengths.len()).unwrap()
        );
        let is_marked = |one: &Captured| one.has(flag::OUT) == (one.data.len() == 62);
        assert!(packets.iter().all(is_marked), "{direction:?}");
    }
}

#[test]
fn the_snap_length_cuts_the_bytes_and_not_the_length() {
    require_root!();
    let net = Namespace::with_veth("packet_snap");
    let asked = with(options(), |it| it.snap_length = Some(40));
    let mut capture = Capture::start(&net, &asked);
    assert_eq!(capture.source().facts.snap_length, 40);
    let sent = [frame(&[], 1000), frame(&[(0x8100, 7)], 1000)];
    net.inject("tx0", &sent);
    capture.read_until(2);
    for (packet, sent) in capture.finish().0.iter().zip(&sent) {
        assert_eq!(packet.data, sent[..40]);
        assert_eq!(packet.slot.wire_length, 1000);
    }
}

#[test]
fn a_lane_holds_exactly_the_chunks_and_packets_that_were_asked_for() {
    require_root!();
    let net = Namespace::with_veth("packet_shape");
    let asked = with(options(), |it| {
        it.snap_length = Some(96);
        it.pool.chunks = ChunkOptions {
            per_lane: Some(5),
            packets: Some(16),
        };
    });
    let capture = Capture::start(&net, &asked);
    net.inject("tx0", &vec![frame(&[], 1000); 300]);
    // Without a read in between.
    let (packets, counts) = capture.finish();
    assert_eq!(
        (counts.lanes[0].offered, packets.len()),
        (300, 80),
        "{counts:?}"
    );
    assert!(packets.iter().all(|packet| packet.data.len() == 96));
}

/// Sends 1 MiB to the given address, where the same process listens.
const TALK: &str = "
import socket, sys, threading
s = socket.create_server((sys.argv[1], 7000))
def read():
    c = s.accept()[0]
    while c.recv(1 << 20): pass
t = threading.Thread(target=read); t.start()
c = socket.create_connection(s.getsockname())
c.sendall(bytes(1 << 20)); c.close(); t.join()
";

/// Waits for 1 MiB.
const LISTEN: &str = "
import socket
s = socket.create_server(('10.9.0.2', 7000))
print('ready', flush=True)
c = s.accept()[0]
while c.recv(1 << 20): pass
";

/// Sends 1 MiB.
const SEND: &str = "
import socket
c = socket.create_connection(('10.9.0.2', 7000))
c.sendall(bytes(1 << 20)); c.close()
";

#[test]
fn packets_that_were_not_yet_cut_are_whole_and_marked() {
    require_root!();
    let (net, other) = (
        Namespace::with_veth("packet_gso"),
        Namespace::new("packet_gso_peer"),
    );
    net.move_device("tx0", &other);
    for (place, device, address) in [(&net, "rx0", "10.9.0.1/24"), (&other, "tx0", "10.9.0.2/24")] {
        place.ip(&["link", "set", device, "arp", "on"]);
        place.ip(&["address", "add", address, "dev", device]);
    }
    let mut capture = Capture::start(&net, &options());
    let listener = other.spawn("python3", &["-c", LISTEN]);
    listener.wait_for_stdout("ready", LIMIT);
    drop(net.run("python3", &["-c", SEND]).success());
    drop(listener.wait(LIMIT).success());
    let sent = net.counter("rx0", "tx_packets") + net.counter("rx0", "rx_packets");
    capture.read_until(usize::try_from(sent).unwrap());
    let (packets, _) = capture.finish();
    let largest = packets.iter().max_by_key(|one| one.data.len()).unwrap();
    assert!(largest.data.len() > 20_000, "{}", largest.data.len());
    assert!(largest.has(flag::SUPER) && largest.has(flag::OUT));
    for packet in packets {
        assert_eq!(
            packet.slot.wire_length,
            u32::try_from(packet.data.len()).unwrap()
        );
        assert_eq!(packet.has(flag::SUPER), packet.data.len() > 1514);
    }
}

#[test]
fn large_packets_are_whole_and_loopback_is_counted_once() {
    require_root!();
    let net = Namespace::new("packet_loopback");
    let before = net.counter("lo", "rx_packets");
    let mut capture = Capture::start(&net, &packet::options("lo"));
    drop(net.run("python3", &["-c", TALK, "127.0.0.1"]).success());
    // The last acknowledgements may be in transit.
    settle_everywhere();
    let received = net.counter("lo", "rx_packets") - before;
    capture.read_until(usize::try_from(received).unwrap());
    let (packets, counts) = capture.finish();
    assert_eq!(counts.lanes[0].offered, received);
    let is_whole = |one: &Captured| one.slot.wire_length == u32::try_from(one.data.len()).unwrap();
    assert!(packets.iter().all(is_whole));
    let payload: usize = packets
        .iter()
        .map(|one| one.data.len().saturating_sub(66))
        .sum();
    assert!(payload >= 1 << 20, "{payload} bytes");
    let largest = packets.iter().max_by_key(|one| one.data.len()).unwrap();
    assert!(largest.data.len() > 32_000, "{}", largest.data.len());
    assert!(largest.has(flag::PARTIAL_CHECKSUM));
    assert!(!packets.iter().any(|one| one.has(flag::OUT)));
}

#[test]
fn the_same_packets_as_tcpdump_byte_for_byte() {
    require_root!();
    require_tool!("tcpdump");
    let net = Namespace::with_veth("packet_tcpdump");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tcpdump.pcap");
    let path = file.to_str().unwrap();
    let arguments = ["-i", "rx0", "-n", "-s", "0", "-U", "-Z", "root", "-w", path];
    let dump = net.spawn("tcpdump", &arguments);
    dump.wait_for_stderr("listening on", LIMIT);
    let mut capture = Capture::start(&net, &options());
    let mut sent = conformance::frames(300);
    sent.push(frame(&[(0x8100, 9)], 70));
    net.inject("tx0", &sent);
    capture.read_until(sent.len());
    // The ring hands over blocks within its timeout of one second.
    let begun = Instant::now();
    let bytes_of_file: usize = 24 + sent.iter().map(|frame| 16 + frame.len()).sum::<usize>();
    let is_written = || std::fs::metadata(&file).is_ok_and(|it| it.len() >= bytes_of_file as u64);
    while !is_written() && begun.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(50));
    }
    dump.interrupt();
    drop(dump.wait(LIMIT));
    assert_eq!(bytes(&capture.finish().0), sent);
    assert_eq!(read_file(&file), sent);
}

fn read_file(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = ringtap_file::FileReader::open(path.to_str().expect("the path is text"))
        .expect("a capture file");
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().expect("a whole file") {
        packets.push(packet.data.to_vec());
    }
    packets
}

#[test]
fn times_are_of_the_wall_clock() {
    require_root!();
    let net = Namespace::with_veth("packet_times");
    let now_ns = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.unwrap().as_nanos()).unwrap()
    };
    let mut capture = Capture::start(&net, &options());
    let before = now_ns();
    net.inject("tx0", &[frame(&[], 60)]);
    let after = now_ns();
    capture.read_until(1);
    let time_ns = capture.finish().0[0].slot.time_ns;
    assert!(
        (before..=after).contains(&time_ns),
        "{before} {time_ns} {after}"
    );
}

#[test]
fn removing_the_interface_ends_the_capture_after_the_rest() {
    require_root!();
    let net = Namespace::with_veth("packet_removed");
    let mut capture = Capture::start(&net, &options());
    net.inject("tx0", &vec![frame(&[], 60); 20]);
    net.ip(&["link", "delete", "rx0"]);
    let reason = capture.read_until_it_fails();
    assert!(
        reason.contains("rx0") && reason.contains("was removed"),
        "{reason}"
    );
    assert_eq!(capture.finish().0.len(), 20);
}

#[test]
fn what_cannot_be_opened_says_why() {
    require_root!();
    let net = Namespace::with_veth("packet_errors");
    net.ip(&["link", "set", "rx0", "down"]);
    let open = |name: &str| {
        let opened = net.enter(|| packet::open(&packet::options(name)));
        opened.err().unwrap().to_string()
    };
    assert!(open("rx0").contains("`ip link set rx0 up`"));
    assert!(open("xr0").contains("did you mean"));
}

#[test]
fn a_low_rate_does_not_fill_the_ring() {
    require_root!();
    let net = Namespace::with_veth("packet_slow_rate");
    let mut capture = Capture::start(&net, &options());
    for _ in 0..40 {
        net.inject("tx0", &vec![frame(&[], 60); 5]);
    }
    capture.read_until(200);
    let (_, counts) = capture.finish();
    assert_eq!(
        (counts.lanes[0].offered, counts.lanes[0].dropped.kernel),
        (200, 0)
    );
}

#[test]
fn without_stamps_of_a_nic_a_device_is_refused_and_a_packet_has_the_hosts_time() {
    require_root!();
    let net = Namespace::with_veth("packet_nic_time");
    for device in ["packet:rx0", "tap:rx0", "rx0"] {
        let text = format!("{device}?stamps=adapter_unsynced");
        let opened = net.enter(|| ringtap_capture::open(&text.parse().expect("a device")));
        let refused = opened.err().map(|error| error.to_string());
        let refused = refused.unwrap_or_default();
        assert!(refused.contains("the NIC stamps no packets"), "{refused}");
    }
    let asked = with(options(), |it| {
        it.stamps = StampClock::Nic;
        it.direction = Direction::In;
    });
    let mut capture = Capture::start(&net, &asked);
    net.inject("tx0", &[frame(&[], 61)]);
    capture.read_until(1);
    let (packets, _) = capture.finish();
    assert!(!packets[0].has(flag::NIC_TIME), "{:?}", packets[0].slot);
    assert!(packets[0].slot.time_ns > 0);
}
