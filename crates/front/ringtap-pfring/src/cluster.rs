// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clusters of rings whose packets Ringtap does not divide: of an interface, or of a group that sends all packets to
//! each member.
//!
//! Invariants
//! - Such a cluster has one ring in a network namespace: a second one would receive the packets of the first again.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::error::RingError;

/// The one place in a cluster; free again when it is dropped.
pub(crate) struct ClusterPlace {
    /// Its abstract name is unique in the namespace, and the kernel removes it with the process.
    _name: OwnedFd,
}

impl ClusterPlace {
    /// Takes the place in this cluster of a device.
    ///
    /// # Errors
    ///
    /// [`RingError::Unsupported`]: another ring has it.
    pub(crate) fn take(device: &str, cluster: u32) -> Result<Self, RingError> {
        let mut name = format!("ringtap-cluster-{cluster}-{device}").into_bytes();
        // Most bytes of an abstract name.
        name.truncate(107);
        let address = SocketAddrUnix::new_abstract_name(&name).map_err(std::io::Error::from)?;
        let kind = (AddressFamily::UNIX, SocketType::DGRAM);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)
            .map_err(std::io::Error::from)?;
        bind(&socket, &address).map_err(|error| match error {
            rustix::io::Errno::ADDRINUSE => RingError::Unsupported,
            error => RingError::Send(error.into()),
        })?;
        Ok(ClusterPlace { _name: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterPlace;
    use crate::error::RingError;

    #[test]
    fn a_cluster_that_nobody_divides_has_one_ring() {
        let device = format!("test{}", std::process::id());
        let first = ClusterPlace::take(&device, 7).expect("the first ring");
        let second = ClusterPlace::take(&device, 7);
        assert!(matches!(second, Err(RingError::Unsupported)));
        let _other = ClusterPlace::take(&device, 8).expect("another cluster");
        drop(first);
        let _next = ClusterPlace::take(&device, 7).expect("it is free again");
    }
}
