// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a sending program active in the kernel's XDP dispatcher, so that runs start at once.
//!
//! The kernel calls XDP programs through a dispatcher. When a program becomes active or inactive, the
//! kernel rewrites the dispatcher and waits until every CPU has left the old one: 10 to 40 ms. A test
//! run causes both, unless its program is active already. So this module attaches the program where
//! no packet arrives: to the loopback interface, which is down, of a network namespace without a
//! name. The namespace ends with this value or with its process.
//!
//! Invariants
//! - Only a new thread enters the namespace; it ends before [`ActiveProgram::new`] returns.

use std::{fs::File, io, thread};

use libbpf_rs::{Link, Object};
use ringtap_bpf::object;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The loopback interface's index in every namespace.
const LOOPBACK: i32 = 1;

/// An active program.
pub(super) struct ActiveProgram {
    /// Before the namespace: fields are dropped in this order.
    _link: Link,
    _namespace: File,
}

impl ActiveProgram {
    /// Activates a loaded program; needs `CAP_SYS_ADMIN` for the namespace.
    pub(super) fn new(object: &Object, program: &str) -> io::Result<Self> {
        thread::scope(|scope| {
            let attached = scope.spawn(|| attach(object, program)).join();
            attached.unwrap_or_else(|_panic| Err(io::ErrorKind::Other.into()))
        })
    }
}

fn attach(object: &Object, program: &str) -> io::Result<ActiveProgram> {
    // SAFETY: the flag moves the calling thread, which only runs this function, to another
    // network namespace; no descriptor, memory or file system is shared or unshared by it.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    let namespace = File::open("/proc/thread-self/ns/net")?;
    let program = object.progs_mut().find(|one| one.name() == program);
    let program = program.ok_or(io::ErrorKind::NotFound)?;
    let (link, _said) = object::logged(|| program.attach_xdp(LOOPBACK));
    Ok(ActiveProgram {
        _link: link.map_err(|error| object::io_error(&error))?,
        _namespace: namespace,
    })
}
