// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a kernel bridge: packets that arrived at one side, by outcome.
//!
//! Invariants
//! - Only packets of the two interfaces are counted. An interface index is unique only within its
//!   network namespace, so the program compares the namespace too.
//! - `offered` is the program's count. Sent and lost packets are counted independently: by the
//!   kernel's tracepoints, and by the program at the network stack's buffers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};

use ringtap_bpf::object::{self, ObjectFile};
use ringtap_capture::nic::NicLosses;
use ringtap_capture::tap::{Forwarded, ForwardedCounts};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::number::to_u32;

use crate::inline::SideOutcomes;
use crate::{BridgeError, Moment};

/// Counts packets by outcome, in both directions.
pub(crate) struct KernelCounters {
    pub(crate) forwarded: [Forwarded; 2],
    pub(super) redirected: Redirected,
    pub(super) nics: [NicLosses; 2],
}

impl KernelCounters {
    /// Counters of the packets that arrived at side 0 or 1; `waited`: of those that waited for an inline reader.
    pub(crate) fn of_side(
        &mut self,
        from: usize,
        waited: &SideOutcomes,
        moment: Moment,
    ) -> Counters {
        let (from, to) = (from & 1, 1 - (from & 1));
        // Outcomes first, so that they are never ahead of the arrivals.
        let fate = self.redirected.fate(u32::from(from == 1));
        let counts = self.forwarded[from].counts();
        let not_sent = self.nics[to].not_sent();
        let nic = self.nics[from].lost();
        settle(&counts, &fate, waited, not_sent, nic, moment)
    }
}

/// `not_sent` is the number of packets that the other interface dropped, from any sender.
fn settle(
    counts: &ForwardedCounts,
    fate: &RedirectFate,
    waited: &SideOutcomes,
    not_sent: u64,
    nic: u64,
    moment: Moment,
) -> Counters {
    let lost_by_xdp = fate.full + fate.refused;
    let from_stack = counts.from_stack + waited.sent;
    // A veth also counts the packets that XDP could not send as dropped; the others came from the
    // stack's buffers.
    let lost_by_stack = not_sent.saturating_sub(fate.full).min(from_stack);
    let left_by_stack = counts.to_stack.saturating_sub(counts.from_stack);
    // While the bridge stops, the XDP program leaves before the tcx program, which forwards what still arrives.
    let not_seen = counts.from_stack.saturating_sub(counts.to_stack);
    let unsettled = counts.waiting.saturating_sub(waited.settled());
    let (on_their_way, overrun) = match moment {
        Moment::Running => {
            let redirected = counts.redirected.saturating_sub(fate.sent + lost_by_xdp);
            (redirected + unsettled, 0)
        }
        Moment::Final => (0, unsettled),
    };
    Counters {
        offered: (counts.offered + not_seen).saturating_sub(on_their_way) + nic,
        delivered: fate.sent + from_stack - lost_by_stack,
        filtered: counts.filtered + waited.filtered,
        shunted: counts.blocked,
        bytes: counts.bytes,
        dropped: Dropped {
            nic,
            kernel: lost_by_xdp + lost_by_stack + left_by_stack + waited.refused,
            overrun,
            no_verdict: counts.no_verdict_dropped + waited.no_verdict_dropped,
            ..Dropped::default()
        },
        ..Counters::default()
    }
}

/// The compiled `bpf/redirect.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o")));

/// Outcome of packets from one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RedirectFate {
    sent: u64,
    /// The other interface's queue was full.
    full: u64,
    /// Not offered to the other interface.
    refused: u64,
}

/// Counts redirected packets by outcome.
pub(super) struct Redirected {
    counters: MapHandle,
    _links: Vec<Link>,
}

impl Redirected {
    /// Counts from now on, for these interfaces of the calling thread's namespace.
    pub(super) fn watch(interfaces: [u32; 2]) -> Result<Self, BridgeError> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")
            .map_err(BridgeError::system("asking for the network namespace"))?
            .ino();
        let namespace = to_u32(namespace);
        let pair: Vec<u8> = [namespace, interfaces[0], interfaces[1]]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let object = object::load(OBJECT, |open| {
            object::set_constants(open, ".rodata.pair", &pair)
        });
        let tracepoints = |failure: object::LoadFailure| BridgeError::Tracepoints {
            reason: failure.to_string(),
        };
        let object = object.map_err(tracepoints)?;
        let programs = ["rt_transmitted", "rt_not_redirected"];
        let links = object::attach_tracepoints(&object, &programs).map_err(tracepoints)?;
        let counters = object::map(&object, "rt_redirected");
        Ok(Redirected {
            counters: counters.map_err(BridgeError::system("finding the counters"))?,
            _links: links,
        })
    }

    /// Outcome of packets from the first (0) or the second (1) interface.
    fn fate(&self, side: u32) -> RedirectFate {
        let value = self.counters.lookup(&side.to_ne_bytes(), MapFlags::ANY);
        let value = value.ok().flatten().unwrap_or_default();
        let (words, _) = value.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        RedirectFate {
            sent: word(0),
            full: word(1),
            refused: word(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> ForwardedCounts {
        ForwardedCounts {
            offered: 139,
            filtered: 10,
            redirected: 70,
            to_stack: 20,
            from_stack: 19,
            bytes: 6000,
            blocked: 8,
            passed: 30,
            waiting: 25,
            no_verdict_passed: 2,
            no_verdict_dropped: 6,
        }
    }

    const WAITED: SideOutcomes = SideOutcomes {
        sent: 14,
        refused: 1,
        filtered: 7,
        no_verdict_passed: 3,
        no_verdict_dropped: 2,
    };

    #[test]
    fn every_packet_was_sent_filtered_blocked_or_lost() {
        let fate = RedirectFate {
            sent: 60,
            full: 7,
            refused: 3,
        };
        let counters = settle(&counts(), &fate, &WAITED, 9, 0, Moment::Final);
        assert_eq!(counters.delivered, 60 + 17 + 14);
        assert_eq!((counters.filtered, counters.shunted), (17, 8));
        assert_eq!(counters.dropped.kernel, 7 + 3 + 2 + 1 + 1);
        assert_eq!(counters.dropped.no_verdict, 8);
        assert_eq!(counters.dropped.overrun, 1, "one that nobody read");
        assert!(counters.balance().holds(), "{}", counters.balance());
    }

    #[test]
    fn packets_on_their_way_are_left_out_but_not_at_the_end() {
        let fate = RedirectFate {
            sent: 60,
            ..RedirectFate::default()
        };
        let counters = settle(&counts(), &fate, &WAITED, 0, 0, Moment::Running);
        assert!(counters.balance().holds(), "{}", counters.balance());
        assert_eq!(counters.offered, 128);
        let counters = settle(&counts(), &fate, &WAITED, 0, 0, Moment::Final);
        assert!(!counters.balance().holds(), "ten packets are nowhere");
    }

    #[test]
    fn packets_that_only_the_tcx_program_saw_were_offered() {
        let counts = ForwardedCounts {
            from_stack: 21,
            ..counts()
        };
        let fate = RedirectFate {
            sent: 70,
            ..RedirectFate::default()
        };
        let counters = settle(&counts, &fate, &WAITED, 0, 0, Moment::Final);
        assert!(counters.balance().holds(), "{}", counters.balance());
    }
}
