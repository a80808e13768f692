// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classic BPF to eBPF: one function that says which of up to 64 filters take a packet.
//!
//! Invariants
//! - The verdicts are those of [`Program::matches`] on the captured bytes, as on the wire.
//! - The function follows the calling convention, uses at most 256 bytes of stack, calls one
//!   helper only, and contains no loop.
//! - Filters that begin alike share their beginning, and fields that many read are kept.
//! - Fields are read in place, from the packet's linear part. A packet that is shorter than what
//!   the filters read at fixed offsets, or not linear that far, or whose VLAN tag is put back, is
//!   first copied so far onto the stack (the window).

mod assembler;
mod facts;
mod filter;
mod frame;
mod insn;
mod kept;
mod load;
mod shared;
#[cfg(test)]
mod tests;

use crate::Program;
use assembler::Assembler;
use filter::Filter;
use frame::Frame;
use kept::{Kept, Key};
use shared::Group;

pub use insn::Insn;

/// Most filters of one function: a bit of the result each.
pub const MAX_FILTERS: usize = 64;

/// Both ways of a jump that filters share repeat what comes behind them both: after so many
/// instructions they go on alone.
const MOST_SHARED: usize = 12_000;

/// What kind of program calls the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// An XDP program, whose context is `struct xdp_md`.
    Xdp,
    /// A tc or tcx program, whose context is `struct __sk_buff`.
    Tc,
}

/// Why filters cannot run in the kernel; they can in user space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// A filter loops over the headers of a packet.
    #[error("filter {filter} loops over headers (protochain): it has to run in user space")]
    Loops {
        /// Which of the filters, from 0.
        filter: usize,
    },
    /// More filters than bits.
    #[error("{count} filters: at most {MAX_FILTERS} fit into one program")]
    TooMany {
        /// How many were given.
        count: usize,
    },
    /// A jump would be too far for an instruction.
    #[error("the filters need {instructions} eBPF instructions, too many for one function")]
    TooLong {
        /// Instructions that were made.
        instructions: usize,
    },
}

/// Translates filters into one eBPF function.
///
/// The function is called as `u64 classify(ctx, u32 tag, u32 wire_length, u32 captured)`: `tag`
/// is the VLAN tag to put back behind the MAC addresses (its four bytes as on the wire, in memory
/// order; 0 for none), `wire_length` the packet's length and `captured` how many of its bytes would
/// be captured, both with that tag. Bit i of the result is set if filter i takes the packet.
///
/// Bytes of an XDP packet beyond 65,535, which no XDP helper reads, count as not captured.
///
/// # Errors
///
/// [`TranslateError::Loops`] for a filter that has to run in user space; the others, if fewer
/// filters would do.
pub fn classify(filters: &[Program], hook: Hook) -> Result<Vec<Insn>, TranslateError> {
    let count = filters.len();
    if count > MAX_FILTERS {
        return Err(TranslateError::TooMany { count });
    }
    match build(filters, hook, MOST_SHARED) {
        Err(TranslateError::TooLong { .. }) => build(filters, hook, 0),
        built => built,
    }
}

/// Filters share their beginnings until there are `most_shared` instructions.
fn build(filters: &[Program], hook: Hook, most_shared: usize) -> Result<Vec<Insn>, TranslateError> {
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
    Group::new(&mut assembler, &frame, &kept, most_shared).emit(&analysed);
    frame.end(&mut assembler);
    assembler.finish()
}

fn analyse((number, program): (usize, &Program)) -> Result<Filter<'_>, TranslateError> {
    let loops = |_loops| TranslateError::Loops { filter: number };
    Ok(Filter {
        number,
        program,
        facts: facts::facts(program).map_err(loops)?,
        needed: Vec::new(),
    })
}

/// The fields behind an IPv4 header that a filter reads, once for every time that it does.
fn fields<'a>(filter: &'a Filter<'_>) -> impl Iterator<Item = Key> + 'a {
    (0..filter.facts.len()).filter_map(|at| filter.key(at))
}
