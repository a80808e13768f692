// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live frames: the kernel runs an XDP program on pages of its own and redirects them to a device.
//!
//! No packet passes a socket or a queueing discipline. Tracepoint programs count the packets that
//! the device accepted, from the result of its driver.
//!
//! Invariants
//! - One thread runs the programs; they keep their state in plain variables.
//! - `attempted = sent + refused` after each run.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a thread moves to another network namespace")]
mod active;
#[expect(unsafe_code, reason = "writes into a mapping that the kernel reads")]
mod cells;
mod layout;

use std::{
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ProgramInput,
    libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
};

use ringtap_bpf::object::{self, ObjectFile};
use ringtap_ipc::time::{monotonic_ns, nanoseconds};
use ringtap_packet::Plan;

use super::{
    batch::PacketBatch,
    counters::SendCounters,
    error::{NoLiveFrames, SendError},
};
use active::ActiveProgram;
use cells::FileCells;
use layout::CELLS;
use ringtap_net::kernel::{self, Feature};
use ringtap_net::rights::{Purpose, Rights};

pub(super) use layout::LONGEST_BYTES;

/// The compiled `bpf/send.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/send.bpf.o")));

/// The program that makes packets.
const MADE: &str = "rt_send_made";
/// The program that sends the packets of a file.
const FILE: &str = "rt_send_file";
/// The programs that count at tracepoints.
const COUNTING: [&str; 2] = ["rt_send_taken", "rt_send_refused"];

/// The key of an array's first entry.
const FIRST_KEY: [u8; 4] = [0; 4];

/// Most packets of one [`Live::send`].
pub(super) const MAX_PACKETS: usize = CELLS;

/// Wait for the number of a page pool, and the most waits before an error.
const WAIT: Duration = Duration::from_millis(10);
const MAX_WAITS: u32 = 500;

/// Loaded programs that send out of one interface.
pub(super) struct Live {
    object: Object,
    program: &'static str,
    counters: MapHandle,
    clock: MapHandle,
    /// First content of each memory page.
    page: Vec<u8>,
    cells: Option<FileCells>,
    _tracepoints: Vec<Link>,
    active: Option<ActiveProgram>,
}

impl Live {
    /// Loads the program that generates packets. Whether the device accepts live frames shows with
    /// the first packet.
    pub(super) fn for_plan(ifindex: u32, plan: &Plan) -> Result<Self, NoLiveFrames> {
        let longest = plan.longest();
        if longest > LONGEST_BYTES {
            return Err(too_long(longest));
        }
        let shapes = plan.shapes.iter();
        let page = shapes
            .max_by_key(|shape| shape.frame.len())
            .map(|shape| shape.frame.clone())
            .unwrap_or_default();
        Self::load(MADE, &layout::config(ifindex, Some(plan)), page)
    }

    /// Loads the program that sends packets from batches.
    pub(super) fn for_file(ifindex: u32) -> Result<Self, NoLiveFrames> {
        let config = layout::config(ifindex, None);
        let mut this = Self::load(FILE, &config, Vec::new())?;
        let map = object::map(&this.object, "rt_send_cells");
        let cells = map.and_then(FileCells::new);
        this.cells = Some(cells.map_err(refused("sharing the packets"))?);
        Ok(this)
    }

    fn load(program: &'static str, config: &[u8], page: Vec<u8>) -> Result<Self, NoLiveFrames> {
        let object = load_object(program, config)?;
        let missing = refused("finding the counters");
        Ok(Self {
            program,
            counters: object::map(&object, ".data.counters").map_err(missing)?,
            clock: object::map(&object, ".data.clock").map_err(refused("finding the clock"))?,
            _tracepoints: attach_tracepoints(&object)?,
            active: ActiveProgram::new(&object, program).ok(),
            object,
            page,
            cells: None,
        })
    }

    /// Sends the packets of a batch, at most [`MAX_PACKETS`] and none above [`LONGEST_BYTES`].
    pub(super) fn send(&mut self, batch: &PacketBatch) -> Result<SendCounters, SendError> {
        self.page.resize(batch.longest(), 0);
        if let Some(cells) = &mut self.cells {
            batch.packets().for_each(|packet| cells.write(packet));
        }
        match u32::try_from(batch.len()) {
            Ok(count) if count > 0 => self.send_next(count),
            _ => self.counters(),
        }
    }

