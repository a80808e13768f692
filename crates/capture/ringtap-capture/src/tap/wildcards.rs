// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wildcard rules in the kernel (`bpf/wildcard.h`).
//!
//! Invariants
//! - The set of rules in force is not written.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, libbpf_sys};
use ringtap_bpf::object as bpf;
use ringtap_filter::flow::{MAX_WILDCARDS, WILDCARD_WORDS, WildcardRule, Wildcards};
use ringtap_pool::number::to_u32;

/// The wildcard rules of one table.
pub(super) struct TapWildcards {
    map: MapHandle,
    rules: Wildcards,
}

impl TapWildcards {
    /// Makes the map, without rules.
    pub(super) fn new() -> io::Result<Self> {
        let size = size_of::<libbpf_sys::bpf_map_create_opts>();
        let options = libbpf_sys::bpf_map_create_opts {
            sz: libbpf_sys::size_t::try_from(size).map_err(io::Error::other)?,
            ..Default::default()
        };
        let (value, entries) = (to_u32(WILDCARD_WORDS * 8), to_u32(2 * MAX_WILDCARDS));
        let name = Some("rt_wildcards");
        let map = MapHandle::create(MapType::Array, name, 4, value, entries, &options);
        Ok(TapWildcards {
            map: map.map_err(|error| bpf::io_error(&error))?,
            rules: Wildcards::default(),
        })
    }

    /// The map's descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.map.as_fd().as_raw_fd()
    }

    /// Members with a rule.
    pub(super) fn members(&self) -> u64 {
        self.rules.members()
    }

    /// Writes rules; returns the word of the settings that puts them in force.
    pub(super) fn write(&mut self, rules: &[WildcardRule]) -> io::Result<u64> {
        let mut next = self.rules.clone();
        if next.apply(rules) {
            let set = u32::from(next.edition() % 2) * to_u32(MAX_WILDCARDS);
            for (number, words) in (set..).zip(next.to_words()) {
                let bytes: Vec<_> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
                let written = self
                    .map
                    .update(&number.to_ne_bytes(), &bytes, MapFlags::ANY);
                written.map_err(|error| bpf::io_error(&error))?;
            }
            self.rules = next;
        }
        let count = self.rules.to_words().len() as u64;
        Ok(u64::from(self.rules.edition()) << 32 | count)
    }
}
