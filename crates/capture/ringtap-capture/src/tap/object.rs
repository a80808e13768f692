// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tap's programs and maps, fills the maps, and freezes what nobody may write.
//!
//! Invariants
//! - The order is: load, fill, freeze, map. Nothing is attached before all of it is done.
//! - Once frozen, pool, lanes, stacks and capture rings are written by the programs only.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use libbpf_rs::libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY;
use libbpf_rs::{
    ErrorKind, MapCore, Object, ObjectBuilder, OpenMapMut, OpenObject, RingBuffer,
    RingBufferBuilder,
};

use ringtap_pool::memory::Words;

use super::clock;
use super::error::TapError;
use super::groups;
use super::hook::Program;
use super::mapping::{Access, Mapping, fill, freeze, read_only};
use super::options::TapOptions;
use super::plan::Plan;
use super::splice::Insn;
use super::words::{ControlWords, ForwardedWords, LaneWords};
use crate::libbpf::{self, Code};
use ringtap_net::kernel::{self, Feature};
use ringtap_net::rights::{Purpose, Rights};

/// The compiled `bpf/tap.bpf.c`.
static CODE: &Code<[u8]> = &Code(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// A page, the least size of a ring buffer.
const WAKEUPS_BYTES: u32 = 4096;
const WORD: usize = size_of::<u64>();

/// Loaded programs and the mappings of their maps.
pub(super) struct Loaded {
    object: Object,
    pub(super) pool_map: OwnedFd,
    pub(super) pool: Arc<Mapping>,
    pub(super) lanes: Arc<Mapping>,
    pub(super) control: Arc<Mapping>,
    pub(super) control_words: Words<ControlWords>,
    pub(super) wakeups: OwnedFd,
    /// The same without the right to take signals out.
    pub(super) readers_wakeups: Option<OwnedFd>,
    pub(super) capture_ring: Arc<Mapping>,
    pub(super) recycle_ring: Arc<Mapping>,
    pub(super) forwarded: Words<ForwardedWords>,
    pub(super) groups: Words<AtomicU64>,
}

impl Loaded {
    /// Makes the maps and loads these programs, for this interface if they want one.
    ///
    /// # Errors
    ///
    /// [`TapError::NoRights`], [`TapError::TooOld`], [`TapError::NoMemory`],
    /// [`TapError::Load`], [`TapError::System`].
    pub(super) fn new(
        options: &TapOptions,
        plan: &Plan,
        interface: u32,
        programs: &[Program],
    ) -> Result<Self, TapError> {
        let (object, log) = libbpf::collect(|| {
            let mut open = ObjectBuilder::default().open_memory(&CODE.0)?;
            choose_programs(&mut open, interface, programs);
            size_maps(&mut open, options, plan)?;
            open.load()
        });
        let object = object.map_err(|error| explain(&error, log, options, plan))?;
        Loaded::map(object, plan).map_err(|source| TapError::System {
            interface: options.interface.clone(),
            action: "sharing the pool's memory",
            reason: source,
        })
    }

    fn map(object: Object, plan: &Plan) -> io::Result<Self> {
        let header = plan.geometry.header();
        fill(&fd(&object, "rt_pool")?, header.len(), |bytes| {
            bytes.copy_from_slice(&header)
        })?;
        let rings = bytes(plan.all_ring_entries(), WORD)?;
        fill(&fd(&object, "rt_free_chunks")?, rings, |bytes| {
            fill_stacks(bytes, plan)
        })?;
        let lanes = bytes(plan.possible, size_of::<LaneWords>())?;
        fill(&fd(&object, "rt_lanes")?, lanes, |bytes| {
            fill_depths(bytes, plan)
        })?;
        for name in [
            "rt_pool",
            "rt_lanes",
            "rt_free_chunks",
            "rt_capture_ring",
            "rt_forwarded",
        ] {
            freeze(&fd(&object, name)?)?;
        }
        let map = |name, bytes, access| -> io::Result<Arc<Mapping>> {
            Ok(Arc::new(Mapping::new(&fd(&object, name)?, bytes, access)?))
        };
        let pool = usize::try_from(plan.map_bytes()).map_err(io::Error::other)?;
        let forwarded = bytes(plan.possible, size_of::<ForwardedWords>())?;
        let possible = usize::try_from(plan.possible).map_err(io::Error::other)?;
        let control = bytes(plan.possible, size_of::<ControlWords>())?;
        let control = map("rt_control", control, Access::ReadWrite)?;
        let words = control.words(0, possible);
        let loaded = Loaded {
            pool_map: fd(&object, "rt_pool")?,
            pool: map("rt_pool", pool, Access::Read)?,
            lanes: map("rt_lanes", lanes, Access::Read)?,
            control_words: words.ok_or(io::ErrorKind::UnexpectedEof)?,
            control,
            // Without it readers are woken by way of the hub.
            readers_wakeups: read_only(&fd(&object, "rt_wakeups")?).ok(),
            wakeups: fd(&object, "rt_wakeups")?,
            capture_ring: map("rt_capture_ring", rings, Access::Read)?,
            recycle_ring: map("rt_recycle_ring", rings, Access::ReadWrite)?,
            forwarded: map("rt_forwarded", forwarded, Access::Read)?
                .words(0, possible)
                .ok_or(io::ErrorKind::UnexpectedEof)?,
            groups: map("rt_groups", groups::ALL_WORDS * WORD, Access::ReadWrite)?
                .words(0, groups::ALL_WORDS)
                .ok_or(io::ErrorKind::UnexpectedEof)?,
            object,
        };
        loaded.set_clock(clock::tai_minus_utc_ns()?);
        Ok(loaded)
    }

    /// Tells the programs how far atomic time is ahead of UTC.
    pub(super) fn set_clock(&self, tai_minus_utc_ns: i64) {
        for words in self.control_words.iter() {
            words.tai_minus_utc_ns.store(tai_minus_utc_ns, Relaxed);
        }
    }

    /// Tells the programs whether this lane captures.
    pub(super) fn set_paused(&self, lane: usize, paused: bool) {
        if let Some(words) = self.control_words.get(lane) {
            words.paused.store(u32::from(paused), Relaxed);
        }
    }

    /// A loaded program's instructions, as the kernel got them.
    pub(super) fn insns(&self, program: Program) -> io::Result<Vec<Insn>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the program is not loaded");
        let mut programs = self.object.progs();
        let found = programs.find(|loaded| loaded.name() == program.name());
        Ok(libbpf::insns(&found.ok_or_else(missing)?))
    }

    /// A descriptor of a loaded program.
    pub(super) fn program(&self, program: Program) -> io::Result<OwnedFd> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the program is not loaded");
        let found = self
            .object
            .progs()
            .find(|loaded| loaded.name() == program.name());
        found.ok_or_else(missing)?.as_fd().try_clone_to_owned()
    }

    /// The signals that lanes send; what they carry is not looked at.
    pub(super) fn signals(&self) -> io::Result<RingBuffer<'static>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no map rt_wakeups");
        let map = self
            .object
            .maps()
            .find(|map| map.name() == "rt_wakeups")
            .ok_or_else(missing)?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, |_| 0).map_err(io::Error::other)?;
        builder.build().map_err(io::Error::other)
    }
}

