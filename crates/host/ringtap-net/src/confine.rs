// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up the rights that a running capture does not need.
//!
//! Invariants
//! - Rights are only given up: nothing here restores one.
//! - Capabilities belong to threads. [`Confinement::enter`] changes those of the calling thread, and
//!   threads that it starts later inherit them. User, system calls and `no_new_privs` change for
//!   the whole process.

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

use crate::rights::{Capability, WHILE_CAPTURING};

/// What a process keeps once it has opened the devices that it captures from.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    keeps: Vec<Capability>,
    user: Option<User>,
    writes_below: Option<Vec<PathBuf>>,
    starts_programs: bool,
}

/// A user that a process becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: Uid,
    gid: Gid,
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
        let found = nix::unistd::User::from_name(name).ok().flatten();
        let found = found.ok_or_else(|| ConfineError::NoUser { name: name.into() })?;
        Ok(User {
            name: found.name,
            uid: found.uid,
            gid: found.gid,
        })
    }
}

impl Confinement {
    /// Keeps these capabilities, as far as the process has them, and no other.
    #[must_use]
    pub fn keeping(capabilities: impl IntoIterator<Item = Capability>) -> Self {
        Confinement {
            keeps: capabilities.into_iter().collect(),
            ..Confinement::default()
        }
    }

    /// Keeps this capability, too.
    #[must_use]
    pub fn and(mut self, capability: Capability) -> Self {
        self.keeps.push(capability);
        self
    }

    /// Becomes this user, too.
    #[must_use]
    pub fn becoming(self, user: Option<User>) -> Self {
        Confinement { user, ..self }
    }

    /// Keeps all system calls, so that the process can start programs, which then confine themselves.
    #[must_use]
    pub fn starting_programs(self) -> Self {
        let starts_programs = true;
        Confinement {
            starts_programs,
            ..self
        }
    }

    /// Writes and creates files below these folders only, where the kernel has Landlock.
    #[must_use]
    pub fn writing_below(self, folders: Vec<PathBuf>) -> Self {
        let writes_below = Some(folders);
        Confinement {
            writes_below,
            ..self
        }
    }

    /// Runs work that starts threads before the process enters this confinement: those threads have
    /// the capabilities that are kept, or none once the process becomes another user.
    pub fn start_early<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let limited = || {
            // All threads become another user together, which takes the right to.
            if self.user.is_none() {
                let _keeps_them = limit_thread(&self.keeps);
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
        limit_thread(&self.keeps).map_err(refused("capabilities"))?;
        if !self.starts_programs {
            syscalls::forbid()?;
        }
        match &self.writes_below {
            Some(folders) => forbid_other_writes(folders),
            None => Ok(()),
        }
    }
}

impl User {
    /// Name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// User id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Id of the user's group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid.as_raw()
    }

    /// Makes every thread of the process run as this user. The calling thread keeps its capabilities.
    fn enter(&self) -> Result<(), ConfineError> {
        if Uid::current() == self.uid && Uid::effective() == self.uid {
            return Ok(());
        }
        let become_user = || -> io::Result<()> {
            let name = CString::new(self.name.as_str())?;
            set_keep_capabilities(true)?;
            nix::unistd::initgroups(&name, self.gid)?;
            nix::unistd::setresgid(self.gid, self.gid, self.gid)?;
            nix::unistd::setresuid(self.uid, self.uid, self.uid)?;
            Ok(set_keep_capabilities(false)?)
        };
        become_user().map_err(|cause| ConfineError::Become {
            name: self.name.clone(),
            cause,
        })
    }
}

/// Takes all capabilities but these from the calling thread and from threads that it starts later.
pub fn limit_thread(keeps: &[Capability]) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    let kept = kept_of(keeps, held);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    // The kernel removes ambient capabilities that are not in both other sets.
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}

/// Limits a thread of a source, which starts before the process becomes another user: the thread keeps
/// what a capture needs, then too.
///
/// `CAP_SETUID` and `CAP_SETGID` stay, because all threads become the user together; the system calls
/// are forbidden afterwards.
pub fn limit_source_thread() {
    let limit = || -> io::Result<()> {
        let bits = capabilities_secure_bits()? | CapabilitiesSecureBits::NO_SETUID_FIXUP;
        // Only a process that may become another user can and must do this.
        let _no_other_user = set_capabilities_secure_bits(bits);
        let held = capabilities(None)?.permitted;
        let become_user = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let kept = kept_of(WHILE_CAPTURING, held) | held & become_user;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        Ok(set_capabilities(None, sets)?)
    };
    let _keeps_them = limit();
}

/// Those of the held capabilities that stay.
fn kept_of(keeps: &[Capability], held: CapabilitySet) -> CapabilitySet {
    let asked: CapabilitySet = keeps.iter().map(|one| one.bit()).collect();
    let lacks =
        |capability: CapabilitySet| asked.contains(capability) && !held.contains(capability);
    // CAP_SYS_ADMIN includes these two.
    let stands_in = match lacks(CapabilitySet::BPF) || lacks(CapabilitySet::PERFMON) {
        true => CapabilitySet::SYS_ADMIN,
        false => CapabilitySet::empty(),
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
        let asked = [Capability::Bpf, Capability::Perfmon, Capability::NetAdmin];
        let kept = kept_of(&asked, held);
        assert_eq!(kept, CapabilitySet::BPF | CapabilitySet::PERFMON);
        assert_eq!(kept_of(&[], held), CapabilitySet::empty());
    }

    #[test]
    fn an_administrator_without_cap_bpf_stays_one() {
        let held = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
        assert_eq!(kept_of(&[Capability::Bpf], held), CapabilitySet::SYS_ADMIN);
        assert_eq!(kept_of(&[Capability::NetRaw], held), CapabilitySet::empty());
    }

    #[test]
    fn a_user_that_does_not_exist_is_named() {
        let error = "no-such-user-here".parse::<User>().unwrap_err();
        assert!(error.to_string().contains("\"no-such-user-here\""));
    }

    #[test]
    fn a_limited_thread_has_no_capability_and_its_children_have_none() {
        let sets = std::thread::spawn(|| {
            limit_thread(&[]).unwrap();
            std::thread::spawn(|| capabilities(None).unwrap())
                .join()
                .unwrap()
        });
        let sets = sets.join().unwrap();
        assert_eq!(sets.permitted, CapabilitySet::empty());
        assert_eq!(sets.effective, CapabilitySet::empty());
    }
}
