// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport between processes of one host: a UNIX socket with one datagram per message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, connect, listen, recvmsg, sendmsg, shutdown, socket_with, socketpair,
    sockopt,
};

use crate::event::sleep_until_readable;
use crate::folder::{Folder, FolderError, SocketFile, above, identity};
use crate::peer::{pass_descriptors, refuse_descriptors};
use crate::transport::{MAX_BYTES, MAX_FDS, Transport};

/// Longest wait for a hub that takes no connections or no messages.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// Folder of the standard socket, on a file system that is empty after a boot.
pub const STANDARD_FOLDER: &str = "/run/ringtap";

const SENT_ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));
/// The kernel's limit (`SCM_MAX_FD`): it would close descriptors that find no room, on the receiver's
/// thread.
const MAX_RECEIVED_FDS: usize = 253;
const RECEIVED_ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_RECEIVED_FDS));

/// One end of a connection.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    refuses_descriptors: bool,
}

/// A socket that readers connect to. Dropping this removes the socket's file, unless another program
/// has put its own there.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    refuses_descriptors: bool,
    _file: SocketFile,
}

/// Permissions of a socket to which every user may connect.
const FOR_EVERYBODY: u32 = 0o666;
/// Permissions of a socket to which only its owner and root may connect.
const FOR_OWNER: u32 = 0o600;

/// Why a program cannot listen on a socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ListenError {
    /// A program like ours listens on the socket.
    #[error("{path}: a running program of ringtap uses this socket already")]
    InUse { path: PathBuf },
    /// Another program has a socket there.
    #[error("{path}: another program uses this socket")]
    OtherProgram { path: PathBuf },
    /// The path is a file, not a socket.
    #[error("{path}: is a file, not a socket")]
    NotASocket { path: PathBuf },
    /// The socket's folder does not exist.
    #[error("{path}: there is no folder {folder}")]
    NoFolder { path: PathBuf, folder: PathBuf },
    /// Another user chose where the folder leads.
    #[error("{path}: cannot listen: {reason}")]
    Folder { path: PathBuf, reason: FolderError },
    /// The system refused.
    #[error("{path}: cannot listen: {reason}")]
    System { path: PathBuf, reason: io::Error },
}

impl Socket {
    /// Connects to a hub. To connect, and to send, waits for a hub that does not answer for at most 20
    /// seconds.
    ///
    /// # Errors
    ///
    /// The system's: no process listens there, or the path is too long; [`io::ErrorKind::WouldBlock`]
    /// if the hub does not answer.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = make(SocketFlags::CLOEXEC)?;
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIMEOUT))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Socket::new(socket))
    }

    fn new(fd: OwnedFd) -> Self {
        Socket {
            fd,
            refuses_descriptors: false,
        }
    }

    /// Both ends of a connection without a path.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn pair() -> io::Result<(Self, Self)> {
        let kind = SocketType::SEQPACKET;
        let (one, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Socket::new(one), Socket::new(other)))
    }

    /// A server's end of a connection that another process made. It refuses descriptors if the kernel
    /// can.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for any other descriptor.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let socket = Socket::inherited(fd)?;
        Ok(Socket {
            refuses_descriptors: refuse_descriptors(&socket.fd),
            ..socket
        })
    }

    /// The end of a connection that this process has from the one that started it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for any other descriptor.
    pub fn inherited(fd: OwnedFd) -> io::Result<Self> {
        let is_ours = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET);
        if is_ours {
            Ok(Socket::new(fd))
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Whether a hub answers. The socket of a killed hub may exist for a moment longer than the hub;
    /// connections to it then hang up.
    fn is_alive(&self) -> bool {
        let timeout = Some(Duration::from_secs(2));
        if self.send(b"{}", &[]).is_err() {
            return false;
        }
        match sleep_until_readable(&[self.as_fd()], timeout) {
            Ok(true) => self
                .receive(&mut [0; 4096])
                .is_ok_and(|(bytes, _)| !bytes.is_empty()),
            // The hub exists but does not answer.
            _ => true,
        }
    }
}

