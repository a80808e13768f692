// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts `ringtap lend`: the process that captures for this program, and for it only.
//!
//! Invariants
//! - The program does not notice: it gets no SIGCHLD and no child to wait for, Ctrl-C does not
//!   reach the helper, and no descriptor of the program stays open in it.
//! - The helper ends when the last copy of the connection is closed.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::time::Duration;

use ringtap_client::Connection;
use ringtap_ipc::socket::Socket;

use crate::real::trusted_variable;
use crate::say;

/// How long closing a handle waits for the capture to be taken down.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often this process was forked.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// A handle's stay at a hub, or at a helper, which ends with it.
pub(crate) struct Stay {
    connection: Arc<Connection>,
    forks: usize,
    patience: Duration,
    is_over: AtomicBool,
}

impl Stay {
    /// At a hub that has other readers, too.
    pub(crate) fn at_hub(connection: Arc<Connection>) -> Self {
        Stay::new(connection, Duration::ZERO)
    }

    /// At a helper: when the stay has ended, the capture has been taken down.
    pub(crate) fn at_helper(connection: Arc<Connection>) -> Self {
        Stay::new(connection, PATIENCE)
    }

    fn new(connection: Arc<Connection>, patience: Duration) -> Self {
        static COUNTS: Once = Once::new();
        COUNTS.call_once(|| {
            extern "C" fn count() {
                FORKS.fetch_add(1, Relaxed);
            }
            // SAFETY: a function without arguments, that may run anywhere and stays.
            let _refused = unsafe { libc::pthread_atfork(None, Some(count), Some(count)) };
        });
        Stay {
            connection,
            forks: FORKS.load(Relaxed),
            patience,
            is_over: AtomicBool::new(false),
        }
    }

    /// Ends it, even if a callback that was left by a jump still holds the handle.
    pub(crate) fn end(&self) {
        // After a fork the other process may still read: the last one that closes ends it.
        if self.forks == FORKS.load(Relaxed) && !self.is_over.swap(true, Relaxed) {
            self.connection.leave(self.patience);
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a helper that opens `device`; gives our end of the connection to it.
pub(crate) fn start(device: &str) -> io::Result<Socket> {
    let program = program()?;
    let (near, far) = Socket::pair()?;
    let far = beyond_standard(far.as_fd().as_raw_fd())?;
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let program = text(program.as_os_str())?;
    let arguments = ["ringtap", "lend", "-i", device].map(|word| text(OsStr::new(word)));
    let arguments = arguments.into_iter().collect::<io::Result<Vec<_>>>()?;
    // It must not read through this library itself.
    let environment = std::env::vars_os().filter(|(name, _)| name != "LD_PRELOAD");
    let environment = environment.map(|(name, value)| {
        let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(entry).map_err(io::Error::from)
    });
    let environment = environment.collect::<io::Result<Vec<_>>>()?;
    spawn(&program, &arguments, &environment, far.as_raw_fd())?;
    Ok(near)
}

/// A copy of a descriptor that is none of the first three.
fn beyond_standard(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor, or fails.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The `ringtap` program that belongs to this library.
fn program() -> io::Result<PathBuf> {
    let named = trusted_variable("RINGTAP_PROGRAM").map(PathBuf::from);
    let beside = own_folder().into_iter().flat_map(|folder| {
        [
            "ringtap",
            "../ringtap",
            "../bin/ringtap",
            "../../bin/ringtap",
        ]
        .map(|at| folder.join(at))
    });
    let usual = ["/usr/local/bin/ringtap", "/usr/bin/ringtap"].map(PathBuf::from);
    let mut all = named.into_iter().chain(beside).chain(usual);
    all.find(|path| is_program(path)).ok_or_else(|| {
        let text = "the ringtap program is not there: install it, or name it in RINGTAP_PROGRAM";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Where this library lies.
fn own_folder() -> Option<PathBuf> {
    static HERE: u8 = 0;
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: an address of this library, and a structure that is filled.
    let known = unsafe { libc::dladdr((&raw const HERE).cast(), &raw mut found) };
    if known == 0 {
        return None;
    }
    // SAFETY: the loader's own text, which lasts as long as the library.
    let path = unsafe { crate::text::take(found.dli_fname) }?;
    let path = std::fs::canonicalize(path).ok()?;
    path.parent().map(Path::to_owned)
}

/// Starts a program that is nobody's child, with `socket` as its standard input.
fn spawn(
    program: &CString,
    arguments: &[CString],
    environment: &[CString],
    socket: RawFd,
) -> io::Result<()> {
    let pointers = |list: &[CString]| {
        let texts = list.iter().map(|text| text.as_ptr());
        texts.chain([ptr::null()]).collect::<Vec<_>>()
    };
    let start = Start {
        program: program.as_ptr(),
        arguments: pointers(arguments),
        environment: pointers(environment),
        socket,
        is_quiet: say::is_quiet(),
    };
    let mut all = empty_set();
    let mut before = empty_set();
    // SAFETY: fills a set of signals.
    let _never = unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: two sets; no handler of the program shall run in the child.
    let _never = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
    let child = clone();
    if child == 0 {
        start.child();
    }
    let error = io::Error::last_os_error();
    // SAFETY: the set that was in force before.
    let _never =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if child < 0 {
        return Err(error);
    }
    // The child ends at once: its own child is then an orphan, and no affair of the program's.
    loop {
        // SAFETY: waits for our own child; nothing is written.
        let ended = unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
        if ended >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Ok(());
        }
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: an empty set of signals is all zeros on Linux.
    unsafe { std::mem::zeroed() }
}

/// A fork that runs none of the program's handlers and sends no signal when it ends.
fn clone() -> libc::pid_t {
    // SAFETY: without flags the child is a copy that shares nothing, on its own copy of the stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    libc::pid_t::try_from(pid).unwrap_or(-1)
}

/// All that the child needs, made before it is there: it must not allocate.
struct Start {
    program: *const libc::c_char,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    socket: RawFd,
    is_quiet: bool,
}

impl Start {
    /// Becomes the program; only calls that are safe after a fork of a process with threads.
    fn child(&self) -> ! {
        // SAFETY: a session of its own: no terminal, no Ctrl-C.
        let _leads_already = unsafe { libc::setsid() };
        match clone() {
            0 => {}
            // SAFETY: ends this process, without any handlers.
            _ => unsafe { libc::_exit(0) },
        }
        // SAFETY: a text, and a mode of opening.
        let nothing = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        // SAFETY: numbers of descriptors.
        let _input = unsafe { libc::dup2(self.socket, 0) };
        // SAFETY: as above.
        let _output = unsafe { libc::dup2(nothing, 1) };
        if self.is_quiet {
            // SAFETY: as above.
            let _error = unsafe { libc::dup2(nothing, 2) };
        }
        // SAFETY: closes what the program has open, in this process only.
        let _closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
        let none = empty_set();
        // SAFETY: a set of signals.
        let _never =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
        // SAFETY: lists of texts that end with NULL.
        let _failed = unsafe {
            libc::execve(
                self.program,
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            )
        };
        // SAFETY: ends this process, without any handlers.
        unsafe { libc::_exit(127) }
    }
}
