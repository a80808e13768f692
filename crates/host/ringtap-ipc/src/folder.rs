// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and sockets in folders that others may own, by descriptor.
//!
//! Root works in folders of other users: it listens there for them, or finds its own files there again.
//! Between two calls by path, the owner of a folder can put something else under the same name.
//!
//! Invariants
//! - A folder is opened step by step. Only symbolic links of root and of this user are followed.
//! - No file is opened, changed, given away or removed but by its name within an open folder, and the
//!   name is never a link.
//! - A socket gets its mode and owner in a folder that only this user can enter; then it is renamed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, chmodat, chownat, fchmod, fchown,
    fstat, mkdirat, openat, readlinkat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, bind};
use rustix::process::{Uid, geteuid};
use rustix::rand::{GetRandomFlags, getrandom};

/// Folder for what only root may write: settings that root restores, sockets of root's probes.
pub const ROOT_FOLDER: &str = "/run/ringtap-root";

/// Reason for which root does not open a file.
pub const FOREIGN_LINK: &str =
    "a link in a folder that others can write, and root does not follow it: name the file itself";

/// Most symbolic links in a path, as in the kernel.
const MAX_LINKS: u32 = 40;
/// Permission bits of those that are not the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Name of a socket in the folder in which it is made.
const NEW_SOCKET: &str = "socket";

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a folder or a file in it is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FolderError {
    /// The owner of the folder or file could change it at any time.
    #[error("{path}: belongs to user {uid}, who could change it: it must belong to root")]
    Foreign { path: PathBuf, uid: u32 },
    /// Others than the owner could change it at any time.
    #[error("{path}: others may write it (mode {mode:03o}): chmod go-w {path}")]
    Writable { path: PathBuf, mode: u32 },
    /// Another user chose where the link leads.
    #[error("{path}: a symbolic link of user {uid}, which is not followed")]
    Link { path: PathBuf, uid: u32 },
    /// Not a regular file, or one with further names.
    #[error("{path}: not a plain file")]
    NotAFile { path: PathBuf },
    /// The system refused.
    #[error("{path}: {reason}")]
    System { path: PathBuf, reason: io::Error },
}