impl Transport for Socket {
    fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.len() > MAX_BYTES || fds.len() > MAX_FDS {
            return Err(Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); SENT_ANCILLARY_BYTES];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::MSGSIZE.into());
        }
        let bytes = [IoSlice::new(message)];
        retry_on_intr(|| sendmsg(&self.fd, &bytes, &mut beside, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<(&'a [u8], Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); RECEIVED_ANCILLARY_BYTES];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| {
            recvmsg(&self.fd, &mut [IoSliceMut::new(buffer)], &mut beside, flags)
        })?;
        let mut fds = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            let text = "a message longer than the protocol allows";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok((&buffer[..received.bytes], fds))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn hang_up(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn refuses_descriptors(&self) -> bool {
        self.refuses_descriptors
    }

    fn finish(&self) {
        // Fails only if the other end has left already.
        let _gone = shutdown(&self.fd, Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Listens at `path`. Every user may connect; each group checks permissions.
    ///
    /// # Errors
    ///
    /// Every [`ListenError`]. `bind` replaces the socket of a killed hub, but no other file, and
    /// creates no folder but `/run/ringtap`.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        Self::bind_with(path, FOR_EVERYBODY, None)
    }

    /// As [`bind`](Self::bind), but only the user `uid` and root may connect. The socket belongs to that
    /// user; only root may give it to another one.
    ///
    /// # Errors
    ///
    /// Every [`ListenError`].
    pub fn bind_for(path: &Path, uid: u32) -> Result<Self, ListenError> {
        Self::bind_with(path, FOR_OWNER, Some(uid))
    }

    fn bind_with(path: &Path, mode: u32, owner: Option<u32>) -> Result<Self, ListenError> {
        let path = path.to_owned();
        let refused = |reason| ListenError::System {
            path: path.clone(),
            reason,
        };
        let name = path
            .file_name()
            .ok_or_else(|| refused(Errno::ISDIR.into()))?;
        let folder = above(&path);
        let opened = if folder == Path::new(STANDARD_FOLDER) {
            Folder::open_or_create(folder, 0o755)
        } else {
            Folder::open(folder)
        };
        let folder = match opened {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = folder.to_owned();
                return Err(ListenError::NoFolder { path, folder });
            }
            Err(FolderError::System { reason, .. }) => return Err(refused(reason)),
            Err(reason) => return Err(ListenError::Folder { path, reason }),
        };
        let found = folder.find(name).ok();
        match probe(&path) {
            Ok(()) | Err(Errno::AGAIN) => return Err(ListenError::InUse { path }),
            // For a socket of another type that a process has.
            Err(Errno::PROTOTYPE) => return Err(ListenError::OtherProgram { path }),
            // No process has the socket, or there is none.
            Err(_) => {}
        }
        match folder.find(name) {
            Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Socket => {
                return Err(ListenError::NotASocket { path });
            }
            // Made by another hub since the probe.
            Ok(there) if found.map(|found| identity(&found)) != Some(identity(&there)) => {
                return Err(ListenError::InUse { path });
            }
            Ok(_) => folder.remove(name).map_err(refused)?,
            Err(_) => {}
        }
        let listen = || Self::listen(folder, &path, mode, owner);
        listen().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ListenError::InUse { path: path.clone() },
            _ => refused(error),
        })
    }

    fn listen(folder: Folder, path: &Path, mode: u32, owner: Option<u32>) -> io::Result<Self> {
        // A reader could not connect to a path that is too long.
        let _address = SocketAddrUnix::new(path)?;
        let name = path.file_name().unwrap_or_default();
        let fd = make(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // Accepted sockets inherit it.
        let refuses_descriptors = refuse_descriptors(&fd);
        let file = SocketFile::bind(folder, name, &fd, mode, owner)?;
        listen(&fd, 64)?;
        Ok(Listener {
            fd,
            refuses_descriptors,
            _file: file,
        })
    }

    /// The next connection, whose calls never wait; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn accept(&self) -> io::Result<Option<Socket>> {
        match accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(Socket {
                fd,
                refuses_descriptors: self.refuses_descriptors,
            })),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts descriptors as on kernels that cannot refuse them; for tests.
    #[must_use]
    pub fn accepting_descriptors(mut self) -> Self {
        pass_descriptors(&self.fd);
        self.refuses_descriptors = false;
        self
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Succeeds if a hub listens at `path`, and answers or does not hang up.
fn probe(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    connect(&socket, &address)?;
    if Socket::new(socket).is_alive() {
        Ok(())
    } else {
        Err(Errno::CONNREFUSED)
    }
}

fn make(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::Event;
    use ringtap_pool::wake::Signal;

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, b"kept").unwrap();
        let refused = Listener::bind(&path);
        assert!(matches!(refused, Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }

    #[test]
    fn folders_of_the_users_choice_are_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a");
        let refused = Listener::bind(&missing.join("hub.sock"));
        assert!(matches!(refused, Err(ListenError::NoFolder { .. })));
        assert!(!missing.exists());
    }

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.sock");
        let listener = Listener::bind(&path).unwrap();
        assert!(matches!(
            Listener::bind(&path),
            Err(ListenError::InUse { .. })
        ));
        let near = Socket::connect(&path).unwrap();
        assert!(
            listener.accept().unwrap().is_some(),
            "the probe of the second listener"
        );
        let far = listener.accept().unwrap().unwrap();
        let event = Event::new().unwrap();
        far.send(b"hello", &[event.as_fd()]).unwrap();
        let mut buffer = vec![0; MAX_BYTES];
        let (message, fds) = near.receive(&mut buffer).unwrap();
        assert_eq!(message, b"hello");
        event.signal();
        assert!(sleep_until_readable(&[fds[0].as_fd()], None).unwrap());
        drop(near);
        assert!(far.receive(&mut buffer).unwrap().0.is_empty());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_both_ends() {
        let (near, far) = Socket::pair().unwrap();
        let long = vec![7; MAX_BYTES + 1];
        assert!(near.send(&long, &[]).is_err());
        near.send(&long[..5000], &[]).unwrap();
        let error = far.receive(&mut [0; 4999]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_hub_that_ends_leaves_the_socket_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.sock");
        let first = Listener::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);
        assert!(Socket::connect(&path).is_ok());
        assert!(second.accept().unwrap().is_some());
    }

    #[test]
    fn a_socket_of_another_living_program_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream.sock");
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let refused = Listener::bind(&path);
        assert!(matches!(refused, Err(ListenError::OtherProgram { .. })));
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        let path = folder.path().join("datagram.sock");
        let _datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let refused = Listener::bind(&path);
        assert!(matches!(refused, Err(ListenError::OtherProgram { .. })));
        drop(other);
    }

    #[test]
    fn a_socket_that_a_dead_hub_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.sock");
        // As after a kill: the destructor does not remove the file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(Listener::bind(&path).is_ok());
        assert!(!path.exists(), "gone with its listener");
    }
}
