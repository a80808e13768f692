// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: order, completeness, wrap-around, overflow, and visibility of earlier writes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use ringtap_pool::memory::Words;
use ringtap_pool::queue::{Consumer, Producer, PushError, QueueMemory};
use ringtap_pool::{AtomicU32, AtomicU64};

/// A queue with separate head and tail words, both starting at `start`.
fn queue(capacity: usize, start: u32) -> (Producer, Consumer) {
    let index = || Words::on_heap(vec![AtomicU32::new(start)]);
    let entries = (0..capacity).map(|_| AtomicU64::new(u64::MAX)).collect();
    let parts = QueueMemory::new(index(), index(), Words::on_heap(entries)).unwrap();
    (Producer::new(parts.clone()), Consumer::new(parts))
}

fn push_waiting(producer: &mut Producer, entry: u64) {
    while let Err(error) = producer.push(entry) {
        assert_eq!(error, PushError::Full);
        thread::yield_now();
    }
}

fn pop_waiting(consumer: &mut Consumer) -> u64 {
    loop {
        match consumer.pop().unwrap() {
            Some(entry) => return entry,
            None => thread::yield_now(),
        }
    }
}

/// Sends more entries than fit, so that each side waits for the other.
fn entries_come_in_order(capacity: usize, start: u32, count: u64) {
    loom::model(move || {
        let (mut producer, mut consumer) = queue(capacity, start);
        let pushing = thread::spawn(move || {
            for entry in 0..count {
                push_waiting(&mut producer, entry);
            }
        });
        for entry in 0..count {
            assert_eq!(pop_waiting(&mut consumer), entry);
        }
        pushing.join().unwrap();
        assert!(consumer.is_empty());
        assert_eq!(consumer.pop(), Ok(None));
    });
}

#[test]
fn entries_come_once_and_in_order_though_the_queue_is_full_meanwhile() {
    entries_come_in_order(2, 0, 3);
}

#[test]
fn entries_come_once_and_in_order_past_the_end_of_the_indices() {
    entries_come_in_order(2, u32::MAX, 3);
}

#[test]
fn a_queue_of_one_place_hands_over_one_by_one() {
    entries_come_in_order(1, u32::MAX - 1, 3);
}

#[test]
fn a_full_queue_refuses_and_keeps_what_it_has() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue(2, u32::MAX);
        producer.push(1).unwrap();
        producer.push(2).unwrap();
        let pushing = thread::spawn(move || {
            let third = producer.push(3).is_ok();
            (producer, third)
        });
        assert_eq!(consumer.pop(), Ok(Some(1)));
        let (mut producer, third) = pushing.join().unwrap();
        if !third {
            producer.push(3).unwrap();
        }
        assert_eq!(producer.push(4), Err(PushError::Full));
        assert_eq!(consumer.pop(), Ok(Some(2)));
        assert_eq!(consumer.pop(), Ok(Some(3)));
        assert_eq!(consumer.pop(), Ok(None));
    });
}

#[test]
fn what_was_written_before_a_push_is_seen_after_the_pop() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue(2, 0);
        let written = Arc::new(UnsafeCell::new(0));
        let writing = thread::spawn({
            let written = Arc::clone(&written);
            move || {
                // SAFETY: nobody reads before the push; loom checks exactly this.
                written.with_mut(|place| unsafe { *place = 7 });
                producer.push(0).unwrap();
            }
        });
        if consumer.pop().unwrap().is_some() {
            // SAFETY: written before the push; loom checks exactly this.
            assert_eq!(written.with(|place| unsafe { *place }), 7);
        }
        writing.join().unwrap();
    });
}

/// The cycle of a chunk: written, captured, read, returned, recycled, written again.
#[test]
fn a_chunk_is_written_again_only_after_it_was_read() {
    loom::model(|| {
        let (mut capture, mut captured) = queue(1, 0);
        let (mut recycle, mut recycled) = queue(1, 0);
        let payload = Arc::new(UnsafeCell::new(0));
        let writing = thread::spawn({
            let payload = Arc::clone(&payload);
            move || {
                for value in 1..=2 {
                    // SAFETY: the chunk is ours until pushed; loom checks exactly this.
                    payload.with_mut(|place| unsafe { *place = value });
                    capture.push(value).unwrap();
                    pop_waiting(&mut recycled);
                }
            }
        });
        for _ in 1..=2 {
            let value = pop_waiting(&mut captured);
            // SAFETY: the chunk is ours until pushed back; loom checks exactly this.
            assert_eq!(payload.with(|place| unsafe { *place }), value);
            recycle.push(value).unwrap();
        }
        writing.join().unwrap();
    });
}
