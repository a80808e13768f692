// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues in front of exporters that are slow, stand still, or fail.

use super::*;
use crate::record::Measurement;

/// Waits for a permit before each batch; fails if the permit says so.
struct Gated(Receiver<Result<(), ExportError>>);

impl Exporter for Gated {
    fn name(&self) -> String {
        "gated".into()
    }

    fn write(&mut self, _: &[Record]) -> Result<(), ExportError> {
        self.0.recv().unwrap_or(Ok(()))
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }
}

/// Counts the records of all writers, each of which is slow.
struct Slow(Arc<AtomicU64>);

impl Exporter for Slow {
    fn name(&self) -> String {
        "slow".into()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        thread::sleep(PAUSE);
        self.0.fetch_add(to_u64(records.len()), Relaxed);
        Ok(())
    }

    fn helper(&self) -> Option<Box<dyn Exporter>> {
        Some(Box::new(Slow(Arc::clone(&self.0))))
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

fn records(count: usize) -> Records {
    let one = Measurement {
        analysis: "test".into(),
        name: "test".into(),
        key: None,
        from_ns: 0,
        to_ns: 0,
        values: Vec::new(),
    };
    vec![Record::Measurement(Box::new(one)); count].into()
}

#[test]
fn a_stopped_exporter_delays_nobody_and_each_record_is_counted() {
    let (permits, gate) = sync_channel(1000);
    let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
    for _ in 0..50 {
        queue.send(records(10), WhenFull::Drop, None);
    }
    let counters = queue.status.counters();
    assert_eq!(counters.dropped_queue_full, 400, "{counters:?}");
    assert_eq!(counters.waiting, 100, "{counters:?}");
    permits
        .send(Err(ExportError("gone".into())))
        .expect("it runs");
    drop(permits);
    let counters = queue.finish(later(), &mut drop);
    let want = ExportCounters {
        name: "gated".into(),
        written: 90,
        dropped_queue_full: 400,
        dropped_failed: 10,
        waiting: 0,
        reconnects: 0,
        unread: false,
    };
    assert_eq!(counters, want);
}

#[test]
fn the_end_does_not_wait_for_a_stopped_exporter_for_ever() {
    let (_permits, gate) = sync_channel(1);
    let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
    queue.send(records(7), WhenFull::Drop, None);
    let counters = queue.finish(Instant::now() + Duration::from_millis(50), &mut drop);
    assert_eq!(counters.waiting, 7);
}

#[test]
fn helpers_write_each_record_once() {
    let written = Arc::new(AtomicU64::new(0));
    let queue = ExportQueue::start(Box::new(Slow(Arc::clone(&written))), 100_000);
    let queue = queue.expect("threads");
    for _ in 0..200 {
        queue.send(records(500), WhenFull::Wait, None);
    }
    let counters = queue.finish(later(), &mut drop);
    assert_eq!((counters.written, counters.waiting), (100_000, 0));
    assert_eq!(written.load(Relaxed), 100_000);
}

#[test]
fn the_last_records_wait_for_room_but_not_for_a_destination_that_fails() {
    let slow = ExportQueue::start(Box::new(Slow(Arc::default())), 100).expect("threads");
    for _ in 0..50 {
        slow.send(records(10), WhenFull::Drop, Some(later()));
    }
    let counters = slow.finish(later(), &mut drop);
    assert_eq!((counters.written, counters.lost()), (500, 0));

    let (permits, gate) = sync_channel(1000);
    let failing = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
    failing.send(records(100), WhenFull::Drop, None);
    failing.status.note(Err(ExportError("gone".into())));
    failing.send(records(10), WhenFull::Drop, Some(later()));
    assert_eq!(failing.status.counters().dropped_queue_full, 10);
    drop(permits);
    failing.finish(later(), &mut drop);
}

#[test]
fn the_last_records_of_a_file_wait_also_for_a_destination_that_fails() {
    let (permits, gate) = sync_channel(1000);
    let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
    queue.send(records(100), WhenFull::Wait, None);
    queue.status.note(Err(ExportError("gone".into())));
    let queues = ExportQueues {
        queues: vec![queue],
        when_full: WhenFull::Wait,
        room_until: OnceLock::from(Instant::now()),
    };
    thread::scope(|scope| {
        let sender = scope.spawn(|| queues.send_last(&mut records(10).to_vec()));
        thread::sleep(10 * PAUSE);
        assert!(!sender.is_finished());
        drop(permits);
    });
    let counters = queues.finish(Duration::from_secs(300), &mut drop);
    assert_eq!((counters[0].written, counters[0].lost()), (110, 0));
}

#[test]
fn the_user_hears_of_losses_when_they_begin_and_at_the_end() {
    let (permits, gate) = sync_channel(1000);
    let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
    assert_eq!(queue.status.warning(), None);
    for _ in 0..20 {
        queue.send(records(10), WhenFull::Drop, None);
    }
    let warning = queue.status.warning().expect("losses");
    assert!(warning.contains("gated: records are being lost: the destination takes them slower"));
    assert_eq!(queue.status.warning(), None, "once is enough");
    let gone = Err(ExportError("nobody listens".into()));
    permits.send(gone).expect("it runs");
    drop(permits);
    let mut notes = Vec::new();
    let counters = queue.finish(later(), &mut |note| notes.push(note));
    assert_eq!((counters.lost(), counters.failed()), (110, 10));
    assert_eq!(
        notes,
        ["gated: 110 of 200 records were lost: nobody listens"]
    );
}

/// Fails; its helper has nothing to do.
struct Broken;

impl Exporter for Broken {
    fn name(&self) -> String {
        "broken".into()
    }

    fn write(&mut self, _: &[Record]) -> Result<(), ExportError> {
        Err(ExportError("no room".into()))
    }

    fn helper(&self) -> Option<Box<dyn Exporter>> {
        Some(Box::new(Slow(Arc::default())))
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        Err(ExportError("no room".into()))
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Err(ExportError("no room".into()))
    }
}

#[test]
fn a_helper_with_nothing_to_do_ends_no_failure() {
    let queue = ExportQueue::start(Box::new(Broken), 100).expect("threads");
    queue.send(records(1), WhenFull::Drop, None);
    while queue.status.counters().dropped_failed == 0 || queue.status.failure().is_none() {
        thread::sleep(PAUSE);
    }
    // The helper looks several times; the first look of the exporter's own thread is after a second.
    for _ in 0..10 {
        thread::sleep(HELPER_LOOK);
        assert_eq!(queue.status.failure().as_deref(), Some("no room"));
    }
    let counters = queue.finish(later(), &mut drop);
    assert_eq!(counters.failed(), 1);
}
