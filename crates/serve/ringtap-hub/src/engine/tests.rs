// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of the hub's thread.

use ringtap_pool::wake::NoSignal;

use super::*;
use crate::HubOptions;
use crate::fed::FedSource;

#[test]
fn a_step_reports_chunks_that_moved_in_any_number_of_sources() {
    let event = Event::new().expect("a descriptor");
    let doorbells = DoorbellWatch::new().expect("a descriptor");
    let percent = NonZeroU32::new(5).expect("not 0");
    let mut engine = Engine::new(Arc::new(doorbells), percent, event.clone(), event);
    let feeds = [(), ()].map(|()| {
        let (source, feed) = FedSource::new(5);
        let options = HubOptions::default();
        let capture = SourceCapture::new(Box::new(source), &options, Arc::new(NoSignal));
        engine.add(capture);
        feed
    });
    assert!(!engine.step(), "no chunk is open");
    feeds[0].write(1, 7);
    assert!(engine.step(), "a chunk is open");
    feeds.iter().for_each(|feed| feed.write(42, 7));
    assert!(engine.step(), "two chunks are open");
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
