// SPDX-License-Identifier: MIT OR Apache-2.0
//! The groups of the machine's hub, as devices in libpcap's list; and which of a list are ours.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ringtap_client::{Connection, default_socket};

/// A group that can be read.
pub(crate) struct Group {
    /// As a device is named.
    pub(crate) name: String,
    /// What it gives, for people.
    pub(crate) description: String,
}

/// Addresses of devices that this library put into lists.
static OURS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The groups of the hub, if one runs and tells this user.
pub(crate) fn groups() -> Vec<Group> {
    let hub = Connection::open(&default_socket(), "libpcap").ok();
    let Some(status) = hub.and_then(|hub| hub.status().ok()) else {
        return Vec::new();
    };
    let sources: Vec<_> = status.sources.iter().map(|one| &*one.device).collect();
    let sources = sources.join(", ");
    let groups = status.groups.iter().map(|group| Group {
        name: format!("hub:{}", group.name),
        description: match group.filter.is_empty() {
            true => format!("Ringtap's capture of {sources}"),
            false => format!("Ringtap's capture of {sources}: {}", group.filter),
        },
    });
    groups.collect()
}

pub(crate) fn remember(device: usize) {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    ours.insert(device);
}

/// Whether it was ours; it is not any more.
pub(crate) fn forget(device: usize) -> bool {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    ours.remove(&device)
}
