// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpcap's three counters, from the 64-bit counters.
//!
//! Invariants
//! - A counter that does not fit stays at its largest value: it never starts again at 0.
//! - What is received was either given out or dropped.
#![forbid(unsafe_code)]

use ringtap_ipc::protocol::SourceSnapshot;

use crate::abi::Statistics;

/// Of a reader that was given so many packets, at these sources.
pub(super) fn of(delivered: u64, sources: &[SourceSnapshot]) -> Statistics {
    let (mut dropped, mut nic) = (0_u64, 0_u64);
    for source in sources {
        nic = nic.saturating_add(source.nic);
        dropped = dropped.saturating_add(source.kernel);
        for lane in &source.lanes {
            let lost = [lane.kernel, lane.pool_full, lane.missed_packets];
            dropped = lost.into_iter().fold(dropped, u64::saturating_add);
        }
    }
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Statistics {
        received: narrow(delivered.saturating_add(dropped)),
        dropped: narrow(dropped),
        interface_dropped: narrow(nic),
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::LaneSnapshot;

    use super::*;

    fn source(nic: u64, kernel: u64, pool_full: u64, missed: u64) -> SourceSnapshot {
        SourceSnapshot {
            lanes: vec![LaneSnapshot {
                pool_full,
                missed_packets: missed,
                ..LaneSnapshot::default()
            }],
            nic,
            kernel,
            ..SourceSnapshot::default()
        }
    }

    #[test]
    fn losses_have_one_fixed_meaning() {
        let found = of(1000, &[source(1, 10, 200, 3000), source(1, 0, 0, 4)]);
        let wanted = Statistics {
            received: 4214,
            dropped: 3214,
            interface_dropped: 2,
        };
        assert_eq!(found, wanted);
    }

    #[test]
    fn counters_stop_at_their_largest_value() {
        let most = u64::from(u32::MAX);
        assert_eq!(of(most, &[]).received, u32::MAX);
        assert_eq!(of(most + 1, &[]).received, u32::MAX);
        let found = of(5, &[source(most + 7, u64::MAX, u64::MAX, 1)]);
        let wanted = Statistics {
            received: u32::MAX,
            dropped: u32::MAX,
            interface_dropped: u32::MAX,
        };
        assert_eq!(found, wanted);
    }
}