    /// Sends the next `count` packets, at least one. Refused packets are counted; an error means
    /// that the kernel refused to run the program.
    pub(super) fn send_next(&mut self, count: u32) -> Result<SendCounters, SendError> {
        self.set_clock()?;
        let mut now = self.counters()?;
        let goal = now.attempted() + u64::from(count);
        let mut waits = 0;
        loop {
            let left = u32::try_from(goal.saturating_sub(now.attempted())).unwrap_or(0);
            let done = self.run_once(left);
            let before = std::mem::replace(&mut now, self.counters()?);
            match done {
                // A signal ends a run early; the rest is sent by another one.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if waits < MAX_WAITS && lacks_a_page_pool(&error) => {
                    waits += 1;
                    std::thread::sleep(WAIT);
                }
                Err(error) => return Err(failed(&error)),
                Ok(()) if now.attempted() > before.attempted() => {}
                Ok(()) => return Err(stuck()),
            }
            if now.attempted() >= goal {
                return Ok(now);
            }
        }
    }

    fn run_once(&self, count: u32) -> libbpf_rs::Result<()> {
        let program = self
            .object
            .progs_mut()
            .find(|one| one.name() == self.program);
        let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        program.test_run(ProgramInput {
            data_in: Some(&self.page),
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat: count,
            ..ProgramInput::default()
        })?;
        Ok(())
    }

    /// Whether runs start at once; otherwise the kernel delays each by 10 to 40 ms.
    pub(super) fn starts_at_once(&self) -> bool {
        self.active.is_some()
    }

    fn counters(&self) -> Result<SendCounters, SendError> {
        let value = self.counters.lookup(&FIRST_KEY, MapFlags::ANY);
        let counters = value
            .map_err(|error| failed(&error))?
            .as_deref()
            .and_then(layout::counters);
        counters.ok_or_else(|| failed(&io::Error::from(io::ErrorKind::InvalidData).into()))
    }

    /// Sets the difference between the clock of the stamps and the program's clock.
    fn set_clock(&self) -> Result<(), SendError> {
        let since = monotonic_ns();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = nanoseconds(wall.unwrap_or_default());
        let offset_ns = wall.wrapping_sub(since).cast_signed();
        let value = offset_ns.to_ne_bytes();
        let update = self.clock.update(&FIRST_KEY, &value, MapFlags::ANY);
        update.map_err(|error| failed(&error))
    }
}

/// Loads one of the sending programs, with the counting ones.
fn load_object(program: &str, config: &[u8]) -> Result<Object, NoLiveFrames> {
    let object = object::load(OBJECT, |open| {
        object::choose_programs(open, &[program, COUNTING[0], COUNTING[1]], None);
        object::set_constants(open, ".rodata.config", config)?;
        let mut cells = open.maps_mut().filter(|map| map.name() == "rt_send_cells");
        cells.try_for_each(|mut map| map.set_autocreate(program == FILE))
    });
    object.map_err(|failure| {
        if let Some(why) = lacking_rights(&failure.error) {
            return why;
        }
        if let Err(too_old) = kernel::require(Feature::XdpLiveFrames) {
            return NoLiveFrames::KernelTooOld(too_old);
        }
        let source = object::io_error(&failure.error);
        NoLiveFrames::Kernel {
            action: "loading the programs",
            source: io::Error::new(source.kind(), failure.to_string()),
        }
    })
}

/// Attaches the counting programs; dropping the links detaches them.
fn attach_tracepoints(object: &Object) -> Result<Vec<Link>, NoLiveFrames> {
    object::attach_tracepoints(object, &COUNTING).map_err(|failure| {
        let refused = |error| refused("counting at the tracepoints")(object::io_error(error));
        lacking_rights(&failure.error).unwrap_or_else(|| refused(&failure.error))
    })
}

/// The refusal in terms of rights, if it is a matter of those.
fn lacking_rights(error: &libbpf_rs::Error) -> Option<NoLiveFrames> {
    if error.kind() != ErrorKind::PermissionDenied {
        return None;
    }
    let rights = Rights::current().require(Purpose::LiveFrames);
    rights.err().map(NoLiveFrames::Rights)
}

/// Makes the error of a call that the kernel refused.
fn refused(action: &'static str) -> impl FnOnce(io::Error) -> NoLiveFrames {
    move |source| NoLiveFrames::Kernel { action, source }
}

/// The error for frames of this length.
pub(super) fn too_long(frame_bytes: usize) -> NoLiveFrames {
    NoLiveFrames::TooLong {
        frame_bytes,
        max_bytes: LONGEST_BYTES,
    }
}

/// The kernel numbers the page pools of all runs with 16 bits. It takes a number back when all CPUs
/// have passed a quiet state, or about a second later if packets were still on the way: many
/// senders together, of whatever kind, can use them up.
fn lacks_a_page_pool(error: &libbpf_rs::Error) -> bool {
    object::io_error(error).kind() == io::ErrorKind::StorageFull
}

fn failed(error: &libbpf_rs::Error) -> SendError {
    if error.kind() == ErrorKind::InvalidInput
        && let Err(too_old) = kernel::require(Feature::XdpLiveFrames)
    {
        return SendError::Live(NoLiveFrames::KernelTooOld(too_old));
    }
    SendError::Kernel {
        action: "running the sending program",
        source: object::io_error(error),
    }
}

fn stuck() -> SendError {
    SendError::Kernel {
        action: "running the sending program: it sent nothing",
        source: io::ErrorKind::InvalidData.into(),
    }
}
