// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of flows in the kernel: user space writes rules, the programs write counts (`bpf/shunt.h`).
//!
//! Invariants
//! - The map of rules has no flow that the map of counts has not, except while one is removed.
//! - The programs apply a rule's end and idle flows themselves. They add flows, but do not remove any.
//! - Without standing cut-offs and wildcard rules, each flow of the table has its mark.
//! - A full table is searched for idle flows at most ten times a second, and for at most a twentieth of the time.
//!
//! User space makes room in a full table: when a rule needs it, and when a sweep finds that packets were `untracked`.
//! The kernel's own means do not fit. An LRU map evicts busy flows with their rules, tells nobody, and counts nothing.
//! A timer of the kernel (`bpf_timer`) is cancelled when the last process closes the map, so it does not outlive this
//! process either; one for each flow costs memory and time for each packet, and one for all would go through the whole
//! table on a CPU that captures. Nothing is left to expire when this process ends: the kernel detaches the programs.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Arc, Mutex, MutexGuard};

use libbpf_rs::{
    ErrorKind, MapCore as _, MapFlags, MapHandle, MapType, Object, RingBuffer, RingBufferBuilder,
    libbpf_sys,
};
use ringtap_bpf::map::{self, Access, MapSizes, Mapping};
use ringtap_bpf::object as bpf;
use ringtap_bpf::splice::Code;
use ringtap_filter::flow::{
    CUTS_WORDS, FlowCuts, FlowDirection, FlowEnd, FlowId, FlowRule, FlowRuleError, FlowSettings,
    FlowSums, FlowTotals, KEY_WORDS, RuleBits,
};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::monotonic_ns;
use ringtap_pool::memory::Words;
use ringtap_pool::source::{FlowRules, WithheldCounts};

use super::layout::ShuntedWords;
use super::marks::FlowMarks;
use super::wildcards::TapWildcards;

/// `RT_NO_SHUNT`.
const MARK_SHUNT: u64 = 0x5254_5f53_4855_4e54;
/// `RT_NO_WILDCARDS`.
const MARK_WILDCARDS: u64 = 0x5254_5f57_494c_4443;
/// Size of the ring buffer of counts that the programs begin anew.
pub(super) const ENDS_BYTES: u32 = 64 << 10;
const KEY_BYTES: usize = KEY_WORDS * 4;
/// Words of `struct rt_flow`: five of each direction, the time of creation, and the choice of wildcard rules.
pub(super) const FLOW_WORDS: usize = 12;
const CREATED: usize = 10;
/// Shortest time between two searches of a full table for idle flows, and the time in multiples of the search's own.
const SEARCH_PAUSE_NS: u64 = 100_000_000;
const SEARCH_PAUSE: u64 = 20;
/// Share of a full table that one search evicts.
const EVICTED_SHARE: usize = 64;
/// Ends of flows that wait to be taken; later ones are counted as lost.
const MAX_ENDS: usize = 65_536;

/// The parts of a loaded object that concern flows.
#[derive(Clone)]
pub(super) struct FlowMaps {
    /// Numbers of the descriptors of the small maps that larger ones replace.
    flows: i32,
    cuts: i32,
    marks: i32,
    wildcards: i32,
    settings: Arc<MapHandle>,
    ends: Arc<MapHandle>,
    shunted: Words<ShuntedWords>,
}

/// A table of flows in the kernel.
pub(super) struct TapFlows {
    parts: FlowMaps,
    capacity: u32,
    flows: MapHandle,
    cuts: MapHandle,
    marks: FlowMarks,
    /// `added` of the programs when the table was made.
    before: u64,
    state: Mutex<TableState>,
    /// Counts of flows that the programs began anew.
    kernel_ends: Mutex<RingBuffer<'static>>,
    ends: Arc<Mutex<FlowEnds>>,
}

/// What one thread at a time changes.
struct TableState {
    settings: FlowSettings,
    added: u64,
    removed: u64,
    evicted: u64,
    /// `untracked` of the programs at the last sweep.
    untracked: u64,
    wildcards: TapWildcards,
    /// Members for whom programs add flows.
    watching: u64,
    /// Programs never added a flow, which then has no mark.
    has_marks: bool,
    /// Earliest time of the next search for idle flows.
    next_search_ns: u64,
    /// The flow at which the next sweep begins; `None`, or a flow that has left: at the first.
    cursor: Option<Vec<u8>>,
}

#[derive(Default)]
struct FlowEnds {
    waiting: VecDeque<(FlowEnd, FlowSums)>,
    lost: u64,
}

