// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of fragmented datagrams, for their later fragments, which carry none.
//!
//! Invariants
//! - The memory is fixed: a new datagram takes the place of an older one with the same hash.

use ringtap_filter::hash::Fragment;

use crate::packet::{Dissected, PacketKey, Secret, low_half};

/// Datagrams whose ports are kept.
const DATAGRAMS: usize = 4096;
/// Nanoseconds after which a sender may use a datagram's number again.
const LIFETIME_NS: u64 = 30_000_000_000;

/// The ports of recent datagrams.
pub(super) struct FragmentPorts(Vec<Option<Datagram>>);

#[derive(Clone, Copy)]
struct Datagram {
    key: PacketKey,
    id: u32,
    time_ns: u64,
    ports: (u16, u16),
}

impl FragmentPorts {
    pub(super) fn new() -> Self {
        FragmentPorts(Vec::new())
    }

    /// Gives a later fragment the ports that its first one had.
    pub(super) fn complete(&mut self, packet: &mut Dissected, fragment: Fragment, secret: &Secret) {
        self.0.resize(DATAGRAMS, None);
        let mut key = packet.key;
        key.ports = (0, 0);
        let hash = low_half(secret.hash(&key)).wrapping_add(fragment.id.wrapping_mul(0x9e37_79b9));
        let place = &mut self.0[(hash >> 8) as usize % DATAGRAMS];
        if fragment.is_first {
            *place = Some(Datagram {
                key,
                id: fragment.id,
                time_ns: packet.time_ns,
                ports: packet.key.ports,
            });
        } else if let Some(datagram) = place
            && (datagram.key, datagram.id) == (key, fragment.id)
            && packet.time_ns.saturating_sub(datagram.time_ns) < LIFETIME_NS
        {
            packet.key.ports = datagram.ports;
            packet.hash = secret.hash(&packet.key);
        }
    }
}
