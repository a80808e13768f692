// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own words when it refuses to attach an XDP program: `bpf/refusal.bpf.c`.

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use rustix::thread::gettid;

use crate::object::{self, ObjectFile};

/// The compiled `bpf/refusal.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/refusal.bpf.o")));

/// The only entry of the map, and the room for words in it.
const KEY: [u8; 4] = [0; 4];
const REASON: usize = 120;

/// Records why the kernel refuses XDP programs that this thread attaches.
pub(crate) struct Refusals {
    map: MapHandle,
    _links: Vec<Link>,
}

impl Refusals {
    /// Records from now on; `None` where the kernel has no such tracepoint (before 6.5).
    pub(crate) fn record() -> Option<Self> {
        let object = object::load(OBJECT, |_| Ok(())).ok()?;
        let map = object::map(&object, "rt_refusal").ok()?;
        let thread = u64::try_from(gettid().as_raw_pid()).ok()?;
        let value = [&thread.to_ne_bytes()[..], &[0; REASON]].concat();
        map.update(&KEY, &value, MapFlags::ANY).ok()?;
        let links = object::attach_tracepoints(&object, &["rt_refused"]).ok()?;
        Some(Refusals { map, _links: links })
    }

    /// The last reason; `None` if there is none.
    pub(crate) fn last(&self) -> Option<String> {
        let value = self.map.lookup(&KEY, MapFlags::ANY).ok()??;
        let bytes = value.into_iter().skip(8);
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}
