// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up the rights that a running capture does not need.
//!
//! Invariants
//! - Rights are only given up: nothing here restores one.
//! - Capabilities belong to threads. [`Confinement::enter`] changes those of the calling thread, and
//!   threads that it starts later inherit them. User, system calls and `no_new_privs` change for
//!   the whole process.

mod purposes;
mod sandbox;
mod syscalls;

use std::ffi::CString;
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, path_beneath_rules,
};
use nix::unistd::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits,
    set_capabilities, set_capabilities_secure_bits, set_keep_capabilities, set_no_new_privs,
};

pub use sandbox::{FileLimits, Sandbox};

/// First user id, and number of user ids, that systemd gives to services with `DynamicUser=`: no account and no file
/// has one of them.
const NAMELESS: (u32, u32) = (61_184, 4_336);

/// Rights that a process keeps once it has opened the devices that it captures from.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// Capabilities to keep, as far as the process has them.
    pub keeps: CapabilitySet,
    /// The user that the process becomes.
    pub user: Option<User>,
    /// Folders below which the process writes and creates files, and nowhere else, where the kernel has
    /// Landlock; `None`: everywhere.
    pub writes_below: Option<Vec<PathBuf>>,
    /// Change nothing outside of the process: open no file to write, no socket, start no process. On every kernel.
    pub only_reads: bool,
    /// Keep all system calls, so that the process can start programs, which then confine themselves.
    pub starts_programs: bool,
}

/// A user that a process becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the user's group.
    pub gid: u32,
}

/// Why a process cannot give up rights.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// No such user.
    #[error("there is no user \"{name}\" on this machine")]
    NoUser { name: String },
    /// The process may not become the user.
    #[error("cannot become the user {name}: {cause}: start it as root (sudo)")]
    Become { name: String, cause: io::Error },
    /// The kernel refused a step.
    #[error("cannot give up {what}: {cause}")]
    Refused { what: &'static str, cause: String },
}

impl FromStr for User {
    type Err = ConfineError;

    /// Finds a user by name.
    fn from_str(name: &str) -> Result<Self, ConfineError> {
        let found = nix::unistd::User::from_name(name)
            .ok()
            .flatten()
            .ok_or_else(|| ConfineError::NoUser { name: name.into() })?;
        Ok(User {
            name: found.name,
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
        })
    }
}

impl Confinement {
    /// Keeps these capabilities, and nothing else that a running capture does not need.
    #[must_use]
    pub fn keeping(keeps: CapabilitySet) -> Self {
        Confinement {
            keeps,
            user: None,
            writes_below: None,
            only_reads: false,
            starts_programs: false,
        }
    }

    /// Runs work that starts threads before the process enters this confinement: those threads have
    /// the capabilities that are kept, or none once the process becomes another user.
    pub fn start_early<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let limited = || {
            // All threads become another user together, which takes the right to.
            if self.user.is_none() {
                let _keeps_them = limit_thread(self.keeps);
            }
            work()
        };
        thread::scope(|scope| scope.spawn(limited).join())
            .unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Gives up everything else, for good.
    ///
    /// # Errors
    ///
    /// Every [`ConfineError`] but [`ConfineError::NoUser`]. The process must end then: it may have
    /// given up a part.
    pub fn enter(&self) -> Result<(), ConfineError> {
        if let Some(user) = &self.user {
            user.enter()?;
        }
        limit_thread(self.keeps).map_err(refused("capabilities"))?;
        if !self.starts_programs {
            syscalls::forbid()?;
        }
        if self.only_reads {
            syscalls::forbid_changes()?;
        }
        match &self.writes_below {
            Some(folders) => forbid_other_writes(folders),
            None => Ok(()),
        }
    }
}

impl User {
    /// A user without account and files, for processes of this one: another than that of root, and of the user who
    /// started it. Two processes have the same one if their numbers are a multiple of 4,336 apart.
    pub fn nameless() -> Self {
        let id = NAMELESS.0 + std::process::id() % NAMELESS.1;
        User::from_id(id)
    }

    /// The user with this id, and the group of the same id.
    pub fn from_id(id: u32) -> Self {
        User {
            name: id.to_string(),
            uid: id,
            gid: id,
        }
    }