impl FlowMaps {
    pub(super) fn from_object(object: &Object, lanes: usize) -> io::Result<Self> {
        let shunted = bpf::map(object, "rt_shunted")?;
        let bytes = lanes * size_of::<ShuntedWords>();
        let shunted = Arc::new(Mapping::new(shunted, bytes, Access::Read)?).words(0, lanes);
        Ok(FlowMaps {
            flows: bpf::map_number(object, "rt_flows")?,
            cuts: bpf::map_number(object, "rt_flow_cuts")?,
            marks: bpf::map_number(object, "rt_flow_marks")?,
            wildcards: bpf::map_number(object, "rt_wildcards")?,
            settings: Arc::new(bpf::map(object, "rt_flow_settings")?),
            ends: Arc::new(bpf::map(object, "rt_flow_ends")?),
            shunted: shunted.ok_or(io::ErrorKind::UnexpectedEof)?,
        })
    }

    fn sum(&self, of: fn(&ShuntedWords) -> &AtomicU64) -> u64 {
        self.shunted.iter().map(|lane| of(lane).load(Relaxed)).sum()
    }
}

pub(super) fn hash_map(name: &str, value_bytes: usize, capacity: u32) -> io::Result<MapHandle> {
    let sizes = MapSizes {
        key: KEY_BYTES,
        value: value_bytes,
        entries: capacity,
    };
    // Memory for the flows that there are, not for all that there may be.
    map::create(MapType::Hash, name, sizes, libbpf_sys::BPF_F_NO_PREALLOC)
}

impl TapFlows {
    /// Makes the maps of a table.
    pub(super) fn new(parts: &FlowMaps, settings: &FlowSettings) -> io::Result<Self> {
        let capacity = settings.capacity.max(1);
        let ends = Arc::new(Mutex::new(FlowEnds::default()));
        let mut builder = RingBufferBuilder::new();
        let taken = Arc::clone(&ends);
        let take = move |bytes: &[u8]| {
            if let Some(ended) = ended(bytes) {
                push(&taken, ended);
            }
            0
        };
        builder.add(&*parts.ends, take).map_err(io::Error::other)?;
        let table = TapFlows {
            capacity,
            flows: hash_map("rt_flows", FLOW_WORDS * 8, capacity)?,
            cuts: hash_map("rt_flow_cuts", CUTS_WORDS * 8, capacity)?,
            marks: FlowMarks::new()?,
            before: parts.sum(|lane| &lane.added),
            state: Mutex::new(TableState {
                settings: settings.clone(),
                added: 0,
                removed: 0,
                evicted: 0,
                untracked: parts.sum(|lane| &lane.untracked),
                wildcards: TapWildcards::new()?,
                watching: 0,
                has_marks: true,
                next_search_ns: 0,
                cursor: None,
            }),
            kernel_ends: Mutex::new(builder.build().map_err(io::Error::other)?),
            ends,
            parts: parts.clone(),
        };
        table.apply(settings)?;
        Ok(table)
    }

    /// Whether a table with these settings needs no other maps.
    pub(super) fn fits(&self, settings: &FlowSettings) -> bool {
        self.capacity == settings.capacity.max(1)
    }

    /// Puts settings in force.
    pub(super) fn apply(&self, settings: &FlowSettings) -> io::Result<()> {
        let standing = FlowCuts::standing(settings);
        let mut state = self.state();
        let (rules, idle_ns) = (&settings.wildcards, settings.idle_ns);
        let wildcards = state.wildcards.write(rules, idle_ns, monotonic_ns())?;
        state.settings = settings.clone();
        state.watching = standing.members() | state.wildcards.members();
        state.has_marks &= state.watching == 0;
        let has_marks = u64::from(state.has_marks);
        let rest = [
            state.watching,
            settings.idle_ns,
            has_marks,
            wildcards,
            settings.adds,
        ];
        let words = standing.to_words().into_iter().chain(rest);
        let key = 0_u32.to_ne_bytes();
        let bytes = bytes_of_words(words);
        let written = self.parts.settings.update(&key, &bytes, MapFlags::ANY);
        written.map_err(|error| bpf::io_error(&error))
    }

    /// Makes a program use the table, and the wildcard rules if there are any: they double the verifier's work.
    pub(super) fn put_into(
        &self,
        code: &mut Code,
        has_wildcards: bool,
    ) -> Result<(), ringtap_bpf::splice::SpliceError> {
        code.set_map(self.parts.flows, self.flows.as_fd().as_raw_fd());
        code.set_map(self.parts.cuts, self.cuts.as_fd().as_raw_fd());
        code.set_map(self.parts.marks, self.marks.raw_fd());
        code.set_map(self.parts.wildcards, self.state().wildcards.raw_fd());
        if has_wildcards {
            code.set_number(MARK_WILDCARDS, 1)?;
        }
        code.set_number(MARK_SHUNT, 1)
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        lock(&self.state)
    }

    fn flow(&self, key: &[u8]) -> Option<[u64; FLOW_WORDS]> {
        words(&self.flows.lookup(key, MapFlags::ANY).ok()??)
    }