impl FolderError {
    fn system(path: &Path) -> impl FnOnce(Errno) -> Self {
        move |reason| FolderError::System {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    /// The kind of the system's error; [`io::ErrorKind::PermissionDenied`] for the others.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            FolderError::System { reason, .. } => reason.kind(),
            _ => io::ErrorKind::PermissionDenied,
        }
    }
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        io::Error::new(error.kind(), error)
    }
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// [`FolderError::Link`], [`FolderError::System`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let mut folder = Folder::start(path).map_err(FolderError::system(path))?;
        let mut steps: VecDeque<OsString> = steps(path).collect();
        let mut links = 0;
        while let Some(step) = steps.pop_front() {
            let at = folder.path.join(&step);
            match folder.step(&step).map_err(FolderError::system(&at))? {
                PathStep::Folder(fd) => folder = Folder { fd, path: at },
                PathStep::Link { uid, .. } if !is_own(uid) => {
                    return Err(FolderError::Link { path: at, uid });
                }
                PathStep::Link { target, .. } => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(FolderError::system(&at)(Errno::LOOP));
                    }
                    if target.is_absolute() {
                        folder = Folder::start(&target).map_err(FolderError::system(&at))?;
                    }
                    let rest = std::mem::take(&mut steps);
                    steps = self::steps(&target).chain(rest).collect();
                }
            }
        }
        folder.path = path.to_owned();
        Ok(folder)
    }

    /// Opens a folder, which is created with this mode if it does not exist.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open). The folder above must exist.
    pub fn open_or_create(path: &Path, mode: u32) -> Result<Self, FolderError> {
        match Folder::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let Some(name) = path.file_name() else {
            return Folder::open(path);
        };
        let above = Folder::open(above(path))?;
        match mkdirat(&above.fd, name, Mode::RWXU) {
            Ok(()) => {
                let made = above.open_plain_folder(name)?;
                // The mode for `mkdirat` is subject to the umask.
                fchmod(&made.fd, Mode::from_raw_mode(mode)).map_err(FolderError::system(path))?;
            }
            // Another process was faster.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(FolderError::system(path)(error)),
        }
        Folder::open(path)
    }

    /// The folder [`ROOT_FOLDER`], in which only root can write.
    ///
    /// # Errors
    ///
    /// Every [`FolderError`] but [`FolderError::NotAFile`].
    pub fn for_root() -> Result<Self, FolderError> {
        let folder = Folder::open_or_create(Path::new(ROOT_FOLDER), 0o755)?;
        folder.require_own()?;
        Ok(folder)
    }

    /// Opens or creates a folder in this one, in which only this user can write; and returns it, given to
    /// the user `owner`.
    ///
    /// # Errors
    ///
    /// [`FolderError::Foreign`] if the folder belongs to a third user, or others can write in this folder.
    pub fn folder_for(&self, name: &str, owner: u32) -> Result<Self, FolderError> {
        self.require_own()?;
        let path = self.path.join(name);
        let failed = |error| FolderError::system(&path)(error);
        match mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let folder = self.open_plain_folder(name.as_ref())?;
        let found = fstat(&folder.fd).map_err(failed)?.st_uid;
        if found != owner && !is_own(found) {
            return Err(FolderError::Foreign { path, uid: found });
        }
        fchmod(&folder.fd, Mode::from_raw_mode(0o755)).map_err(failed)?;
        fchown(&folder.fd, Some(Uid::from_raw(owner)), None).map_err(failed)?;
        Ok(folder)
    }

    /// The path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails unless the folder belongs to this user or root, and nobody else can write in it.
    ///
    /// # Errors
    ///
    /// [`FolderError::Foreign`], [`FolderError::Writable`].
    pub fn require_own(&self) -> Result<(), FolderError> {
        let found = fstat(&self.fd).map_err(FolderError::system(&self.path))?;
        require_own(&found, &self.path)
    }

    /// The names in the folder.
    ///
    /// # Errors
    ///
    /// [`FolderError::System`].
    pub fn names(&self) -> Result<Vec<OsString>, FolderError> {
        let read = || -> Result<Vec<OsString>, Errno> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let entries = Dir::new(openat(&self.fd, ".", flags, Mode::empty())?)?;
            let names = entries.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
            let names: Vec<Vec<u8>> = names.collect::<Result<_, Errno>>()?;
            let names = names.into_iter().map(OsString::from_vec);
            Ok(names.filter(|name| name != "." && name != "..").collect())
        };
        read().map_err(FolderError::system(&self.path))
    }

    /// Opens a plain file that only this user or root could write.
    ///
    /// # Errors
    ///
    /// Every [`FolderError`].
    pub fn open_own(&self, name: impl AsRef<OsStr>) -> Result<File, FolderError> {
        self.open_checked(name.as_ref(), OFlags::RDONLY)
    }

    /// Opens a plain file that only this user can read and write, to append to it; creates it if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// Every [`FolderError`].
    pub fn append(&self, name: impl AsRef<OsStr>) -> Result<File, FolderError> {
        self.open_checked(
            name.as_ref(),
            OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
        )
    }

    /// Creates a file with this text, readable for everybody, or puts it in the place of an older one.
    ///
    /// # Errors
    ///
    /// [`FolderError::System`].
    pub fn replace(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let new = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.fd, &new, flags, Mode::RUSR | Mode::WUSR)?);
        let done = fchmod(&file, Mode::from_raw_mode(0o644))
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(text))
            .and_then(|()| Ok(renameat(&self.fd, &new, &self.fd, name)?));
        if done.is_err() {
            let _gone = self.remove(&new);
        }
        done
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }

    /// The file with this name, itself if it is a link.
    pub(crate) fn find(&self, name: &OsStr) -> Result<Stat, Errno> {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The folder at which a path starts.
    fn start(path: &Path) -> Result<Self, Errno> {
        let start = if path.is_absolute() { "/" } else { "." };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder {
            fd: openat(CWD, start, flags, Mode::empty())?,
            path: start.into(),
        })
    }

    fn step(&self, name: &OsStr) -> Result<PathStep, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        let found = fstat(&fd)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(PathStep::Folder(fd)),
            FileType::Symlink => Ok(PathStep::Link {
                uid: found.st_uid,
                target: OsString::from_vec(readlinkat(&fd, "", Vec::new())?.into_bytes()).into(),
            }),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Opens a folder in this one, which is no link.
    fn open_plain_folder(&self, name: &OsStr) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Folder { fd, path }),
            Err(error) => Err(FolderError::system(&path)(error)),
        }
    }

    fn open_checked(&self, name: &OsStr, flags: OFlags) -> Result<File, FolderError> {
        let path = self.path.join(name);
        // A fifo would make the call wait.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.map_err(FolderError::system(&path))?;
        let found = fstat(&file).map_err(FolderError::system(&path))?;
        require_own(&found, &path)?;
        let is_plain = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if is_plain && found.st_nlink == 1 {
            Ok(file.into())
        } else {
            Err(FolderError::NotAFile { path })
        }
    }

    /// Creates a folder in this one that only this user can enter.
    fn private(&self) -> Result<(Self, String), FolderError> {
        let name = temporary_name().map_err(FolderError::system(&self.path))?;
        let made = mkdirat(&self.fd, &name, Mode::RWXU);
        made.map_err(FolderError::system(&self.path))?;
        Ok((self.open_private(&name)?, name))
    }

    /// Opens a folder in this one, if it is one that only this user can enter.
    fn open_private(&self, name: &str) -> Result<Self, FolderError> {
        let private = self.open_plain_folder(name.as_ref())?;
        // The owner of this folder may have put another one under this name.
        let found = fstat(&private.fd).map_err(FolderError::system(&private.path))?;
        let is_ours = found.st_uid == geteuid().as_raw();
        if is_ours && found.st_mode & 0o077 == 0 {
            Ok(private)
        } else {
            Err(FolderError::Foreign {
                path: private.path,
                uid: found.st_uid,
            })
        }
    }

    /// Binds the socket to a new file in this folder, which only this user can enter.
    fn bind(&self, socket: impl AsFd, mode: u32, owner: Option<u32>) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}/{NEW_SOCKET}", self.fd.as_raw_fd());
        bind(socket, &SocketAddrUnix::new(path)?)?;
        let mode = Mode::from_raw_mode(mode);
        chmodat(&self.fd, NEW_SOCKET, mode, AtFlags::empty())?;
        if let Some(owner) = owner.map(Uid::from_raw) {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(&self.fd, NEW_SOCKET, Some(owner), None, flags)?;
        }
        Ok(())
    }
}

