// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens files whose content decides what a process with rights does: configuration files, eBPF objects.
//!
//! A file is trusted if only root, the process's own user, and the user of `sudo` can change it or put another
//! one into its place. That holds for the file, and for each folder and symbolic link on the way to it.
//!
//! Invariants
//! - No open waits: a fifo or a device is refused before it is opened.
//! - The checks hold for the opened descriptor: in trusted folders nobody else can exchange a file between a
//!   check and the open.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{geteuid, getuid};

use crate::environment;

/// Most bytes of a configuration file.
const MAX_BYTES: u64 = 16 << 20;
/// Most symbolic links on the way to a file.
const MAX_LINKS: u32 = 40;
/// The user that the kernel shows for an owner outside of a user namespace.
const OVERFLOW_UID: u32 = 65_534;
/// Mode bits of a directory in which only a file's owner can remove it.
const STICKY: u32 = 0o1000;

/// Why a file is not trusted.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "messages show what each field means")]
#[non_exhaustive]
pub enum TrustError {
    /// The system refuses.
    #[error("{}: cannot be read: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// A fifo, a device, a folder, a socket.
    #[error("{}: is no regular file", .0.display())]
    NotRegular(PathBuf),
    /// Another user owns a file, a folder or a link.
    #[error(
        "{} belongs to user {uid}, who could replace what this process reads there: make root its owner",
        path.display()
    )]
    Owner { path: PathBuf, uid: u32 },
    /// Other users can write into a file or a folder.
    #[error(
        "{0} can be written by other users (mode {mode:o}), who could replace what this process reads there: \
         chmod go-w {0}",
        path.display()
    )]
    Writable { path: PathBuf, mode: u32 },
    /// The file is longer than any configuration.
    #[error("{}: has more than {MAX_BYTES} bytes", .0.display())]
    TooLong(PathBuf),
}

/// Opens a regular file that only trusted users can change. Symbolic links are followed if they are trusted.
///
/// # Errors
///
/// Every [`TrustError`].
pub fn open_trusted(path: &Path) -> Result<File, TrustError> {
    let failed = |error| TrustError::Io {
        path: path.to_owned(),
        error,
    };
    let found = resolve(path, &TrustedUsers::now())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open(&found, flags | OFlags::NOCTTY, Mode::empty());
    let file = File::from(file.map_err(|error| failed(error.into()))?);
    let of_file = file.metadata().map_err(failed)?;
    if of_file.is_file() {
        TrustedUsers::now().check(&found, &of_file).map(|()| file)
    } else {
        Err(TrustError::NotRegular(path.to_owned()))
    }
}

/// Reads a configuration file; see [`open_trusted`].
///
/// # Errors
///
/// Every [`TrustError`].
pub fn read_trusted(path: &Path) -> Result<String, TrustError> {
    let mut text = String::new();
    let file = open_trusted(path)?;
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    match read {
        Err(error) => Err(TrustError::Io {
            path: path.to_owned(),
            error,
        }),
        Ok(_) if text.len() as u64 > MAX_BYTES => Err(TrustError::TooLong(path.to_owned())),
        Ok(_) => Ok(text),
    }
}

/// Follows a path name by name; returns the path of the file without links. Each folder in which a name is looked
/// up, each link, and the file itself are trusted.
fn resolve(path: &Path, users: &TrustedUsers) -> Result<PathBuf, TrustError> {
    let failed = |error| TrustError::Io {
        path: path.to_owned(),
        error,
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let mut left = names(&absolute);
    let mut at = PathBuf::from("/");
    let mut found = fs::symlink_metadata(&at).map_err(failed)?;
    users.check(&at, &found)?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        at.push(name);
        found = fs::symlink_metadata(&at).map_err(failed)?;
        users.check(&at, &found)?;
        if !found.is_symlink() {
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(failed(rustix::io::Errno::LOOP.into()));
        }
        let target = fs::read_link(&at).map_err(failed)?;
        at = if target.is_absolute() {
            PathBuf::from("/")
        } else {
            at.parent().unwrap_or(&at).to_owned()
        };
        left.extend(names(&target));
    }
    if found.is_file() {
        Ok(at)
    } else {
        Err(TrustError::NotRegular(path.to_owned()))
    }
}

/// The names of a path, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|one| match one {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

/// Users who may decide what this process does.
struct TrustedUsers {
    /// Besides root.
    own: u32,
    /// The user of `sudo`.
    of_sudo: Option<u32>,
    /// The real root may be such an owner.
    outside: Option<u32>,
}

impl TrustedUsers {
    fn now() -> Self {
        let own = geteuid();
        let of_sudo = || environment::variable("SUDO_UID")?.to_str()?.parse().ok();
        // Another user may have set the variable for a set-user-id program.
        let by_sudo = own.is_root() && own == getuid();
        TrustedUsers {
            own: own.as_raw(),
            of_sudo: by_sudo.then(of_sudo).flatten(),
            outside: is_in_user_namespace().then_some(OVERFLOW_UID),
        }
    }

    fn trusts(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.of_sudo == Some(uid) || self.outside == Some(uid)
    }

    /// Checks that only trusted users can change a file, a link, or the names in a folder.
    fn check(&self, path: &Path, found: &Metadata) -> Result<(), TrustError> {
        let (uid, mode) = (found.uid(), found.mode() & 0o7777);
        let path = path.to_owned();
        if !self.trusts(uid) {
            return Err(TrustError::Owner { path, uid });
        }
        let is_sticky = found.is_dir() && mode & STICKY != 0;
        // A group of the owner's own, as most distributions make one for each user.
        let is_own_group = found.gid() == uid && !has_acl(&path);
        let writers = if is_own_group { 0o002 } else { 0o022 };
        if found.is_symlink() || is_sticky || mode & writers == 0 {
            Ok(())
        } else {
            Err(TrustError::Writable { path, mode })
        }
    }
}

/// Whether an access list lets further users in: the mode then shows its rights as those of the group.
fn has_acl(path: &Path) -> bool {
    let length = rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]);
    length.is_ok_and(|bytes| bytes > 0)
}

/// Whether some users of the machine have no number here.
fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let all = map.split_whitespace().nth(2);
    all.is_some_and(|users| users != u32::MAX.to_string())
}

#[cfg(test)]
mod tests;
