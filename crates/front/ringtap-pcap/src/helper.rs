// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts `ringtap serve-one`, the process that captures for one handle, and counts forks.
//!
//! Invariants
//! - The program gets no SIGCHLD and no child to wait for. Ctrl-C does not reach the capture
//!   process, which keeps no descriptor of the program open.
//! - The capture process ends when the last copy of its connection is closed.

use std::ffi::{CString, OsStr, c_char};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ringtap_ipc::environment;
use ringtap_ipc::socket::Socket;

use crate::messages;

/// Possible paths of the `ringtap` program, relative to this library's folder.
const NEAR: [&str; 4] = [
    "ringtap",
    "../ringtap",
    "../bin/ringtap",
    "../../bin/ringtap",
];

/// Number of forks of this process since the first call.
pub(crate) fn forks() -> usize {
    static FORKS: AtomicUsize = AtomicUsize::new(0);
    static COUNTS: Once = Once::new();
    extern "C" fn count() {
        FORKS.fetch_add(1, Relaxed);
    }
    COUNTS.call_once(|| {
        // SAFETY: the functions take no arguments, may run anywhere and are never unloaded.
        let _refused = unsafe { libc::pthread_atfork(None, Some(count), Some(count)) };
    });
    FORKS.load(Relaxed)
}

/// Starts a process that captures from `device`; returns this process's end of the connection.
pub(crate) fn start(device: &str) -> io::Result<Socket> {
    let (near, far) = Socket::pair()?;
    let socket = beyond_standard(far.as_fd().as_raw_fd())?;
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let arguments = ["ringtap", "serve-one", "-i", device].map(|word| text(OsStr::new(word)));
    // The capture process itself must not read through this library.
    let environment = environment::all()
        .filter(|(name, _)| name != "LD_PRELOAD")
        .map(|(name, value)| {
            let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
            text(OsStr::from_bytes(&entry))
        });
    let program = text(program()?.as_os_str())?;
    let arguments = arguments.into_iter().collect::<io::Result<Vec<_>>>()?;
    let environment = environment.collect::<io::Result<Vec<_>>>()?;
    HelperCommand {
        program: program.as_ptr(),
        arguments: pointers(&arguments),
        environment: pointers(&environment),
        socket: socket.as_raw_fd(),
        is_quiet: messages::is_quiet(),
    }
    .spawn()?;
    Ok(near)
}

/// A copy of a descriptor whose number is not 0, 1 or 2.
fn beyond_standard(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: creates a new descriptor, or fails.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, and not shared.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The addresses of these texts, followed by NULL.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([ptr::null()]).collect()
}

/// The `ringtap` program that belongs to this library.
fn program() -> io::Result<PathBuf> {
    let named = environment::variable("RINGTAP_PROGRAM").map(PathBuf::from);
    let folder = own_folder().into_iter();
    let near = folder.flat_map(|folder| NEAR.map(|path| folder.join(path)));
    let usual = ["/usr/local/bin/ringtap", "/usr/bin/ringtap"].map(PathBuf::from);
    let mut all = named.into_iter().chain(near).chain(usual);
    all.find(|path| is_program(path)).ok_or_else(|| {
        let text = "the ringtap program is not there: install it, or name it in RINGTAP_PROGRAM";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The folder of this library.
fn own_folder() -> Option<PathBuf> {
    static HERE: u8 = 0;
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: an address in this library, and a structure to fill.
    let known = unsafe { libc::dladdr((&raw const HERE).cast(), &raw mut found) };
    if known == 0 {
        return None;
    }
    // SAFETY: a text of the loader, valid as long as the library is loaded.
    let path = unsafe { crate::text::take(found.dli_fname) }?;
    let path = std::fs::canonicalize(path).ok()?;
    path.parent().map(Path::to_owned)
}

/// A program to run. The child must not allocate, so everything it needs is made before the fork.
struct HelperCommand {
    program: *const c_char,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// The program's future standard input.
    socket: RawFd,
    is_quiet: bool,
}

impl HelperCommand {
    /// Starts the program as an orphan, so that nobody has to wait for it.
    fn spawn(&self) -> io::Result<()> {
        let mut all = empty_set();
        let mut before = empty_set();
        // SAFETY: fills a set of signals.
        let _never = unsafe { libc::sigfillset(&raw mut all) };
        // No signal handler of the program runs in the child.
        // SAFETY: two sets of signals.
        let _never =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
        let child = fork_silently();
        if child == 0 {
            self.run();
        }
        let error = io::Error::last_os_error();
        set_signal_mask(&before);
        if child < 0 {
            return Err(error);
        }
        // The child ends at once, which orphans its own child.
        loop {
            // SAFETY: waits for the child made above; nothing is written.
            let ended = unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
            if ended >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Ok(());
            }
        }
    }

    /// Becomes the program; makes only calls that are safe after a fork of a process with threads.
    fn run(&self) -> ! {
        // SAFETY: starts a new session, without a terminal and Ctrl-C.
        let _leads_already = unsafe { libc::setsid() };
        if fork_silently() != 0 {
            // SAFETY: ends this process without any exit handlers.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: a text and flags.
        let nothing = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        let error = if self.is_quiet { nothing } else { 2 };
        for (from, to) in [(nothing, 1), (error, 2), (self.socket, 0)] {
            // SAFETY: takes numbers of descriptors.
            let _copy = unsafe { libc::dup2(from, to) };
        }
        // SAFETY: closes this process's copies of the program's descriptors.
        let _closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
        set_signal_mask(&empty_set());
        let (arguments, environment) = (self.arguments.as_ptr(), self.environment.as_ptr());
        // SAFETY: a text, and lists of texts that end with NULL.
        let _failed = unsafe { libc::execve(self.program, arguments, environment) };
        // SAFETY: as above.
        unsafe { libc::_exit(127) }
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: on Linux, an empty set of signals is all zeros.
    unsafe { std::mem::zeroed() }
}

/// Blocks exactly these signals.
fn set_signal_mask(set: &libc::sigset_t) {
    // SAFETY: a set of signals.
    let _never = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, ptr::null_mut()) };
}

/// Forks without the program's fork handlers, and without a signal when the child ends.
fn fork_silently() -> libc::pid_t {
    // SAFETY: without flags the child is a copy that shares nothing, on a copy of the stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    libc::pid_t::try_from(pid).unwrap_or(-1)
}
