// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classic BPF to eBPF: one function that says which of up to 64 filters take a packet.
//!
//! Invariants
//! - The verdicts are those of [`Program::matches`] on the captured bytes, as on the wire.
//! - The function follows the calling convention, uses at most 256 bytes of stack, calls one
//!   helper only, and contains no loop.
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

use crate::Program;
use assembler::Assembler;
use facts::Facts;
use frame::Frame;
use kept::{Kept, Key};

pub use insn::Insn;

/// Most filters of one function: a bit of the result each.
pub const MAX_FILTERS: usize = 64;

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
    let mut assembler = Assembler::default();
    let frame = Frame::new(&mut assembler, hook, filters);
    frame.begin(&mut assembler);
    let analysed = filters.iter().enumerate().map(analyse);
    let analysed = analysed.collect::<Result<Vec<_>, _>>()?;
    let kept = Kept::choose(analysed.iter().flat_map(fields), frame.kept_places());
    kept.load(&mut assembler, &frame);
    for (number, (program, facts)) in analysed.iter().enumerate() {
        filter::translate(&mut assembler, &frame, &kept, (program, facts), number);
    }
    frame.end(&mut assembler);
    assembler.finish()
}

/// A filter, and what is known before each of its instructions.
type Analysed<'a> = (&'a Program, Vec<Option<Facts>>);

fn analyse((filter, program): (usize, &Program)) -> Result<Analysed<'_>, TranslateError> {
    let facts = facts::facts(program).map_err(|_loops| TranslateError::Loops { filter })?;
    Ok((program, facts))
}

/// The fields behind an IPv4 header that a filter reads, once for every time that it does.
fn fields<'a>((program, facts): &'a Analysed<'_>) -> impl Iterator<Item = Key> + 'a {
    let reached = program.instructions().iter().zip(facts);
    reached.filter_map(|(instruction, facts)| Key::of(instruction, (*facts)?))
}
