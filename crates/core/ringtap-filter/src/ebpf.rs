// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translates classic BPF to eBPF: one function tests a packet against up to 64 filters.
//!
//! Invariants
//! - The verdicts equal those of [`Program::matches`] on the captured bytes, as on the wire.
//! - The function follows the calling convention, uses at most 256 bytes of stack, calls one
//!   helper only, and contains no loop.
//! - The translation takes no more stack, and little more memory and time, for deeper filters.
//! - Filters with equal beginnings share them; fields that many filters read are kept.
//! - Fields are read in place, from the packet's linear part. The fixed prefix that the filters
//!   read is first copied to the stack (the window) if the packet is shorter, if the prefix is not
//!   linear, or if a VLAN tag is restored.

mod assembler;
mod error;
pub(crate) mod facts;
mod filter;
mod frame;
mod hook;
mod insn;
mod kept;
mod load;
mod shared;
#[cfg(test)]
mod tests;

use crate::Program;
use assembler::Assembler;
use filter::FilterFacts;
use frame::Frame;
use kept::{Kept, Key};
use shared::GroupEmitter;

pub use error::{MAX_FILTERS, TranslateError};
pub use hook::FilterHook;
pub use insn::Insn;

/// Number of instructions after which filters share no more: both branches of a shared jump repeat
/// the instructions after it.
const MAX_SHARED: usize = 12_000;

/// Translates filters into one eBPF function.
///
/// The function is called as `u64 classify(ctx, u32 tag, u32 wire_length, u32 captured)`. `tag` is
/// the VLAN tag to restore behind the MAC addresses (four bytes in wire order; 0 for none).
/// `wire_length` is the packet's length and `captured` the number of bytes to capture, both
/// including the tag. Bit i of the result is set if filter i matches.
///
/// Bytes of an XDP packet beyond 65,535, which no XDP helper reads, count as not captured.
///
/// # Errors
///
/// [`TranslateError::Loops`] for a filter that must run in user space; the others for too many or
/// too long filters.
pub fn classify(filters: &[Program], hook: FilterHook) -> Result<Vec<Insn>, TranslateError> {
    let count = filters.len();
    if count > MAX_FILTERS {
        return Err(TranslateError::TooMany { count });
    }
    match build(filters, hook, MAX_SHARED) {
        Err(TranslateError::TooLong { .. }) => build(filters, hook, 0),
        built => built,
    }
}

/// Filters share their beginnings until there are `max_shared` instructions.
fn build(
    filters: &[Program],
    hook: FilterHook,
    max_shared: usize,
) -> Result<Vec<Insn>, TranslateError> {
    let mut assembler = Assembler::default();
    let frame = Frame::new(&mut assembler, hook, filters);
    frame.begin(&mut assembler);
    let analysed = filters.iter().enumerate().map(analyse);
    let mut analysed = analysed.collect::<Result<Vec<_>, _>>()?;
    let kept = Kept::choose(analysed.iter().flat_map(fields), frame.kept_places());
    kept.load(&mut assembler, &frame);
    for filter in &mut analysed {
        filter.find_needed(&kept);
    }
    GroupEmitter::new(&mut assembler, &frame, &kept, max_shared).emit(&analysed);
    frame.end(&mut assembler);
    assembler.finish()
}

fn analyse((number, program): (usize, &Program)) -> Result<FilterFacts<'_>, TranslateError> {
    if program.loops() {
        return Err(TranslateError::Loops { filter: number });
    }
    Ok(FilterFacts {
        number,
        program,
        facts: facts::facts(program),
        steps: filter::steps(program),
        needed: Vec::new(),
    })
}

/// Fields behind an IPv4 header that a filter reads, once per read.
fn fields<'a>(filter: &'a FilterFacts<'_>) -> impl Iterator<Item = Key> + 'a {
    (0..filter.facts.len()).filter_map(|at| filter.key(at))
}
