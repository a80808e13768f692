// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers over the hub's socket, whose memory goes with a device and comes with another.

use ringtap_client::{Batch, Connection, Next, ReceiveError, Receiver};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_ipc::socket::Listener;

use super::*;

/// A reader that has one batch.
struct OtherReader {
    receiver: Receiver,
    batch: Batch,
}

impl OtherReader {
    /// Takes batches until one has this many packets, all of them of this length.
    fn take(receiver: &mut Receiver, packets: usize, length: usize) -> Batch {
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "no packets");
            let next = receiver.next(Some(Duration::from_millis(10)));
            if let Next::Batch(batch) = next.unwrap() {
                assert_eq!(lengths(&batch), vec![length; packets]);
                return batch;
            }
        }
    }
}

fn lengths(batch: &Batch) -> Vec<usize> {
    let packets = batch.packets().map(Result::unwrap);
    packets.map(|packet| packet.packet.data.len()).collect()
}

/// A reader of the agent's socket, with the first batch of its packets.
fn attached(both: &mut GroupAndHost, hub: &Hub, folder: &std::path::Path) -> (Server, OtherReader) {
    let path = folder.join("ids.sock");
    let listener = Listener::bind(&path).unwrap();
    let server = Server::open(listener, hub, ServerOptions::default()).unwrap();
    let mut receiver = both.while_serving(hub.handle(), |_| {
        let request = SubscriptionRequest::new("ids", "other");
        let (subscription, connection) = Connection::attach(&path, &request).unwrap();
        Receiver::new(subscription, connection).unwrap()
    });
    both.settle();
    both.capture(&[61, 61]);
    let batch = OtherReader::take(&mut receiver, 2, 61);
    (server, OtherReader { receiver, batch })
}

#[test]
fn what_a_reader_holds_stays_while_the_device_of_its_memory_is_exchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, mut both) = both();
    let (_server, mut other) = attached(&mut both, &hub, folder.path());
    // The device goes; its memory reads as zeros.
    both.group.leave(POOL);
    assert!(!both.group.is_settled(), "the reader has it mapped");
    let next = other.receiver.next(Some(Duration::from_millis(200)));
    assert!(matches!(next, Ok(Next::Empty)));
    both.settle();
    both.group.end();
    both.part = None;
    let file = std::fs::File::from(both.devices.pool.file.try_clone().unwrap());
    let zeros = vec![0; both.devices.pool.region.bytes()];
    std::os::unix::fs::FileExt::write_all_at(&file, &zeros, 0).unwrap();
    assert_eq!(lengths(&other.batch), [61, 61]);
    // Another one comes, of which the chunk that the reader has is no part.
    both.devices = Devices::plug(POOL + 10);
    both.group.begin(granted());
    both.serve_until(|both| both.part.is_some());
    both.settle();
    for _ in 0..2000 {
        both.capture(&[1000]);
        // The pool has room for what one reader has not read yet, not for 2,000 packets.
        let next = other.receiver.next(Some(LIMIT)).unwrap();
        let Next::Batch(batch) = next else {
            panic!("no packet came")
        };
        assert!(lengths(&batch).iter().all(|length| *length == 1000));
        assert_eq!(lengths(&other.batch), [61, 61]);
    }
    drop(other.batch);
}

#[test]
fn a_reader_that_does_not_take_the_next_memory_ends_and_delays_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, mut both) = both();
    let (_server, mut other) = attached(&mut both, &hub, folder.path());
    both.group.leave(POOL);
    both.settle();
    let end = loop {
        match other.receiver.next(Some(Duration::from_millis(10))) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(end, ReceiveError::Corrupt(_)), "{end}");
}
