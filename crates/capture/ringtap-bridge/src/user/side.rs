// SPDX-License-Identifier: MIT OR Apache-2.0
//! One interface of the bridge: its program, sockets and counters.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use ringtap_bpf::attach::{self, Binding, Variants};
use ringtap_bpf::conflict::{self, Effect};
use ringtap_bpf::link::Hook;
use ringtap_capture::CaptureError;
use ringtap_capture::monitor::InterfaceMonitor;
use ringtap_capture::nic::NicLosses;
use ringtap_capture::queues;
use ringtap_capture::xdp::layout::QueueWords;
use ringtap_capture::xdp::options::cell_for;
use ringtap_capture::xdp::program::QueueProgram;
use ringtap_capture::xdp::setup::explain;
use ringtap_capture::xdp::socket::{self, BothWays, SocketMemory, SocketSettings, XskSocket};
use ringtap_device::{Mode, Queues, StampClock};
use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_pool::number::to_u64;
use rustix::net::xdp::SocketAddrXdpFlags as Flags;

use super::memory::{BridgeMemory, CELLS};

/// One interface of the bridge.
pub(super) struct Side {
    /// Present while the program is attached; stopped first, because it attaches the program again.
    pub(super) monitor: Option<InterfaceMonitor>,
    pub(super) program: Arc<QueueProgram>,
    pub(super) queues: Vec<u16>,
    pub(super) sockets: Vec<Arc<XskSocket>>,
    pub(super) nic: NicLosses,
    pub(super) interface: Interface,
    pub(super) _promiscuous: Promiscuous,
}

/// Converts the error of a system call that failed for both interfaces.
pub(super) fn system(
    both: &str,
    action: &'static str,
) -> impl FnOnce(io::Error) -> CaptureError + use<> {
    CaptureError::system(both, action)
}

impl Side {
    pub(super) fn load(
        interface: &Interface,
        notes: &mut Vec<String>,
    ) -> Result<Self, CaptureError> {
        let queues = queues::selected(&Queues::All, interface)?;
        conflict::refuse_another_ringtap(interface, Effect::Takes, &[])?;
        conflict::wait_for_another(interface, |_| true)?;
        let hook = attach::hooks(
            Mode::Auto,
            Variants::Xdp,
            Binding::ToInterface,
            interface,
            notes,
        );
        let hook = hook.first().copied().unwrap_or(Hook::Generic);
        Ok(Side {
            monitor: None,
            program: Arc::new(QueueProgram::load(hook, interface, StampClock::Host)?),
            queues,
            sockets: Vec::new(),
            nic: NicLosses::of(interface)?,
            _promiscuous: Promiscuous::enable(interface.index)?,
            interface: interface.clone(),
        })
    }

    /// Number of packets that the program saw.
    pub(super) fn offered(&self) -> u64 {
        self.words(|words| words.offered.load(Acquire))
    }

    /// Number of packets that the sockets or the program lost.
    pub(super) fn lost(&self) -> u64 {
        let sockets = self.sockets.iter().filter_map(|socket| socket.lost().ok());
        sockets.sum::<u64>() + self.words(|words| words.failed.load(Acquire))
    }

    pub(super) fn words(&self, count: impl Fn(&QueueWords) -> u64) -> u64 {
        let queues = self.queues.iter().map(|queue| usize::from(*queue));
        let words = queues.filter_map(|queue| self.program.counters.get(queue));
        words.map(count).sum()
    }
}

/// Binds a socket of a queue to the memory of both interfaces.
pub(super) fn bind(
    side: &Side,
    queue: u16,
    first: Option<&XskSocket>,
    memory: &BridgeMemory,
    notes: &mut Vec<String>,
) -> Result<BothWays, CaptureError> {
    let (_, needs_several) = cell_for(side.interface.largest_frame_bytes());
    let several = if needs_several {
        Flags::XDP_USE_SG
    } else {
        Flags::empty()
    };
    let wanted = |mode| SocketSettings {
        interface: side.interface.index,
        cell: memory.cell(),
        entries: CELLS,
        flags: mode | Flags::XDP_USE_NEED_WAKEUP | several,
    };
    let attempt = |mode| -> io::Result<BothWays> {
        let shared = match first {
            Some(socket) => socket::Umem::Of(socket),
            None => socket::Umem::New(SocketMemory::of(memory.region())?),
        };
        socket::both_ways(&wanted(mode), queue, shared)
    };
    let failed = |error| {
        let bytes = to_u64(memory.region().bytes());
        explain(error, queue, &side.interface, bytes, memory.cell())
    };
    let is_native = side.program.hook != Hook::Generic;
    if first.is_none() && is_native {
        match attempt(Flags::XDP_ZEROCOPY) {
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => notes.push(format!(
                "{}: the driver gives AF_XDP no zero-copy ({error}); falling back to copy mode: \
                 the kernel copies each packet in and out",
                side.interface.name
            )),
            done => return done.map_err(failed),
        }
    }
    attempt(Flags::XDP_COPY).map_err(failed)
}
