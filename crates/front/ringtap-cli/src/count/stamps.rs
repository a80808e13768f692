// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss and order of packets with sequence numbers.

use ringtap_explain::text::grouped;
use serde_json::json;

use crate::reading::Extra;

/// Loss and order so far.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Stamps {
    stamped: u64,
    first: u64,
    expected: Option<u64>,
    missing: u64,
    out_of_order: u64,
}

impl Stamps {
    /// Records the sequence number of a packet.
    pub(super) fn sequence(&mut self, sequence: u64) {
        self.stamped += 1;
        if self.expected.is_none() {
            self.first = sequence;
        }
        let expected = self.expected.unwrap_or(sequence);
        if sequence < expected {
            // The packet was counted as missing when a later one came.
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
            return;
        }
        self.missing += sequence - expected;
        self.expected = Some(sequence + 1);
    }

    pub(super) fn result(&self) -> Extra {
        let text = format!(
            "stamps: {} packets from number {}, {} missing, {} out of order",
            grouped(self.stamped),
            self.first,
            grouped(self.missing),
            grouped(self.out_of_order)
        );
        let figures = json!({"packets": self.stamped, "first": self.first, "missing": self.missing,
                             "out_of_order": self.out_of_order});
        Extra::new("stamps", text, figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_in_the_numbers_is_loss() {
        let mut stamps = Stamps::default();
        [0, 1, 4, 5]
            .into_iter()
            .for_each(|number| stamps.sequence(number));
        assert_eq!((stamps.missing, stamps.out_of_order), (2, 0));
    }

    #[test]
    fn a_late_packet_is_out_of_order_and_not_lost() {
        let mut stamps = Stamps::default();
        [0, 2, 1, 3]
            .into_iter()
            .for_each(|number| stamps.sequence(number));
        assert_eq!((stamps.missing, stamps.out_of_order), (0, 1));
    }
}
