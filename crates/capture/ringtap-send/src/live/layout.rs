// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender's configuration and counters as its eBPF programs see them (`bpf/send.h`).

use ringtap_packet::Plan;
use ringtap_pool::number::to_u32;

use super::super::counters::SendCounters;

const SHAPES: usize = 4;
const CYCLE: usize = 12;
const HEAD: usize = 88;

/// Packets of a file that can wait to be sent.
pub(super) const CELLS: usize = 1024;
/// The longest of them; live frames of that length fit a page on every architecture.
pub(in super::super) const LONGEST_BYTES: usize = 3072;
/// Bytes of a cell's length field and padding, before the packet.
pub(super) const CELL_HEADER_BYTES: usize = 8;
/// Bytes from one cell to the next.
pub(super) const CELL_STRIDE_BYTES: usize = CELL_HEADER_BYTES + LONGEST_BYTES;

/// `struct rt_send_config` for the packets of a plan; without one only the interface matters.
pub(super) fn config(ifindex: u32, plan: Option<&Plan>) -> Vec<u8> {
    let mut out = ConfigWords(Vec::new());
    out.word(ifindex);
    let Some(plan) = plan else {
        // The program for made packets is not loaded, and the one for files reads only the first word.
        out.0.resize(4 + 12 * 4 + CYCLE + SHAPES * (12 + HEAD), 0);
        return out.0;
    };
    let at = &plan.at;
    out.word(plan.flows);
    out.word(plan.address);
    out.word(plan.port.into());
    out.word(plan.port_span());
    out.size(plan.order.len());
    out.size(at.payload);
    out.size(at.ip_sum.unwrap_or(0));
    out.size(at.address);
    out.size(at.port);
    out.size(at.transport_sum);
    out.size(at.stamp.unwrap_or(0));
    out.word(plan.udp.into());
    out.padded(&plan.order, CYCLE);
    for shape in plan.shapes.iter().cycle().take(SHAPES) {
        out.size(shape.frame.len());
        out.word(shape.ip_sum);
        out.word(shape.transport_sum);
        out.padded(&shape.frame[..at.payload], HEAD);
    }
    out.0
}

struct ConfigWords(Vec<u8>);

impl ConfigWords {
    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    /// Offsets and lengths, all far below 2^32.
    fn size(&mut self, value: usize) {
        self.word(to_u32(value));
    }

    fn padded(&mut self, bytes: &[u8], length: usize) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + length - bytes.len(), 0);
    }
}

/// The counters in a `struct rt_send_counters`; `None` where the value is too short to be one.
pub(super) fn counters(value: &[u8]) -> Option<SendCounters> {
    let word = |index: usize| {
        let bytes = value.get(index * 8..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    };
    let (attempted, sent, refusal) = (word(0)?, word(1)?, word(4)?.cast_signed());
    Some(SendCounters {
        sent,
        refused: attempted.saturating_sub(sent),
        bytes: word(2)?,
        // A negative error number.
        refusal_errno: i32::try_from(-refusal).unwrap_or(0),
        ..SendCounters::default()
    })
}