    /// Makes every thread of the process run as this user. The calling thread keeps its capabilities.
    fn enter(&self) -> Result<(), ConfineError> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if Uid::current() == uid && Uid::effective() == uid {
            return Ok(());
        }
        let become_user = || -> io::Result<()> {
            let name = CString::new(self.name.as_str())?;
            set_keep_capabilities(true)?;
            nix::unistd::initgroups(&name, gid)?;
            nix::unistd::setresgid(gid, gid, gid)?;
            nix::unistd::setresuid(uid, uid, uid)?;
            Ok(set_keep_capabilities(false)?)
        };
        become_user().map_err(|cause| ConfineError::Become {
            name: self.name.clone(),
            cause,
        })
    }
}

/// Takes all capabilities but these from the calling thread and from threads that it starts later.
pub fn limit_thread(keeps: CapabilitySet) -> io::Result<()> {
    keep_only(|held| kept_of(keeps, held))?;
    Ok(set_no_new_privs(true)?)
}

/// Limits a thread of a source, which starts before the process becomes another user: the thread keeps
/// these capabilities, then too.
///
/// `CAP_SETUID` and `CAP_SETGID` stay, because all threads become the user together; the system calls
/// are forbidden afterwards. A thread that keeps nothing else has none of them as another user.
pub fn limit_source_thread(keeps: CapabilitySet) {
    let limit = || -> io::Result<()> {
        if !keeps.is_empty() {
            let bits = capabilities_secure_bits()? | CapabilitiesSecureBits::NO_SETUID_FIXUP;
            // Only a process that may become another user can and must do this.
            let _no_other_user = set_capabilities_secure_bits(bits);
        }
        let become_user = CapabilitySet::SETUID | CapabilitySet::SETGID;
        keep_only(|held| kept_of(keeps, held) | held & become_user)
    };
    let _keeps_them = limit();
}

/// Takes all capabilities from the calling thread but those that `choose` returns, which gets those that
/// it has.
fn keep_only(choose: impl FnOnce(CapabilitySet) -> CapabilitySet) -> io::Result<()> {
    let kept = choose(capabilities(None)?.permitted);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    // The kernel removes ambient capabilities that are not in both other sets.
    Ok(set_capabilities(None, sets)?)
}

/// Those of the held capabilities that stay.
fn kept_of(asked: CapabilitySet, held: CapabilitySet) -> CapabilitySet {
    // CAP_SYS_ADMIN includes these two.
    let programs = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let lacking = (asked & programs) - held;
    let stands_in = if lacking.is_empty() {
        CapabilitySet::empty()
    } else {
        CapabilitySet::SYS_ADMIN
    };
    (asked | stands_in) & held
}

/// Lets the calling thread, and threads that it starts later, write and create files only below
/// these folders. Does nothing on a kernel without Landlock.
fn forbid_other_writes(folders: &[PathBuf]) -> Result<(), ConfineError> {
    let writes = AccessFs::from_write(ABI::V3);
    let restrict = || {
        Ruleset::default()
            .handle_access(writes)?
            .create()?
            .add_rules(path_beneath_rules(folders, writes))?
            .restrict_self()
    };
    match restrict() {
        Ok(_status) => Ok(()),
        Err(error) => Err(refused("writing elsewhere")(error)),
    }
}

fn refused<E: ToString>(what: &'static str) -> impl Fn(E) -> ConfineError {
    move |cause| ConfineError::Refused {
        what,
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_and_held_stays() {
        let held = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        let asked = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
        let kept = kept_of(asked, held);
        assert_eq!(kept, CapabilitySet::BPF | CapabilitySet::PERFMON);
        assert_eq!(
            kept_of(CapabilitySet::empty(), held),
            CapabilitySet::empty()
        );
    }

    #[test]
    fn an_administrator_without_cap_bpf_stays_one() {
        let held = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
        assert_eq!(kept_of(CapabilitySet::BPF, held), CapabilitySet::SYS_ADMIN);
        assert_eq!(
            kept_of(CapabilitySet::NET_RAW, held),
            CapabilitySet::empty()
        );
    }

    #[test]
    fn a_user_that_does_not_exist_is_named() {
        let error = "no-such-user-here".parse::<User>().unwrap_err();
        assert!(error.to_string().contains("\"no-such-user-here\""));
    }

    #[test]
    fn a_limited_thread_has_no_capability_and_its_children_have_none() {
        let sets = std::thread::spawn(|| {
            limit_thread(CapabilitySet::empty()).unwrap();
            std::thread::spawn(|| capabilities(None).unwrap())
                .join()
                .unwrap()
        });
        let sets = sets.join().unwrap();
        assert_eq!(sets.permitted, CapabilitySet::empty());
        assert_eq!(sets.effective, CapabilitySet::empty());
    }
}
