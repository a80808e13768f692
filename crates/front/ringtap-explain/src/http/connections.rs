// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that a server serves at the same time.
//!
//! Invariants
//! - At most [`MAX_CONNECTIONS`] are open, of them at most [`MAX_PER_ADDRESS`] of one address.
//! - A new connection is always served. Where that exceeds a limit, the oldest connection without a whole request
//!   ends for it; so clients that are silent or slow keep nobody waiting.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tokio::task::AbortHandle;

/// Most connections at the same time.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// Most of them by one address.
pub(super) const MAX_PER_ADDRESS: usize = 8;
/// Bits of an IPv6 address that all addresses of one client share.
const NETWORK_BITS: u32 = 64;

/// Open connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(VecDeque<OpenConnection>);

#[derive(Debug)]
struct OpenConnection {
    client: IpAddr,
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl OpenConnections {
    /// Ends connections until a new one of this address fits.
    pub(super) fn make_room(&mut self, address: IpAddr) {
        self.0.retain(|one| !one.task.is_finished());
        let client = client_of(address);
        let of_client = self.0.iter().filter(|one| one.client == client);
        if of_client.count() >= MAX_PER_ADDRESS {
            self.end_oldest(|one| one.client == client);
        } else if self.0.len() >= MAX_CONNECTIONS {
            self.end_oldest(|_| true);
        }
    }

    /// Adds a connection that `task` serves; `has_asked` is set once its request is whole.
    pub(super) fn add(&mut self, address: IpAddr, has_asked: Arc<AtomicBool>, task: AbortHandle) {
        self.0.push_back(OpenConnection {
            client: client_of(address),
            has_asked,
            task,
        });
    }

    /// Ends the oldest of some connections that waits for its request, else the oldest of them.
    fn end_oldest(&mut self, is_one: impl Fn(&OpenConnection) -> bool) {
        let waits = |one: &OpenConnection| is_one(one) && !one.has_asked.load(Relaxed);
        let oldest = self.0.iter().position(waits);
        let oldest = oldest.or_else(|| self.0.iter().position(is_one));
        if let Some(one) = oldest.and_then(|at| self.0.remove(at)) {
            one.task.abort();
        }
    }
}

/// What counts as one address: of IPv6 the network, of which one client may have all addresses.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = u128::MAX << (128 - NETWORK_BITS);
            Ipv6Addr::from_bits(address.to_bits() & network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_network_are_one_client() {
        let client = |text: &str| client_of(text.parse().expect("an address"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
