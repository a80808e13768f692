// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes connections through which peers may have sent descriptors.
//!
//! Closing the last copy of a descriptor can take as long as its sender likes, for instance that of a
//! TCP connection that lingers. Since Linux 6.16 the kernel refuses such messages
//! ([`ringtap_ipc::socket::Socket::refuses_descriptors`]). On older kernels a thread of its own closes each
//! connection, with everything that arrived through it.
//!
//! Invariants
//! - The calling thread closes no descriptor that a peer sent.
//! - A connection counts as its user's until it is closed, which bounds the number of these threads.

use std::mem::ManuallyDrop;
use std::thread::JoinHandle;

use super::admission::UserClass;

/// Connections that threads are closing.
#[derive(Default)]
pub(super) struct ClosingConnections(Vec<(u32, UserClass, JoinHandle<()>)>);

impl ClosingConnections {
    /// Closes everything that `what` owns, on another thread.
    pub(super) fn close<T: Send + 'static>(&mut self, uid: u32, class: UserClass, what: T) {
        let what = ManuallyDrop::new(what);
        let close = move || drop(ManuallyDrop::into_inner(what));
        let thread = std::thread::Builder::new().name("closing".into());
        match thread.spawn(close) {
            Ok(thread) => self.0.push((uid, class, thread)),
            // Leaks the descriptors: to close them here could take for ever.
            Err(error) => tracing::error!(uid, "cannot close a connection: {error}"),
        }
    }

    /// Users of the connections that are not closed yet.
    pub(super) fn users(&mut self) -> impl Iterator<Item = (u32, UserClass)> {
        self.0.retain(|(_, _, thread)| !thread.is_finished());
        self.0.iter().map(|(uid, class, _)| (*uid, *class))
    }
}
