// SPDX-License-Identifier: MIT OR Apache-2.0
//! The XDP program that redirects each queue's packets to its socket: loading, attaching, filters.
//!
//! Invariants
//! - Attached by a link only: the kernel detaches the program when the process ends.
//! - A queue's packets go to the network stack until its socket is ready for them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};
use ringtap_device::StampClock;
use ringtap_filter::Program as Filter;
use ringtap_ipc::mutex::lock;
use ringtap_net::interface::Interface;
use ringtap_net::rights::Purpose;
use ringtap_pool::memory::Words;

use super::layout::{QUEUES, QueueConfig, QueueControl, QueueWords};
use super::socket::XskSocket;
use crate::CaptureError;
use crate::monitor::{Attachment, Repairs, repaired_note};
use ringtap_bpf::attach;
use ringtap_bpf::link::{self, Hook};
use ringtap_bpf::map::{Access, Mapping, freeze};
use ringtap_bpf::object::{self, ObjectFile};
use ringtap_bpf::program::{NotLoaded, OriginalProgram, ProgramKind};

/// The compiled `bpf/xsk.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/xsk.bpf.o")));

/// The program that redirects the packets of one interface to the sockets.
pub(crate) struct QueueProgram {
    /// Present while the program is attached.
    link: Mutex<Option<QueueLink>>,
    /// The hook for which the program is loaded.
    pub(crate) hook: Hook,
    program: OwnedFd,
    /// The program, from which filtered copies are made.
    original: OriginalProgram,
    sockets: MapHandle,
    /// The counters of each queue.
    pub(crate) counters: Words<QueueWords>,
    controls: Words<QueueControl>,
    /// Keeps the maps open; `original` refers to their descriptors.
    _object: Object,
}

/// The attached program.
struct QueueLink {
    link: OwnedFd,
    /// The program with filters, if they are in force.
    filtered: Option<OwnedFd>,
}

/// Name of the program for a hook.
fn program_name(hook: Hook) -> &'static str {
    match hook {
        Hook::NativeBound => "rt_xsk_bound",
        _ => "rt_xsk",
    }
}

impl QueueProgram {
    /// Loads the program for a hook, with this clock of time stamps; every queue is off.
    pub(crate) fn load(
        hook: Hook,
        interface: &Interface,
        stamps: StampClock,
    ) -> Result<Self, CaptureError> {
        let name = program_name(hook);
        let config = QueueConfig {
            shared: hook == Hook::Generic,
            nic_time: stamps == StampClock::Nic,
        };
        let object = object::load(OBJECT, |open| {
            object::choose_programs(open, &[name], Some(("rt_xsk_bound", interface.index)));
            object::set_constants(open, ".rodata.config", &config.to_bytes())
        });
        let object = object
            .map_err(|failure| attach::not_loaded(&failure, &interface.name, Purpose::Xdp, 0))?;
        QueueProgram::assemble(object, hook, interface).map_err(CaptureError::system(
            &interface.name,
            "sharing memory with the program",
        ))
    }

    fn assemble(object: Object, hook: Hook, interface: &Interface) -> io::Result<Self> {
        let count = usize::from(QUEUES);
        let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let map = |name, bytes, access| -> io::Result<Arc<Mapping>> {
            let mapping = Mapping::new(object::map(&object, name)?, bytes, access)?;
            Ok(Arc::new(mapping))
        };
        freeze(object::map(&object, "rt_queues")?)?;
        let counters = map("rt_queues", count * size_of::<QueueWords>(), Access::Read)?;
        let bytes = count * size_of::<QueueControl>();
        let controls = map("rt_queue_controls", bytes, Access::ReadWrite)?;
        let name = program_name(hook);
        let bound = (hook == Hook::NativeBound).then_some(interface.index);
        Ok(QueueProgram {
            link: Mutex::new(None),
            hook,
            program: object::program(&object, name)?,
            original: OriginalProgram::from_object(&object, ProgramKind::xdp(name, bound))?,
            sockets: object::map(&object, "rt_sockets")?,
            counters: counters.words(0, count).ok_or_else(outside)?,
            controls: controls.words(0, count).ok_or_else(outside)?,
            _object: object,
        })
    }

    /// Attaches the program; the sockets receive packets from now on.
    pub(crate) fn attach(&self, interface: &Interface) -> Result<(), CaptureError> {
        let link = attach::attach(self.program.as_fd(), self.hook, interface)?;
        *self.link() = Some(QueueLink {
            link,
            filtered: None,
        });
        Ok(())
    }

    /// Attaches the program again if another program detached it; returns whether it did.
    fn repair(&self, interface: &Interface) -> Result<bool, CaptureError> {
        let mut attached = self.link();
        let Some(attached) = attached.as_mut() else {
            return Ok(false);
        };
        if link::is_attached(attached.link.as_fd()) {
            return Ok(false);
        }
        // A removed interface has no links either; the monitor sees its removal.
        interface.refresh()?;
        let program = attached.filtered.as_ref().unwrap_or(&self.program);
        attached.link = attach::attach(program.as_fd(), self.hook, interface)?;
        Ok(true)
    }

    /// Sets the socket of a queue.
    pub(crate) fn set_socket(&self, queue: u16, socket: &XskSocket) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd().to_ne_bytes();
        let queue = u32::from(queue).to_ne_bytes();
        self.sockets
            .update(&queue, &fd, MapFlags::ANY)
            .map_err(|error| object::io_error(&error))
    }

    /// Sets a queue to one of [`state`](super::layout::state).
    pub(crate) fn set_state(&self, queue: u16, state: u32) {
        if let Some(control) = self.controls.get(usize::from(queue)) {
            control.state.store(state, Release);
        }
    }

    /// Replaces the attached program by one with filters, or by the one that passes all packets.
    ///
    /// # Errors
    ///
    /// The kernel's: the old program stays attached.
    pub(crate) fn replace(&self, filtered: Option<OwnedFd>) -> io::Result<()> {
        let mut attached = self.link();
        let Some(attached) = attached.as_mut() else {
            return Ok(());
        };
        let program = filtered.as_ref().unwrap_or(&self.program);
        link::replace(attached.link.as_fd(), program.as_fd())?;
        attached.filtered = filtered;
        Ok(())
    }

    /// Loads the program with these filters in front, which can take seconds.
    pub(crate) fn with_filters(&self, filters: &[Filter]) -> Result<OwnedFd, NotLoaded> {
        let copy = self.original.load_copy(1, filters, |_| Ok(()))?;
        copy.into_fd()
    }

    /// Detaches the program; running instances still redirect packets.
    pub(crate) fn detach(&self) {
        let attached = self.link().take();
        if let Some(attached) = attached {
            link::detach(attached.link);
        }
    }

    fn link(&self) -> MutexGuard<'_, Option<QueueLink>> {
        lock(&self.link)
    }
}

/// Keeps the program attached.
pub(crate) struct QueueAttachment {
    program: Arc<QueueProgram>,
    repairs: Repairs,
}

impl QueueAttachment {
    /// For a program that is attached, or will be.
    pub(crate) fn new(program: Arc<QueueProgram>) -> Self {
        let repairs = Repairs::default();
        QueueAttachment { program, repairs }
    }
}

impl Attachment for QueueAttachment {
    fn check(&mut self, interface: &Interface) -> Result<Option<String>, CaptureError> {
        let program = &self.program;
        let repaired = self
            .repairs
            .attempt(interface, || program.repair(interface))?;
        Ok(repaired.then(|| repaired_note(interface, None)))
    }
}
