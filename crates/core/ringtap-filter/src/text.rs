// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet filter in pcap-filter syntax: libpcap compiles it once, a safe interpreter runs it.
//!
//! Invariants
//! - A `Filter` holds a checked program: `matches` always ends and never panics, whatever the
//!   packet holds.
//! - Loads see the captured bytes; `len`, `less` and `greater` see the length on the wire.
#![deny(unsafe_code)]

mod libpcap;
mod position;

use std::ops::Range;

use crate::{Program, ProgramError};
use libpcap::Optimizer;

use crate::{LinkType, caret};

pub use crate::Instruction;

/// A compiled filter. The empty expression takes everything.
#[derive(Debug, Clone)]
pub struct Filter {
    expression: String,
    link_type: LinkType,
    program: Program,
}

/// Why an expression is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// libpcap refused the expression.
    #[error("{}", describe(.expression, .message, .place.as_ref()))]
    Refused {
        /// What was to be compiled.
        expression: String,
        /// libpcap's own words.
        message: String,
        /// Bytes of the expression that are to blame, where that can be told; empty at the end.
        place: Option<Range<usize>>,
    },
    /// Text that cannot be handed to libpcap.
    #[error("a filter cannot contain a NUL byte (byte {position})")]
    Nul {
        /// Where it stands.
        position: usize,
    },
    /// libpcap gave a program that the interpreter will not run.
    #[error(
        "libpcap compiled \"{expression}\" to an impossible instruction (number {at}): please report this filter"
    )]
    Program {
        /// What was compiled.
        expression: String,
        /// Number of the instruction, from 0.
        at: usize,
    },
}

impl Filter {
    /// Compiles `expression` for packets of `link_type`, cut to `snap_length` bytes.
    ///
    /// Host names in it are looked up now, once.
    ///
    /// # Errors
    ///
    /// - [`FilterError::Refused`]: libpcap's message and, where it can be told, the place.
    pub fn compile(
        expression: &str,
        link_type: LinkType,
        snap_length: u32,
    ) -> Result<Self, FilterError> {
        if let Some(position) = expression.find('\0') {
            return Err(FilterError::Nul { position });
        }
        let expression = expression.trim();
        let compile =
            |text: &str, optimizer| libpcap::compile(text, link_type.dlt(), snap_length, optimizer);
        let parses = |text: &str| compile(text, Optimizer::Off).is_ok();
        let compiled = compile(expression, Optimizer::On);
        let instructions = compiled.map_err(|message| FilterError::Refused {
            expression: expression.to_owned(),
            place: position::find(expression, &message, parses),
            message,
        })?;
        let program = Program::new(&instructions)
            .map_err(|error| unusable(expression, instructions.len(), &error))?;
        Ok(Self {
            expression: expression.to_owned(),
            link_type,
            program,
        })
    }

    /// Whether the filter takes a packet of which `data` was captured and that was
    /// `wire_length` bytes long.
    #[inline]
    #[must_use]
    pub fn matches(&self, data: &[u8], wire_length: u32) -> bool {
        self.program.matches(data, wire_length)
    }

    /// The classic BPF program, as libpcap made it.
    ///
    /// `protochain` makes libpcap jump back (a `ja` with a negative `k`), which the kernel refuses.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        self.program.instructions()
    }

    /// The same program, checked; copies share it.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether it takes every packet, so that nobody needs to ask it.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.program.takes_everything()
    }

    /// What was compiled, without spaces around it.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The link type it was compiled for.
    #[must_use]
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }
}

/// Why a program that libpcap made is of no use.
fn unusable(expression: &str, length: usize, error: &ProgramError) -> FilterError {
    let words = ["inbound", "outbound"];
    let mut places = words.iter().filter_map(|word| {
        let start = expression.find(word)?;
        Some(start..start + word.len())
    });
    let expression = expression.to_owned();
    match *error {
        ProgramError::Kernel { .. } => FilterError::Refused {
            message: "the direction is not in the packet: choose it with the device, \
                      as in eth0?direction=in"
                .to_owned(),
            place: places.next(),
            expression,
        },
        ProgramError::Instruction { at, .. } => FilterError::Program { expression, at },
        _ => FilterError::Program {
            expression,
            at: length.saturating_sub(1),
        },
    }
}

fn describe(expression: &str, message: &str, place: Option<&Range<usize>>) -> String {
    match place {
        None => format!("bad filter \"{expression}\": {message}"),
        Some(place) => {
            let column = caret::column(expression, place.start);
            let shown = caret::show(expression, place);
            format!("bad filter: {message} (character {column})\n{shown}")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
