// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of the hub's thread.

use ringtap_pool::wake::NoSignal;

use super::*;
use crate::HubOptions;
use crate::fed::{FedSource, Feed};

/// An engine with sources of this many chunks, and their feeds.
fn fed<const SOURCES: usize>(chunks: u32) -> (Engine, [Feed; SOURCES]) {
    let event = Event::new().expect("a descriptor");
    let doorbells = DoorbellWatch::new().expect("a descriptor");
    let percent = NonZeroU32::new(5).expect("not 0");
    let mut engine = Engine::new(Arc::new(doorbells), percent, event.clone(), event);
    let feeds = [(); SOURCES].map(|()| {
        let (source, feed) = FedSource::new(chunks);
        let options = HubOptions::default();
        let capture = SourceCapture::new(source.into(), &options, Arc::new(NoSignal));
        engine.add(capture);
        feed
    });
    (engine, feeds)
}

#[test]
fn a_step_reports_chunks_that_moved_in_any_number_of_sources() {
    let (mut engine, feeds) = fed::<2>(5);
    assert!(!engine.step(), "no chunk is open");
    feeds[0].write(1, 7);
    assert!(engine.step(), "a chunk is open");
    feeds.iter().for_each(|feed| feed.write(42, 7));
    assert!(engine.step(), "two chunks are open");
}

#[test]
fn no_step_takes_a_long_queue_at_once_and_a_reading_of_the_figures_takes_what_waits() {
    let (mut engine, [feed]) = fed::<1>(500);
    let is_drained = |engine: &Engine| engine.captures[0].distributor.is_drained();
    feed.write(42 * 200, 7);
    assert!(
        engine.step() && !is_drained(&engine),
        "readers are woken in between"
    );
    let figures = engine.figures(0);
    assert!(is_drained(&engine));
    assert_eq!(
        figures.sources[0].status.lanes[0].chunks_in_use, 1,
        "the open one"
    );
}

#[test]
fn a_pause_without_chunks_is_followed_by_a_sleep_that_is_announced() {
    let (mut phase, mut seen) = (Phase::Awake, Vec::new());
    for _ in 0..4 {
        let (next, then) = phase.next(true);
        phase = then;
        seen.push(next);
    }
    let first = IdleAction::Sleep(Some(FIRST_SLEEP));
    assert_eq!(
        seen,
        [
            IdleAction::Pause,
            IdleAction::Arm,
            first,
            IdleAction::Sleep(None)
        ]
    );
    assert!(PAUSE < FIRST_SLEEP, "readers rely on it");
}
