// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan in force, from which workers learn of changes.
//!
//! Invariants
//! - A worker takes the lock of the plan only after a change, between two batches; nobody holds it for long.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex};

use ringtap_ipc::mutex::lock;

use crate::plan::ProbePlan;

/// The plan in force, for all workers.
pub(crate) struct PlanBoard {
    generation: AtomicU64,
    posted: Mutex<PostedPlan>,
}

/// A plan, and the last request for results.
#[derive(Clone)]
pub(crate) struct PostedPlan {
    pub(crate) plan: Arc<ProbePlan>,
    pub(crate) snapshot: Option<SnapshotRequest>,
}

/// A request for the results of one analysis or all; requests differ in their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRequest {
    pub(crate) time_ns: u64,
    pub(crate) analysis: Option<String>,
}

impl PlanBoard {
    pub(crate) fn new(plan: ProbePlan) -> Self {
        let posted = PostedPlan {
            plan: Arc::new(plan),
            snapshot: None,
        };
        PlanBoard {
            generation: AtomicU64::new(0),
            posted: Mutex::new(posted),
        }
    }

    /// Number of changes so far.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Pairs with the release in `change`: a worker that sees the number finds the change.
        self.generation.load(Acquire)
    }

    pub(crate) fn posted(&self) -> PostedPlan {
        lock(&self.posted).clone()
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut PostedPlan) -> R) -> R {
        let mut posted = lock(&self.posted);
        let result = change(&mut posted);
        // Pairs with the acquire in `generation`.
        self.generation.fetch_add(1, Release);
        result
    }
}
