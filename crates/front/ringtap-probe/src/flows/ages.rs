// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of the flows of one state, by the time of their last packet.
//!
//! A packet does not move its flow: that would change two other flows as well, which are seldom in the caches. A flow
//! moves to the list of its last packet when the list in which it is becomes the first one.
//!
//! Invariants
//! - A flow is in one list, whose tick is not after that of its last packet, unless packets come out of order.
//! - The ticks of all lists with flows are among [`TICKS`] ticks from `first` on.

/// Length of a tick: 2 to this power, in nanoseconds; 67 ms. Time-outs end a flow at most one tick late.
const TICK_BITS: u32 = 26;
/// Number of lists. They cover 68 s; a flow with a later packet is in the last one of them.
const TICKS: u16 = 1024;
/// No flow.
pub(super) const NOBODY: u32 = u32::MAX;

/// Place of a flow in the lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLinks {
    /// The flows that came into the list after and before this one.
    newer: u32,
    older: u32,
    /// Number of the list.
    list: u16,
}

impl FlowLinks {
    /// In no list.
    pub(super) const NONE: FlowLinks = FlowLinks {
        newer: NOBODY,
        older: NOBODY,
        list: 0,
    };
}

/// Entries that have links.
pub(super) trait LinkedFlows {
    /// The links of the flow with this index.
    fn links(&mut self, at: u32) -> &mut FlowLinks;
}

/// A list.
#[derive(Clone, Copy)]
struct AgeList {
    newest: u32,
    oldest: u32,
}

/// Lists of the flows of one state.
pub(super) struct FlowAges {
    lists: Vec<AgeList>,
    /// The earliest tick whose list may have flows.
    first: u64,
    length: u32,
}

impl FlowAges {
    pub(super) fn new() -> Self {
        let empty = AgeList {
            newest: NOBODY,
            oldest: NOBODY,
        };
        FlowAges {
            lists: vec![empty; TICKS.into()],
            first: 0,
            length: 0,
        }
    }

    /// Number of flows.
    pub(super) fn len(&self) -> u32 {
        self.length
    }

    /// Puts a flow in the list of a time.
    pub(super) fn push(&mut self, at: u32, time_ns: u64, entries: &mut impl LinkedFlows) {
        let tick = tick(time_ns);
        if self.length == 0 {
            self.first = tick;
        }
        let last = self.first + u64::from(TICKS) - 1;
        let number = list_of(tick.clamp(self.first, last));
        let list = &mut self.lists[usize::from(number)];
        let older = std::mem::replace(&mut list.newest, at);
        if older == NOBODY {
            list.oldest = at;
        } else {
            entries.links(older).newer = at;
        }
        *entries.links(at) = FlowLinks {
            newer: NOBODY,
            older,
            list: number,
        };
        self.length += 1;
    }

    /// Takes a flow out of its list.
    pub(super) fn remove(&mut self, at: u32, entries: &mut impl LinkedFlows) {
        let FlowLinks { newer, older, list } = *entries.links(at);
        let list = &mut self.lists[usize::from(list)];
        match newer {
            NOBODY => list.newest = older,
            newer => entries.links(newer).older = older,
        }
        match older {
            NOBODY => list.oldest = newer,
            older => entries.links(older).newer = newer,
        }
        self.length -= 1;
    }

    /// The flow that is longest in the first list, if the tick of that list is not after that of `until_ns`.
    #[inline]
    pub(super) fn first(&mut self, until_ns: u64) -> Option<u32> {
        while self.length > 0 && self.first <= tick(until_ns) {
            let oldest = self.lists[usize::from(list_of(self.first))].oldest;
            if oldest != NOBODY {
                return Some(oldest);
            }
            self.first += 1;
        }
        None
    }

    /// Whether a flow of the first list, whose last packet came at this time, belongs into a later list.
    pub(super) fn is_later(&self, last_ns: u64) -> bool {
        tick(last_ns) > self.first
    }
}

fn tick(time_ns: u64) -> u64 {
    time_ns >> TICK_BITS
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of lists")]
fn list_of(tick: u64) -> u16 {
    (tick % u64::from(TICKS)) as u16
}
