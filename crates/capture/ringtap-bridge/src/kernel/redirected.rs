// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcome of packets that XDP redirected, from the kernel's tracepoints.
//!
//! Invariants
//! - Only packets of the two interfaces are counted. An interface index is unique only within its
//!   network namespace, so the program compares the namespace too.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};

use ringtap_bpf::object::{self, ObjectFile};

use crate::BridgeError;

/// The compiled `bpf/redirect.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o")));

/// Outcome of packets from one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RedirectFate {
    pub(super) sent: u64,
    /// The other interface's queue was full.
    pub(super) full: u64,
    /// Not offered to the other interface.
    pub(super) refused: u64,
}

/// Counts redirected packets by outcome.
pub(super) struct Redirected {
    counters: MapHandle,
    _links: Vec<Link>,
}

impl Redirected {
    /// Counts from now on, for these interfaces of the calling thread's namespace.
    pub(super) fn watch(interfaces: [u32; 2]) -> Result<Self, BridgeError> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")
            .map_err(BridgeError::system("asking for the network namespace"))?
            .ino();
        let namespace = u32::try_from(namespace).unwrap_or(u32::MAX);
        let pair: Vec<u8> = [namespace, interfaces[0], interfaces[1]]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let object = object::load(OBJECT, |open| {
            object::set_constants(open, ".rodata.pair", &pair)
        });
        let tracepoints = |failure: object::LoadFailure| BridgeError::Tracepoints {
            reason: failure.to_string(),
        };
        let object = object.map_err(tracepoints)?;
        let programs = ["rt_transmitted", "rt_not_redirected"];
        let links = object::attach_tracepoints(&object, &programs).map_err(tracepoints)?;
        let counters = object::map(&object, "rt_redirected");
        Ok(Redirected {
            counters: counters.map_err(BridgeError::system("finding the counters"))?,
            _links: links,
        })
    }

    /// Outcome of packets from the first (0) or the second (1) interface.
    pub(super) fn fate(&self, side: u32) -> RedirectFate {
        let value = self.counters.lookup(&side.to_ne_bytes(), MapFlags::ANY);
        let value = value.ok().flatten().unwrap_or_default();
        let (words, _) = value.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        RedirectFate {
            sent: word(0),
            full: word(1),
            refused: word(2),
        }
    }
}
