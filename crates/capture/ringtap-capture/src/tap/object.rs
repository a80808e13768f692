// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tap's programs and maps, fills the maps, and freezes those that user space must not write.
//!
//! Invariants
//! - The order is: load, fill, freeze, map; programs are attached afterwards.
//! - Only the programs write the frozen maps: pool, lanes, stacks and capture rings.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use libbpf_rs::{MapHandle, Object, OpenObject, RingBuffer, RingBufferBuilder};

use ringtap_net::rights::Purpose;
use ringtap_pool::format::FIRST_EPOCH;
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_u32;

use super::flows::{self, FlowMaps};
use super::groups;
use super::layout::{ControlWords, ForwardedWords, InlineWords, LaneWords};
use super::options::TapOptions;
use super::plan::TapPlan;
use super::programs::TapProgram;
use crate::CaptureError;
use crate::clock;
use ringtap_bpf::attach;
use ringtap_bpf::map::{Access, Mapping, fill, freeze, read_only};
use ringtap_bpf::object::{self as bpf, ObjectFile};
use ringtap_bpf::program::{OriginalProgram, ProgramCopy};

/// The compiled `bpf/tap.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// One page, the smallest size of a ring buffer.
const WAKEUPS_BYTES: u32 = 4096;
const WORD: usize = size_of::<u64>();

/// Loaded programs and the mappings of their maps.
pub(super) struct Loaded {
    object: Object,
    pub(super) pool_map: MapHandle,
    pub(super) pool: Arc<Mapping>,
    pub(super) lanes: Arc<Mapping>,
    pub(super) control: Arc<Mapping>,
    pub(super) control_words: Words<ControlWords>,
    pub(super) wakeups: MapHandle,
    /// The same ring buffer for readers, which can wait on it but not consume signals.
    pub(super) readers_wakeups: Option<OwnedFd>,
    pub(super) capture_ring: Arc<Mapping>,
    pub(super) recycle_ring: Arc<Mapping>,
    pub(super) forwarded: Words<ForwardedWords>,
    pub(super) groups: Words<AtomicU64>,
    pub(super) flows: FlowMaps,
    pub(super) inline: Words<InlineWords>,
    /// Number of the descriptor of the small table of decided flows.
    pub(super) decided: i32,
}

impl Loaded {
    /// Creates the maps and loads the programs; binds the program that needs it to `interface`.
    pub(super) fn new(
        options: &TapOptions,
        plan: &TapPlan,
        interface: u32,
        programs: &[TapProgram],
    ) -> Result<Self, CaptureError> {
        let names: Vec<_> = programs.iter().map(|program| program.name()).collect();
        let bound = (TapProgram::RxBound.name(), interface);
        let name = &options.on.interface;
        let object = bpf::load(OBJECT, |open| {
            bpf::choose_programs(open, &names, Some(bound));
            bpf::set_constants(open, ".rodata.config", &plan.config(options).to_bytes())?;
            size_maps(open, plan)
        });
        let object = object.map_err(|failure| {
            attach::not_loaded(&failure, name, Purpose::Tap, plan.map_bytes())
        })?;
        let action = "sharing the pool's memory";
        Loaded::map(object, plan).map_err(CaptureError::system(name, action))
    }

    fn map(object: Object, plan: &TapPlan) -> io::Result<Self> {
        let header = plan.geometry.header(FIRST_EPOCH);
        let rings = bytes(plan.all_ring_entries(), WORD)?;
        let lanes = bytes(plan.possible, size_of::<LaneWords>())?;
        fill(bpf::map(&object, "rt_pool")?, header.len(), |bytes| {
            bytes.copy_from_slice(&header)
        })?;
        fill(bpf::map(&object, "rt_free_chunks")?, rings, |bytes| {
            fill_stacks(bytes, plan)
        })?;
        fill(bpf::map(&object, "rt_lanes")?, lanes, |bytes| {
            fill_depths(bytes, plan)
        })?;
        for name in [
            "rt_pool",
            "rt_lanes",
            "rt_free_chunks",
            "rt_capture_ring",
            "rt_forwarded",
            "rt_shunted",
        ] {
            freeze(bpf::map(&object, name)?)?;
        }
        let map = |name, bytes, access| -> io::Result<Arc<Mapping>> {
            Ok(Arc::new(Mapping::new(
                bpf::map(&object, name)?,
                bytes,
                access,
            )?))
        };
        let pool = usize::try_from(plan.map_bytes()).map_err(io::Error::other)?;
        let forwarded = bytes(plan.possible, size_of::<ForwardedWords>())?;
        let possible = usize::try_from(plan.possible).map_err(io::Error::other)?;
        let control = bytes(plan.possible, size_of::<ControlWords>())?;
        let control = map("rt_control", control, Access::ReadWrite)?;
        let words = control.words(0, possible);
        let loaded = Loaded {
            pool_map: bpf::map(&object, "rt_pool")?,
            pool: map("rt_pool", pool, Access::Read)?,
            lanes: map("rt_lanes", lanes, Access::Read)?,
            control_words: words.ok_or(io::ErrorKind::UnexpectedEof)?,
            control,
            // Without it the hub wakes the readers.
            readers_wakeups: read_only(bpf::map(&object, "rt_wakeups")?).ok(),
            wakeups: bpf::map(&object, "rt_wakeups")?,
            capture_ring: map("rt_capture_ring", rings, Access::Read)?,
            recycle_ring: map("rt_recycle_ring", rings, Access::ReadWrite)?,
            forwarded: map("rt_forwarded", forwarded, Access::Read)?
                .words(0, possible)
                .ok_or(io::ErrorKind::UnexpectedEof)?,
            groups: map("rt_groups", groups::ALL_WORDS * WORD, Access::ReadWrite)?
                .words(0, groups::ALL_WORDS)
                .ok_or(io::ErrorKind::UnexpectedEof)?,
            flows: FlowMaps::from_object(&object, possible)?,
            inline: map("rt_inline", size_of::<InlineWords>(), Access::ReadWrite)?
                .words(0, 1)
                .ok_or(io::ErrorKind::UnexpectedEof)?,
            decided: bpf::map_number(&object, "rt_decided")?,
            object,
        };
        set_clock(&loaded.control_words, clock::read()?);
        Ok(loaded)
    }

