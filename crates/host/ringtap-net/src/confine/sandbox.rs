// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sandbox of a process that runs foreign code, such as a user's library.
//!
//! Invariants
//! - A process enters the sandbox before the first instruction of foreign code, while it has one thread: Landlock
//!   holds for a thread and for those that it starts.
//! - A sandboxed process starts no process: it ends as a whole, and nothing of it stays.
//! - The limits are the same for root and for every other user.

use std::fs;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::CapabilitySet;

use super::{ConfineError, limit_thread, refused, syscalls};

/// Files that the loader and the C library read: shared libraries, their index, time zones.
const SYSTEM_FILES: [&str; 11] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev/null",
];

/// Newest version of Landlock whose rights the sandbox names.
const NEWEST: ABI = ABI::V6;

/// Limits of a process that runs foreign code.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// Files, and folders with all below them, that the process may read besides the system's libraries.
    pub reads: Vec<PathBuf>,
}

/// Whether the kernel restricts a sandboxed process to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLimits {
    /// The process reads only the listed files.
    Listed,
    /// The kernel has no Landlock: the process reads what its user may read.
    OfItsUser,
}

impl Sandbox {
    /// Gives up, for good: all capabilities, all files but those listed (which can only be read), the network,
    /// other processes, and all system calls but those of an ordinary computation.
    ///
    /// # Errors
    ///
    /// [`ConfineError::Refused`]: the process has several threads, or the kernel refused a step. The process must
    /// end then: it may have given up a part.
    pub fn enter(&self) -> Result<FileLimits, ConfineError> {
        let threads = fs::read_dir("/proc/self/task").map_err(refused("other threads' rights"))?;
        if threads.count() != 1 {
            return Err(refused("other threads' rights")("the process has several"));
        }
        limit_thread(CapabilitySet::empty()).map_err(refused("capabilities"))?;
        let files = self.limit_files().map_err(refused("files"))?;
        syscalls::allow_computation()?;
        Ok(files)
    }

    fn limit_files(&self) -> Result<FileLimits, RulesetError> {
        let system = SYSTEM_FILES.iter().map(PathBuf::from);
        let reads = system.chain(self.reads.iter().cloned());
        let status = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .add_rules(path_beneath_rules(reads, AccessFs::from_read(NEWEST)))?
            .restrict_self()?;
        Ok(match status.ruleset {
            RulesetStatus::NotEnforced => FileLimits::OfItsUser,
            _ => FileLimits::Listed,
        })
    }
}