/// The file of a socket. It is removed when this is dropped, unless another file has its name.
#[derive(Debug)]
pub struct SocketFile {
    folder: Folder,
    name: OsString,
    identity: FileIdentity,
}

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

impl SocketFile {
    /// Binds a socket to `name` in the folder, for the user `owner`, or for this one.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if there is such a file; the system's.
    pub fn bind(
        folder: Folder,
        name: &OsStr,
        socket: impl AsFd,
        mode: u32,
        owner: Option<u32>,
    ) -> io::Result<Self> {
        let (private, private_name) = folder.private()?;
        let bound = private.bind(socket, mode, owner).and_then(|()| {
            let identity = identity(&private.find(NEW_SOCKET.as_ref())?);
            let (from, to) = (&private.fd, &folder.fd);
            renameat_with(from, NEW_SOCKET, to, name, RenameFlags::NOREPLACE)?;
            Ok(identity)
        });
        if bound.is_err() {
            let _gone = private.remove(NEW_SOCKET);
        }
        let _gone = unlinkat(&folder.fd, &private_name, AtFlags::REMOVEDIR);
        Ok(SocketFile {
            identity: bound?,
            folder,
            name: name.to_owned(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = self.folder.find(&self.name);
        if found.is_ok_and(|found| identity(&found) == self.identity) {
            // Fails only if the file is gone already, or the process became another user.
            let _gone = self.folder.remove(&self.name);
        }
    }
}

/// Flags (`O_*`) for a file that is created or changed by its path. Root follows no link in a folder in
/// which others can write: it could lead to any file. The error is `ELOOP` then: [`FOREIGN_LINK`].
pub fn link_flags(path: &Path) -> i32 {
    let is_own = || Folder::open(above(path)).is_ok_and(|folder| folder.require_own().is_ok());
    if geteuid().is_root() && !is_own() {
        OFlags::NOFOLLOW.bits().cast_signed()
    } else {
        0
    }
}

/// One step of a path.
enum PathStep {
    Folder(OwnedFd),
    Link { uid: u32, target: PathBuf },
}

/// The folder above a path.
pub(crate) fn above(path: &Path) -> &Path {
    let above = path.parent().unwrap_or(Path::new("/"));
    if above.as_os_str().is_empty() {
        Path::new(".")
    } else {
        above
    }
}

/// The names in a path.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect::<Vec<_>>().into_iter()
}

/// Whether files of this user are as good as the process's own.
fn is_own(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

fn require_own(found: &Stat, path: &Path) -> Result<(), FolderError> {
    let path = path.to_owned();
    if !is_own(found.st_uid) {
        let uid = found.st_uid;
        return Err(FolderError::Foreign { path, uid });
    }
    match found.st_mode & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(FolderError::Writable {
            path,
            mode: found.st_mode & 0o777,
        }),
    }
}

pub(crate) fn identity(found: &Stat) -> FileIdentity {
    (found.st_dev, found.st_ino)
}

/// A name that nobody can guess, so that nobody can take it first.
fn temporary_name() -> Result<String, Errno> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!(".ringtap-{:016x}", u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests;
