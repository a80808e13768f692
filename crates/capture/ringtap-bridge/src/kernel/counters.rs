// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a kernel bridge: packets that arrived at one side, by outcome.
//!
//! Invariants
//! - `offered` is the program's count. Sent and lost packets are counted independently: by the
//!   kernel's tracepoints, and by the program at the network stack's buffers.

use ringtap_capture::nic::NicLosses;
use ringtap_capture::tap::{Forwarded, ForwardedCounts};
use ringtap_pool::counters::{Counters, Dropped};

use super::redirected::{RedirectFate, Redirected};
use crate::Moment;

/// Counts packets by outcome, in both directions.
pub(crate) struct KernelCounters {
    pub(super) forwarded: [Forwarded; 2],
    pub(super) redirected: Redirected,
    pub(super) nics: [NicLosses; 2],
}

impl KernelCounters {
    /// Counters of the packets that arrived at side 0 or 1.
    pub(crate) fn of(&mut self, from: usize, moment: Moment) -> Counters {
        let (from, to) = (from & 1, 1 - (from & 1));
        // Outcomes first, so that they are never ahead of the arrivals.
        let fate = self.redirected.fate(u32::from(from == 1));
        let counts = self.forwarded[from].counts();
        let not_sent = self.nics[to].not_sent();
        settle(&counts, &fate, not_sent, self.nics[from].lost(), moment)
    }
}

/// `not_sent` is the number of packets that the other interface dropped, from any sender.
fn settle(
    counts: &ForwardedCounts,
    fate: &RedirectFate,
    not_sent: u64,
    nic: u64,
    moment: Moment,
) -> Counters {
    let lost_by_xdp = fate.full + fate.refused;
    // A veth also counts the packets that XDP could not send as dropped; the others came from the
    // stack's buffers.
    let lost_by_stack = not_sent.saturating_sub(fate.full).min(counts.from_stack);
    let left_by_stack = counts.to_stack.saturating_sub(counts.from_stack);
    let on_their_way = match moment {
        Moment::Running => counts.redirected.saturating_sub(fate.sent + lost_by_xdp),
        Moment::Final => 0,
    };
    Counters {
        offered: counts.offered.saturating_sub(on_their_way) + nic,
        delivered: fate.sent + counts.from_stack - lost_by_stack,
        filtered: counts.filtered,
        bytes: counts.bytes,
        dropped: Dropped {
            nic,
            kernel: lost_by_xdp + lost_by_stack + left_by_stack,
            ..Dropped::default()
        },
        ..Counters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> ForwardedCounts {
        ForwardedCounts {
            offered: 100,
            filtered: 10,
            redirected: 70,
            to_stack: 20,
            from_stack: 19,
            bytes: 6000,
        }
    }

    #[test]
    fn every_packet_was_sent_filtered_or_lost() {
        let fate = RedirectFate {
            sent: 60,
            full: 7,
            refused: 3,
        };
        let counters = settle(&counts(), &fate, 9, 0, Moment::Final);
        assert_eq!(counters.delivered, 60 + 17);
        assert_eq!(counters.dropped.kernel, 7 + 3 + 2 + 1);
        assert!(counters.balance().holds(), "{}", counters.balance());
    }

    #[test]
    fn packets_on_their_way_are_left_out_but_not_at_the_end() {
        let fate = RedirectFate {
            sent: 60,
            ..RedirectFate::default()
        };
        let counters = settle(&counts(), &fate, 0, 0, Moment::Running);
        assert!(counters.balance().holds(), "{}", counters.balance());
        assert_eq!(counters.offered, 90);
        let counters = settle(&counts(), &fate, 0, 0, Moment::Final);
        assert!(!counters.balance().holds(), "ten packets are nowhere");
    }
}
