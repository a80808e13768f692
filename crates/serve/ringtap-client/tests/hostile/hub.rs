// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub with random answers and random descriptors, over a real socket.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Next, Receiver, SubscriptionRequest, Tally, Watermark};
use ringtap_filter::{FilterLocation, Program};
use ringtap_ipc::doorbell::doorbell;
use ringtap_ipc::protocol::{LaneSnapshot, Reply, Snapshot, SourceSnapshot, encode};
use ringtap_ipc::socket::{Listener, Socket};
use ringtap_ipc::subscription::{Attached, AttachedEndpoint, SubscriptionId, Wanted};
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::FIRST_EPOCH;
use ringtap_pool::source::Facts;
use ringtap_testkit::{LIMIT, Script};

use crate::regions::Regions;

/// A true number, or one that may break the reader.
fn number(script: &mut Script<'_>, truth: u64) -> u64 {
    match script.byte() % 8 {
        0..=4 => truth,
        5 => script.one_of(&[0, 1, 4096, 1 << 40, u64::MAX, u64::MAX - 4095, 1 << 63]),
        6 => truth.wrapping_add(u64::from(script.byte())),
        _ => script.word(),
    }
}

/// The right descriptor, or another one.
fn descriptor<'a>(
    script: &mut Script<'_>,
    truth: BorrowedFd<'a>,
    others: &'a [OwnedFd],
) -> BorrowedFd<'a> {
    match usize::from(script.byte()).checked_sub(200) {
        Some(other) => others[other % others.len()].as_fd(),
        None => truth,
    }
}

/// Descriptors that are neither pool nor control region; some are doorbells without another end.
fn strangers() -> Vec<OwnedFd> {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("two descriptors");
    let (reading, writing) = std::io::pipe().expect("two descriptors");
    let small = tempfile::tempfile().expect("a file");
    small.set_len(100).expect("a little room");
    vec![
        File::open("/dev/null").expect("it is there").into(),
        near.into(),
        far.into(),
        reading.into(),
        writing.into(),
        small.into(),
    ]
}

fn endpoint(script: &mut Script<'_>, regions: &Regions) -> AttachedEndpoint {
    let bytes =
        |region: &ringtap_pool::memory::Region| u64::try_from(region.bytes()).expect("it fits");
    AttachedEndpoint {
        pool_offset: 0,
        facts: Facts {
            device: "lie".into(),
            link_type: 1,
            snap_length: 2000,
            policy: script.one_of(&[
                Policy::DropNewest,
                Policy::Cut { snap_bytes: 0 },
                Policy::Sample { one_in: 0 },
            ]),
            ..Facts::default()
        },
        epoch: number(script, FIRST_EPOCH),
        pool_bytes: number(script, bytes(&regions.pool)),
        control_bytes: number(script, bytes(&regions.control)),
        wakes: script.byte() % 8 == 7,
        wanted: Wanted {
            mask: u64::MAX,
            group: 0,
            marks: 0,
            place: FilterLocation::Source,
            filter: Program::everything(),
            from: vec![number(script, 0); usize::from(script.byte() % 4)],
        },
    }
}

/// Encodes a message whose filters may be invalid programs.
fn with_filter(reply: &Reply, script: &mut Script<'_>) -> Vec<u8> {
    let message = encode(reply);
    if script.byte() % 4 < 3 {
        return message;
    }
    let entries: Vec<_> = (0..script.byte() % 5)
        .map(|_| script.word().to_string())
        .collect();
    let filter = format!("\"filter\":[{}]", entries.join(","));
    let text = String::from_utf8(message).expect("JSON is text");
    text.replace("\"filter\":[]", &filter).into_bytes()
}

fn counters(script: &mut Script<'_>) -> Counters {
    Counters {
        offered: number(script, 30),
        delivered: number(script, 30),
        filtered: number(script, 0),
        shunted: number(script, 0),
        other_members: number(script, 0),
        bytes: number(script, 0),
        dropped: Dropped {
            nic: number(script, 0),
            kernel: number(script, 0),
            pool_full: number(script, 0),
            ..Dropped::default()
        },
    }
}

