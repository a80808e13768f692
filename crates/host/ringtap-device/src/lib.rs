// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device syntax that every program shares: `tap:eth0@0-3,5?exclusive&pool=1GiB`.
//!
//! Invariants
//! - One parser, one canonical text: the text that `Display` prints parses to the same value.
//! - An option that a source does not have is an error at its place, never ignored.
#![forbid(unsafe_code)]

mod cutoff;
mod escape;
#[cfg(feature = "clap")]
pub mod flags;
mod keys;
mod kind;
pub mod kinds;
mod list;
mod options;
mod parse;
mod queues;
mod rate;
mod shaping;
mod size;
mod spec;

pub use cutoff::{CutOffError, cut_off, cut_off_text};
pub use keys::{FlagName, OptionError, OptionKey};
pub use kind::{Kind, NameOf};
pub use list::parse_list;
pub use options::{Direction, Mode, Options, StampClock};
pub use queues::Queues;
pub use rate::{Rate, RateError, Speed, SpeedError, due_ns};
pub use shaping::{ChunkOptions, Clock, SimAsked, Skew, SkewError};
pub use size::{Size, SizeError};
pub use spec::{DeviceError, DeviceSpec};

#[cfg(test)]
mod tests;