    /// Removes a flow with its rules.
    fn end(&self, state: &mut TableState, key: &[u8], why: FlowEnd) {
        let Ok(Some(flow)) = self.flows.lookup_and_delete(key) else {
            return;
        };
        let _without_rules = self.cuts.delete(key);
        state.removed += 1;
        if let Some((key, flow)) = key_of(key).zip(words(&flow)) {
            self.marks.remove(&key);
            push(&self.ends, (why, counts(key, &flow)));
        }
    }

    /// Adds a flow unless it is there; `false` if there is no room.
    fn add(&self, state: &mut TableState, id: &FlowId, now_ns: u64) -> Result<bool, FlowRuleError> {
        let key = bytes_of(id);
        self.marks.add(id);
        let added = self.add_unmarked(&key, now_ns);
        match added {
            Ok(true) => state.added += 1,
            _ => self.marks.remove(id),
        }
        match added {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TooBig => Ok(false),
            Err(error) => Err(system(&error)),
        }
    }

    /// `false` if the flow is there.
    fn add_unmarked(&self, key: &[u8], now_ns: u64) -> libbpf_rs::Result<bool> {
        let mut flow = [0; FLOW_WORDS * 8];
        flow[CREATED * 8..][..8].copy_from_slice(&now_ns.to_ne_bytes());
        match self.flows.update(key, &flow, MapFlags::NO_EXIST) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Evicts the flows that are idle for longest; `false` if none is idle for long enough.
    fn make_room(&self, state: &mut TableState, now_ns: u64) -> bool {
        if now_ns < state.next_search_ns {
            return false;
        }
        let least = state.settings.evict_idle_ns;
        let idle = self.flows.keys().filter_map(|key| {
            let last = last_ns(&self.flow(&key)?);
            (now_ns.saturating_sub(last) >= least).then_some((last, key))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable();
        let most = usize::try_from(self.capacity).map_or(1, |flows| flows / EVICTED_SHARE);
        idle.truncate(most.max(1));
        for (_, key) in &idle {
            self.end(state, key, FlowEnd::Evicted);
            state.evicted += 1;
        }
        let end_ns = monotonic_ns();
        let pause_ns = (end_ns - now_ns.min(end_ns)).saturating_mul(SEARCH_PAUSE);
        state.next_search_ns = end_ns + pause_ns.max(SEARCH_PAUSE_NS);
        !idle.is_empty()
    }

    fn cuts_of(&self, key: &[u8]) -> FlowCuts {
        let found = self.cuts.lookup(key, MapFlags::ANY).ok().flatten();
        let words = found.and_then(|bytes| words(&bytes));
        words.map_or_else(FlowCuts::default, |words| FlowCuts::from_words(&words))
    }

    fn write_cuts(&self, key: &[u8], cuts: &FlowCuts) -> libbpf_rs::Result<()> {
        let bytes = bytes_of_words(cuts.to_words());
        self.cuts.update(key, &bytes, MapFlags::ANY)
    }

    fn clear(&self, state: &mut TableState, key: &[u8], members: u64) -> bool {
        let mut cuts = self.cuts_of(key);
        if !cuts.clear(members) {
            return false;
        }
        if cuts.members() != 0 {
            // It replaces an entry: no memory is needed that could be missing for long.
            return self.write_cuts(key, &cuts).is_ok();
        }
        if state.watching == 0 {
            self.end(state, key, FlowEnd::Removed);
        } else {
            let _gone = self.cuts.delete(key);
        }
        true
    }
}

impl FlowRules for TapFlows {
    fn set(&self, rule: &FlowRule, bits: RuleBits) -> Result<(), FlowRuleError> {
        rule.check()?;
        let (key, now) = (bytes_of(&rule.flow), monotonic_ns());
        let mut state = self.state();
        let is_idle =
            |flow: &[u64; FLOW_WORDS]| now.saturating_sub(last_ns(flow)) > state.settings.idle_ns;
        if self.flow(&key).is_some_and(|flow| is_idle(&flow)) {
            self.end(&mut state, &key, FlowEnd::Idle);
        }
        let mut cuts = self.cuts_of(&key);
        cuts.set(rule, bits, now)?;
        let full = FlowRuleError::Full {
            capacity: self.capacity,
        };
        if !self.add(&mut state, &rule.flow, now)? {
            let has_room =
                self.make_room(&mut state, now) && self.add(&mut state, &rule.flow, now)?;
            if !has_room {
                return Err(full);
            }
        }
        let written = self.write_cuts(&key, &cuts);
        written.map_err(|error| match error.kind() {
            ErrorKind::TooBig => full,
            _ => system(&error),
        })
    }

    fn remove(&self, key: &FlowId, members: u64) -> bool {
        self.clear(&mut self.state(), &bytes_of(key), members)
    }

    fn get(&self, key: &FlowId) -> Option<FlowSums> {
        Some(counts(*key, &self.flow(&bytes_of(key))?))
    }

    fn sweep(&self, most: usize) {
        let now = monotonic_ns();
        let mut state = self.state();
        let untracked = self.parts.sum(|lane| &lane.untracked);
        if untracked != state.untracked {
            state.untracked = untracked;
            self.make_room(&mut state, now);
        }
        let after = |key: Option<&[u8]>| map::next_key(&self.flows, key).ok().flatten();
        let mut next = state.cursor.take().or_else(|| after(None));
        for _ in 0..most {
            let Some(key) = next else { break };
            let flow = self.flow(&key);
            // Asked before the flow is removed: after a key that is gone, the map begins at its first again.
            next = after(flow.and(Some(key.as_slice())));
            let Some(flow) = flow else { continue };
            let idle_ns = now.saturating_sub(last_ns(&flow));
            if let Some(why) = state.settings.end_of(idle_ns, flags(&flow)) {
                self.end(&mut state, &key, why);
            }
        }
        state.cursor = next;
    }

    fn take_ends(&self) -> Vec<(FlowEnd, FlowSums)> {
        // After a failure the entries stay for the next call.
        let _again = lock(&self.kernel_ends).consume();
        std::mem::take(&mut lock(&self.ends).waiting).into()
    }

    fn totals(&self) -> FlowTotals {
        let state = self.state();
        let added = self.parts.sum(|lane| &lane.added) - self.before + state.added;
        let lost = lock(&self.ends).lost;
        FlowTotals {
            flows: added.saturating_sub(state.removed),
            evicted: state.evicted,
            untracked: self.parts.sum(|lane| &lane.untracked),
            lost_ends: lost + self.parts.sum(|lane| &lane.lost_ends),
        }
    }

    fn withheld(&self, member: u32) -> Vec<WithheldCounts> {
        let at = usize::try_from(member % 64).unwrap_or(0);
        let of = |lane: &ShuntedWords| WithheldCounts {
            packets: lane.packets[at].load(Acquire),
            bytes: lane.bytes[at].load(Acquire),
        };
        self.parts.shunted.iter().map(of).collect()
    }
}

fn push(ends: &Mutex<FlowEnds>, end: (FlowEnd, FlowSums)) {
    let mut ends = lock(ends);
    if ends.waiting.len() < MAX_ENDS {
        ends.waiting.push_back(end);
    } else {
        ends.lost += 1;
    }
}

fn system(error: &libbpf_rs::Error) -> FlowRuleError {
    let error = bpf::io_error(error);
    FlowRuleError::System {
        reason: format!("the kernel does not add the flow: {error}"),
    }
}

pub(super) fn bytes_of(key: &FlowId) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(key.to_words()) {
        *to = word.to_ne_bytes();
    }
    bytes
}

fn key_of(bytes: &[u8]) -> Option<FlowId> {
    let words: [[u8; 4]; KEY_WORDS] = bytes.as_chunks().0.try_into().ok()?;
    Some(FlowId::from_words(words.map(u32::from_ne_bytes)))
}

/// The bytes of a map's value.
pub(super) fn bytes_of_words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

pub(super) fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let words: [[u8; 8]; N] = bytes.as_chunks().0.try_into().ok()?;
    Some(words.map(u64::from_ne_bytes))
}

/// Why a program began a flow's counts anew, and the counts before: `struct rt_ended`.
fn ended(bytes: &[u8]) -> Option<(FlowEnd, FlowSums)> {
    let (key, rest) = bytes.split_at_checked(KEY_BYTES)?;
    let (why, flow) = rest.split_at_checked(8)?;
    let why = match words::<1>(why)? {
        [1] => FlowEnd::Idle,
        _ => FlowEnd::Restarted,
    };
    Some((why, counts(key_of(key)?, &words(flow)?)))
}

/// TCP flags of both directions.
fn flags(flow: &[u64; FLOW_WORDS]) -> [u8; 2] {
    [flow[2], flow[7]].map(|flags| flags.to_le_bytes()[0])
}

fn counts(key: FlowId, flow: &[u64; FLOW_WORDS]) -> FlowSums {
    let [a, b, c, d, e, f, g, h, i, j, ..] = *flow;
    let direction = |[packets, bytes, flags, first_ns, last_ns]: [u64; 5]| FlowDirection {
        packets,
        bytes,
        flags: flags.to_le_bytes()[0],
        first_ns,
        last_ns,
    };
    FlowSums {
        key,
        directions: [[a, b, c, d, e], [f, g, h, i, j]].map(direction),
    }
}

fn last_ns(flow: &[u64; FLOW_WORDS]) -> u64 {
    flow[CREATED].max(flow[4]).max(flow[9])
}