fn snapshot(script: &mut Script<'_>) -> Snapshot {
    let mut lane = || LaneSnapshot {
        start: number(script, 0),
        position: number(script, 30),
        counters: counters(script),
        missed_sequences: number(script, 0),
        missed_packets: number(script, 0),
        missed_other_members: number(script, 0),
        withheld_packets: number(script, 0),
        withheld_bytes: number(script, 0),
        withheld_other_members: number(script, 0),
    };
    Snapshot {
        sources: vec![SourceSnapshot {
            lanes: vec![lane(), lane()],
            dropped: counters(script).dropped,
            ended: script.byte() % 2 == 1,
            failure: None,
            is_removed: false,
        }],
    }
}

/// Serves one connection by the script, then hangs up.
fn serve(listener: &Listener, script: &mut Script<'_>, regions: &Regions) {
    let until = Instant::now() + LIMIT;
    let socket = loop {
        match listener.accept().expect("descriptors are left") {
            Some(socket) => break socket,
            None => std::thread::yield_now(),
        }
        assert!(Instant::now() < until, "the reader does not come");
    };
    let hello = Reply::Hello {
        protocol: if script.byte() < 250 { 1 } else { 2 },
        features: Vec::new(),
        version: String::new(),
        link_types: vec![1],
    };
    let _gone = socket.send(&encode(&hello), &[]);
    let endpoints = match script.byte() {
        0..200 => vec![endpoint(script, regions)],
        other => (0..other % 4).map(|_| endpoint(script, regions)).collect(),
    };
    let (_near, doorbell) = doorbell().expect("three descriptors");
    let others = strangers();
    let mut fds = Vec::new();
    for fd in doorbell.descriptors() {
        fds.push(descriptor(script, fd, &others));
    }
    for _ in &endpoints {
        fds.push(descriptor(script, regions.pool_file.as_fd(), &others));
        fds.push(descriptor(script, regions.control_file.as_fd(), &others));
    }
    fds.truncate(match script.byte() {
        0..200 => fds.len(),
        other => usize::from(other % 8),
    });
    for _ in 0..script.byte() % 6 {
        regions.spoil(script);
    }
    let attached = Reply::Attached(Attached {
        reader: SubscriptionId(1),
        watermark: Watermark::default(),
        endpoints,
    });
    let _gone = socket.send(&with_filter(&attached, script), &fds);
    let wanted = endpoint(script, regions).wanted;
    let filtered = Reply::Filtered {
        wanted: vec![wanted],
    };
    let _gone = socket.send(&with_filter(&filtered, script), &[]);
    let _gone = socket.send(&encode(&Reply::Statistics(snapshot(script))), &[]);
    let _gone = socket.send(script.rest(), &[]);
    listen_to_the_end(&socket);
}

/// Receives all messages until the connection ends.
fn listen_to_the_end(socket: &Socket) {
    let mut buffer = vec![0; MAX_BYTES];
    let until = Instant::now() + LIMIT;
    loop {
        match socket.receive(&mut buffer) {
            Ok(([], _)) => return,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        assert!(Instant::now() < until, "the reader hangs");
    }
}

/// Reads from that hub; returns the number of packets received.
fn read(path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let request = SubscriptionRequest::new("all", "reader");
    let (subscription, connection) = Connection::attach(path, &request)?;
    let mut receiver = Receiver::new(subscription, connection)?;
    let mut tally = Tally::new(receiver.lanes());
    receiver.set_filter(&Program::everything())?;
    for _ in 0..20 {
        let Next::Batch(batch) = receiver.next(Some(Duration::ZERO))? else {
            break;
        };
        tally.count_batch(&batch, |packet| {
            std::hint::black_box(packet.data.iter().fold(0, |sum, byte| sum ^ byte));
            true
        })?;
        receiver.publish_progress(&tally);
    }
    let _balance = tally.total(&receiver.snapshot()?).balance();
    let _noise = receiver.snapshot();
    Ok(tally.packets())
}

/// Runs the script in these bytes; returns the number of packets that a reader received.
pub(crate) fn run(bytes: &[u8]) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let listener = Listener::bind(&path).expect("a socket");
    let regions = Regions::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&listener, &mut Script::new(bytes), &regions));
        let read = read(&path).unwrap_or(0);
        served.join().expect("the false hub ends");
        read
    })
}
