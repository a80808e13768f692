// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of work with a guest, with their remedies.
#![forbid(unsafe_code)]

use std::io;

use thiserror::Error;

use crate::host::qmp::QmpError;

/// Why a guest, or a device of it, cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VmError {
    /// No free pcie-root-port.
    #[error(
        "no free pcie-root-port with an id: start QEMU with -M q35 and one \
         -device pcie-root-port,id=…,chassis=…,pref64-reserve=… for the command port and for each device"
    )]
    NoPort,
    /// No free port has a large enough window.
    #[error(
        "a device of {bytes} bytes fits behind no free pcie-root-port (the largest window has {largest} \
         bytes): start QEMU with -device pcie-root-port,…,pref64-reserve={bytes}"
    )]
    NoWindow {
        /// Bytes of the device.
        bytes: u64,
        /// Bytes of the largest window.
        largest: u64,
    },
    /// A size that no device has.
    #[error("a device cannot have {0} bytes of memory")]
    Size(u64),
    /// A number of events that no device has.
    #[error("{0} events: a control device has 1 to 64 in each direction")]
    Vectors(u16),
    /// Number 0.
    #[error("application 0 is the framework: applications have other numbers")]
    NoApplication,
    /// QEMU is too old.
    #[error("QEMU {0}.{1} is older than 7.2, the oldest that was tried: hot-plug might end the VM")]
    TooOld(u64, u64),
    /// The machine is paused, migrating or has crashed.
    #[error(
        "the VM is in state {0:?}, instead of running: resume it first, or attach it with --resume \
         if it migrates to this QEMU"
    )]
    NotRunning(String),
    /// QEMU cannot open memory that it was given.
    #[error("QEMU cannot open the memory that it was given ({0}): it needs /proc")]
    Memory(String),
    /// The guest does not let devices go.
    #[error("the guest does not let go of {0}: end its agent, or restart the VM")]
    Held(String),
    /// A name that no application has.
    #[error("{0:?} is no name of an application: use at most 32 of a-z, 0-9 and _")]
    Name(String),
    /// Another process serves the guest.
    #[error(
        "process {process} serves this VM for the application {application} already: end it first"
    )]
    Owned {
        /// The application.
        application: String,
        /// The other process, by its number in its own PID namespace.
        process: u32,
    },
    /// QEMU runs, but its QMP socket or libvirt does not answer.
    #[error("libvirt or QEMU's QMP socket does not answer, while the VM runs on: try again later")]
    Disconnected,
    /// The guest's kernel, or another program, has unplugged a device.
    #[error("{0} was unplugged, but not by this process: attach the VM again")]
    Unplugged(String),
    /// QEMU has not migrated the guest.
    #[error("QEMU did not migrate the VM: {0}; the VM goes on here, detached")]
    Migration(String),
    /// No such device.
    #[error("the device is not plugged")]
    NoDevice,
    /// No agent.
    #[error("no agent runs in the guest")]
    NoAgent,
    /// The agent takes no messages.
    #[error("the guest does not take its messages: its limit unsent_bytes = {0} is reached")]
    Unsent(usize),
    /// A message that is too long.
    #[error("a payload of {0} bytes is longer than a message may be")]
    TooLong(usize),
    /// QEMU is gone.
    #[error("QEMU has ended")]
    Gone,
    /// QMP failed.
    #[error(transparent)]
    Qmp(QmpError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<QmpError> for VmError {
    fn from(error: QmpError) -> Self {
        match error {
            QmpError::Gone => VmError::Gone,
            error => VmError::Qmp(error),
        }
    }
}

impl From<rustix::io::Errno> for VmError {
    fn from(error: rustix::io::Errno) -> Self {
        VmError::Io(error.into())
    }
}
