// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publishing: a reader's view of a chunk that is being filled.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use ringtap_pool::format::Slot;
use ringtap_pool::publish::{ChunkState, get_slot, observe, publish, put_slot, seal};
use ringtap_pool::{AtomicU32, AtomicU64};

/// A chunk for two packets; payloads are plain memory checked by loom.
struct Chunk {
    state: AtomicU32,
    slots: [[AtomicU64; 4]; 2],
    payloads: [UnsafeCell<u64>; 2],
}

/// Every word of a slot contains the packet's number, to detect a torn slot.
fn slot(number: u32) -> Slot {
    let half = u16::try_from(number).unwrap();
    Slot {
        time_ns: u64::from(number),
        mask: u64::from(number),
        hash: number,
        wire_length: number,
        captured_length: number,
        flags: 0,
        payload: half,
        queue: half,
    }
}

impl Chunk {
    fn new() -> Arc<Self> {
        let slot = || [const { 0 }; 4].map(AtomicU64::new);
        Arc::new(Chunk {
            state: AtomicU32::new(0),
            slots: [slot(), slot()],
            payloads: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn put(&self, index: u32) {
        let (number, at) = (index + 1, usize::try_from(index).unwrap());
        // SAFETY: not yet published, so nobody reads it; loom checks exactly this.
        self.payloads[at].with_mut(|place| unsafe { *place = u64::from(number) });
        put_slot(&self.slots[at], slot(number));
    }

    /// Reads all published packets and checks that they are complete.
    fn check(&self) -> ChunkState {
        let state = observe(&self.state);
        for (index, number) in (0..state.published).zip(1..) {
            let at = usize::try_from(index).unwrap();
            assert_eq!(get_slot(&self.slots[at]), slot(number));
            // SAFETY: published, so not written any more; loom checks exactly this.
            let payload = self.payloads[at].with(|place| unsafe { *place });
            assert_eq!(payload, u64::from(number));
        }
        state
    }
}

fn filled_while_read(fill: fn(&Chunk)) {
    loom::model(move || {
        let chunk = Chunk::new();
        let writing = thread::spawn({
            let chunk = Arc::clone(&chunk);
            move || fill(&chunk)
        });
        let (first, second) = (chunk.check(), chunk.check());
        assert!(second.published >= first.published, "a count never falls");
        assert!(
            !first.sealed || first == second,
            "nothing follows once sealed"
        );
        writing.join().unwrap();
        let last = chunk.check();
        let all = ChunkState {
            published: 2,
            sealed: true,
        };
        assert_eq!(last, all);
        assert!(
            !second.sealed || second == all,
            "who sees the seal sees the final count"
        );
    });
}

#[test]
fn a_published_packet_is_complete() {
    filled_while_read(|chunk| {
        chunk.put(0);
        publish(&chunk.state, 1);
        chunk.put(1);
        publish(&chunk.state, 2);
        seal(&chunk.state, 2);
    });
}

#[test]
fn packets_published_together_are_complete() {
    filled_while_read(|chunk| {
        chunk.put(0);
        chunk.put(1);
        publish(&chunk.state, 2);
        seal(&chunk.state, 2);
    });
}

#[test]
fn packets_published_by_the_seal_are_complete() {
    filled_while_read(|chunk| {
        chunk.put(0);
        publish(&chunk.state, 1);
        chunk.put(1);
        seal(&chunk.state, 2);
    });
}