/// Tells the programs which sets of groups are in force.
pub(super) fn set_groups(controls: &Words<ControlWords>, sets: u32) {
    for words in controls.iter() {
        // The groups that were written before are visible to the program that reads this: its
        // loads of them depend on the value.
        words.group_sets.store(sets, Release);
    }
}

/// A descriptor of one of the object's maps.
fn fd(object: &Object, name: &str) -> io::Result<OwnedFd> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no map {name}"));
    let map = object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(missing)?;
    map.as_fd().try_clone_to_owned()
}

fn bytes(count: u32, size: usize) -> io::Result<usize> {
    let count = usize::try_from(count).map_err(io::Error::other)?;
    count
        .checked_mul(size)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn choose_programs(open: &mut OpenObject, interface: u32, programs: &[Program]) {
    for mut program in open.progs_mut() {
        let wanted = programs
            .iter()
            .find(|wanted| program.name() == wanted.name());
        program.set_autoload(wanted.is_some());
        if wanted == Some(&Program::RxVlan) {
            program.set_flags(BPF_F_XDP_DEV_BOUND_ONLY);
            program.set_ifindex(interface);
        }
    }
}

fn size_maps(open: &mut OpenObject, options: &TapOptions, plan: &Plan) -> libbpf_rs::Result<()> {
    let stride = u32::try_from(plan.geometry.segment_stride).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "rt_pool" => {
                map.set_value_size(stride)?;
                map.set_max_entries(plan.segments())?;
            }
            "rt_lanes" | "rt_control" | "rt_turns" | "rt_forwarded" => {
                map.set_max_entries(plan.possible)?
            }
            "rt_free_chunks" | "rt_capture_ring" | "rt_recycle_ring" => {
                map.set_max_entries(plan.all_ring_entries())?;
            }
            "rt_wakeups" => map.set_max_entries(WAKEUPS_BYTES)?,
            ".rodata.config" => set_config(&mut map, options, plan)?,
            _ => {}
        }
    }
    Ok(())
}

