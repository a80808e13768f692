// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims a device's memory: readers of an agent that was killed read there until they have unmapped it, and nothing may
//! be written over what they read.
//!
//! The agent's description of the file has a shared lock, which readers get with the descriptor, and which their mappings
//! keep. So an exclusive lock is refused while any of them is left.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use ringtap_hub::MEMORY_TIME;
use rustix::fs::{FlockOperation, flock};

/// A claim on the memory of one device.
pub(super) struct Claim {
    file: Arc<OwnedFd>,
    until: Instant,
}

impl Claim {
    /// A claim on the memory of this file, which the agent gives to its readers.
    pub(super) fn new(file: Arc<OwnedFd>) -> Self {
        let until = Instant::now() + MEMORY_TIME;
        Claim { file, until }
    }

    /// Whether no reader of another agent is left, or those that are have had their time: then the memory may be written.
    pub(super) fn is_over(&self) -> bool {
        let is_alone = flock(&*self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !is_alone && Instant::now() < self.until {
            return false;
        }
        if !is_alone {
            tracing::warn!(
                "readers of an agent that ended still have its memory after {} s: it is written anew",
                MEMORY_TIME.as_secs()
            );
        }
        // Shared locks do not exclude each other.
        let locked = flock(&*self.file, FlockOperation::NonBlockingLockShared);
        if let Err(error) = locked {
            tracing::warn!("the device's file cannot be locked: {error}");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::mapping::{Access, Mapping};

    use super::*;

    #[test]
    fn memory_is_claimed_when_the_last_mapping_of_an_earlier_agent_is_gone() {
        let path = tempfile::NamedTempFile::new().unwrap();
        path.as_file().set_len(4096).unwrap();
        let open = || Arc::new(OwnedFd::from(std::fs::File::open(path.path()).unwrap()));
        let earlier = open();
        assert!(Claim::new(Arc::clone(&earlier)).is_over());
        let reader = earlier.try_clone().unwrap();
        let mapping = Mapping::new(&reader, 4096, Access::Read).unwrap();
        drop((earlier, reader));
        let file = open();
        let claim = Claim::new(Arc::clone(&file));
        assert!(!claim.is_over(), "a reader has the memory mapped");
        drop(mapping);
        assert!(claim.is_over());
        assert!(claim.is_over(), "a claim may be asked again");
    }

    #[test]
    fn readers_that_stay_hold_up_an_agent_for_a_bounded_time() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || Arc::new(OwnedFd::from(std::fs::File::open(path.path()).unwrap()));
        let earlier = open();
        assert!(Claim::new(Arc::clone(&earlier)).is_over());
        let claim = Claim {
            until: Instant::now(),
            ..Claim::new(open())
        };
        assert!(claim.is_over());
    }
}
