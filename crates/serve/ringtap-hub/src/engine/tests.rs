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
    let mut engine = Engine::new(Arc::new(doorbells), event.clone(), event);
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