fn set_config(
    map: &mut OpenMapMut<'_>,
    options: &TapOptions,
    plan: &Plan,
) -> libbpf_rs::Result<()> {
    map.set_initial_value(&plan.config(options).to_bytes())
}

/// Each lane's chunks, as a stack.
fn fill_stacks(bytes: &mut [u8], plan: &Plan) {
    let (entries, _) = bytes.as_chunks_mut::<WORD>();
    for (at, chunk) in plan.free_chunks() {
        if let Some(entry) = usize::try_from(at).ok().and_then(|at| entries.get_mut(at)) {
            *entry = u64::from(chunk.0).to_ne_bytes();
        }
    }
}

/// Each lane's stack depth.
fn fill_depths(bytes: &mut [u8], plan: &Plan) {
    let at = std::mem::offset_of!(LaneWords, free_depth);
    let lanes = bytes
        .chunks_exact_mut(size_of::<LaneWords>())
        .zip(0..plan.lanes);
    for (lane, _) in lanes {
        lane[at..at + 4].copy_from_slice(&plan.share().to_ne_bytes());
    }
}

/// What a failed load means to the user.
fn explain(
    error: &libbpf_rs::Error,
    log: Vec<String>,
    options: &TapOptions,
    plan: &Plan,
) -> TapError {
    let interface = options.interface.clone();
    match error.kind() {
        ErrorKind::OutOfMemory => {
            return TapError::NoMemory {
                interface,
                pool_bytes: plan.map_bytes(),
            };
        }
        ErrorKind::PermissionDenied => {
            if let Err(source) = Rights::of_this_process().require(Purpose::Tap) {
                return TapError::NoRights {
                    interface,
                    reason: source,
                };
            }
        }
        _ => {}
    }
    let needs = [
        Feature::MappedMaps,
        Feature::XdpMultiBuffer,
        Feature::TaiClock,
    ];
    match needs.into_iter().try_for_each(kernel::require) {
        Err(source) => TapError::TooOld {
            interface,
            reason: source,
        },
        Ok(()) => TapError::Load {
            interface,
            log: last_lines(&log, error),
        },
    }
}

/// The end of libbpf's log, where the reason stands.
fn last_lines(log: &[String], error: &libbpf_rs::Error) -> String {
    const KEPT: usize = 12;
    let lines: Vec<_> = log.iter().flat_map(|line| line.lines()).collect();
    let tail = lines[lines.len().saturating_sub(KEPT)..].join("\n");
    format!("{error}\n{tail}").trim_end().to_owned()
}
