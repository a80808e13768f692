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
    let Some(plan) = plan else {
        // The program for made packets is not loaded, and the one for files reads only the first word.
        let mut out = Vec::new();
        pad(
            &mut out,
            &ifindex.to_ne_bytes(),
            4 + 12 * 4 + CYCLE + SHAPES * (12 + HEAD),
        );
        return out;
    };
    let at = &plan.at;
    // Offsets and lengths are all far below 2^32.
    let words = [
        ifindex,
        plan.flows,
        plan.address,
        plan.port.into(),
        plan.port_span(),
        to_u32(plan.order.len()),
        to_u32(at.payload),
        to_u32(at.ip_sum.unwrap_or(0)),
        to_u32(at.address),
        to_u32(at.port),
        to_u32(at.transport_sum),
        to_u32(at.stamp.unwrap_or(0)),
        plan.udp.into(),
    ];
    let mut out = words.map(u32::to_ne_bytes).concat();
    pad(&mut out, &plan.order, CYCLE);
    for shape in plan.shapes.iter().cycle().take(SHAPES) {
        let words = [to_u32(shape.frame.len()), shape.ip_sum, shape.transport_sum];
        out.extend(words.map(u32::to_ne_bytes).concat());
        pad(&mut out, &shape.frame[..at.payload], HEAD);
    }
    out
}

/// Appends bytes, and zeros up to this length.
fn pad(out: &mut Vec<u8>, bytes: &[u8], length: usize) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + length - bytes.len(), 0);
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