    /// Pauses or resumes capture on a lane.
    pub(super) fn set_paused(&self, lane: usize, paused: bool) {
        if let Some(words) = self.control_words.get(lane) {
            words.paused.store(u32::from(paused), Relaxed);
        }
    }

    /// A loaded program, for changed copies.
    pub(super) fn original(
        &self,
        program: TapProgram,
        interface: u32,
    ) -> io::Result<OriginalProgram> {
        OriginalProgram::from_object(&self.object, program.kind(interface))
    }

    /// A loaded program, as it was loaded for `interface`.
    pub(super) fn copy(&self, program: TapProgram, interface: u32) -> io::Result<ProgramCopy> {
        ProgramCopy::from_object(&self.object, program.kind(interface))
    }

    /// The lanes' signals; their content is ignored.
    pub(super) fn signals(&self) -> io::Result<RingBuffer<'static>> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.wakeups, |_| 0)
            .map_err(io::Error::other)?;
        builder.build().map_err(io::Error::other)
    }
}

/// Sets the difference between TAI and UTC in the programs.
pub(super) fn set_clock(controls: &Words<ControlWords>, tai_minus_utc_ns: i64) {
    for words in controls.iter() {
        words.tai_minus_utc_ns.store(tai_minus_utc_ns, Relaxed);
    }
}

/// Selects the sets of groups in force.
pub(super) fn set_groups(controls: &Words<ControlWords>, sets: u32) {
    for words in controls.iter() {
        // A program that reads this value also sees the groups written before: its loads of the
        // groups depend on the value.
        words.group_sets.store(sets, Release);
    }
}

fn bytes(count: u32, size: usize) -> io::Result<usize> {
    let count = usize::try_from(count).map_err(io::Error::other)?;
    count
        .checked_mul(size)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn size_maps(open: &mut OpenObject, plan: &TapPlan) -> libbpf_rs::Result<()> {
    let stride = to_u32(plan.geometry.segment_stride);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "rt_pool" => {
                map.set_value_size(stride)?;
                map.set_max_entries(plan.segments())?;
            }
            "rt_lanes" | "rt_control" | "rt_turns" | "rt_forwarded" | "rt_shunted" => {
                map.set_max_entries(plan.possible)?
            }
            "rt_free_chunks" | "rt_capture_ring" | "rt_recycle_ring" => {
                map.set_max_entries(plan.all_ring_entries())?;
            }
            "rt_wakeups" => map.set_max_entries(WAKEUPS_BYTES)?,
            "rt_flow_ends" => map.set_max_entries(flows::ENDS_BYTES)?,
            _ => {}
        }
    }
    Ok(())
}

/// Fills each lane's stack of free chunks.
fn fill_stacks(bytes: &mut [u8], plan: &TapPlan) {
    let (entries, _) = bytes.as_chunks_mut::<WORD>();
    for (at, chunk) in plan.free_chunks() {
        if let Some(entry) = usize::try_from(at).ok().and_then(|at| entries.get_mut(at)) {
            *entry = u64::from(chunk.0).to_ne_bytes();
        }
    }
}

/// Writes the depth of each lane's stack.
fn fill_depths(bytes: &mut [u8], plan: &TapPlan) {
    let at = std::mem::offset_of!(LaneWords, free_depth);
    let lanes = bytes
        .chunks_exact_mut(size_of::<LaneWords>())
        .zip(0..plan.lanes);
    for (lane, _) in lanes {
        lane[at..at + 4].copy_from_slice(&plan.share().to_ne_bytes());
    }
}
