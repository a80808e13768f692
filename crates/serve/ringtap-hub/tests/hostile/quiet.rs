// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source without packets, with a pool that other processes may map.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, LaneCounts, Source, Status};
use ringtap_pool::view::Pool;

pub(crate) struct Quiet {
    facts: Facts,
    pool: SealedPool,
    lanes: Vec<LaneEnds>,
    event: Event,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        let geometry = Geometry::contiguous(4096, 5, 1, 1500).expect("it can be");
        let pool = SealedPool::create(geometry).expect("a little memory");
        let event = Event::new().expect("a descriptor");
        let (lane, chunks) = (LaneId(0), source::share(&geometry, LaneId(0)));
        let signal = Arc::new(event.clone());
        // SAFETY: mapped writable, made just now, and this is its only lane.
        let (_writer, ends) = unsafe { source::lane(&pool.writable, lane, chunks, signal) };
        Quiet {
            facts: Facts {
                device: "quiet".into(),
                link_type: 1,
                ..Facts::default()
            },
            lanes: vec![ends],
            pool,
            event,
        }
    }
}

impl Source for Quiet {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.readable.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool.file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        Counts {
            lanes: vec![LaneCounts::default()],
            ..Counts::default()
        }
    }

    fn status(&mut self) -> Status {
        Status::Running
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {}
}
