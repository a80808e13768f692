// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device syntax that every program shares: `tap:eth0@0-3,5?exclusive&pool=1GiB`.
//!
//! Invariants
//! - One parser, one canonical text: the text that `Display` prints parses to the same value.
//! - An option that a source does not have is an error at its place, never ignored.
#![forbid(unsafe_code)]

mod escape;
mod keys;
mod list;
mod options;
mod parse;
mod queues;
mod rate;
mod shaping;
mod size;

use std::{fmt, ops::Range, str::FromStr};

use ringtap_filter::caret;

pub use list::parse_list;
pub use options::{Direction, Mode, Options, StampClock};
pub use queues::Queues;
pub use rate::{Rate, RateError, Speed, SpeedError, due_ns};
pub use shaping::{ChunkOptions, Clock, SimAsked, Skew};
pub use size::{Size, SizeError};

/// What kind of source a device names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An interface without source: the tap if it works, else `packet`, with a note.
    Auto,
    /// XDP and tc programs that write into the pool.
    Tap,
    /// AF_XDP.
    Xdp,
    /// A packet socket.
    Packet,
    /// A capture file.
    Pcap,
    /// A simulated NIC.
    Sim,
    /// A running hub.
    Hub,
    /// A group of the host's hub, inside a virtual machine.
    Host,
}

impl Kind {
    /// Every kind that has a prefix.
    pub const PREFIXED: [Self; 7] = [
        Self::Tap,
        Self::Xdp,
        Self::Packet,
        Self::Pcap,
        Self::Sim,
        Self::Hub,
        Self::Host,
    ];

    /// Its word before the colon; empty for [`Kind::Auto`].
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Auto => "",
            Self::Tap => "tap",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
            Self::Pcap => "pcap",
            Self::Sim => "sim",
            Self::Hub => "hub",
            Self::Host => "host",
        }
    }

    /// Whether its name is that of a network interface.
    #[must_use]
    pub fn names_an_interface(self) -> bool {
        matches!(self, Self::Auto | Self::Tap | Self::Xdp | Self::Packet)
    }

    /// Whether its name is that of a group of a hub, which runs already.
    #[must_use]
    pub fn names_a_group(self) -> bool {
        matches!(self, Self::Hub | Self::Host)
    }

    fn has_queues(self) -> bool {
        self.names_an_interface()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "default",
            other => other.prefix(),
        })
    }
}

/// A device as the user named it, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSpec {
    /// Kind of source.
    pub kind: Kind,
    /// Interface, file or group.
    pub name: String,
    /// Chosen receive queues.
    pub queues: Queues,
    /// Options after the question mark, and those of flags.
    pub options: Options,
}

/// Reason why a text is not a device.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text does not follow the syntax.
    #[error("{}", describe(.text, .message, .place))]
    Syntax {
        text: String,
        message: String,
        place: Range<usize>,
    },
    /// A flag and an option of the device differ.
    #[error("{device} says {option}, but the flag says {flag}: give only one of them")]
    Conflict {
        device: String,
        option: String,
        flag: String,
    },
    /// A flag with an invalid value.
    #[error("{flag}: {message}")]
    BadFlag { flag: String, message: String },
    /// A flag that this kind of source does not have.
    #[error("{flag} has no meaning for {device}: only for {kinds}")]
    Pointless {
        device: String,
        flag: String,
        kinds: String,
    },
}

impl DeviceSpec {
    /// A device without queues and options.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            queues: Queues::All,
            options: Options::default(),
        }
    }

    /// A capture file by its path, as `-r FILE` gives it: no sign in it has a special meaning.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::new(Kind::Pcap, path)
    }

    /// The device with what command-line flags add to its options.
    ///
    /// # Errors
    ///
    /// - [`DeviceError::Conflict`]: a flag contradicts the device's own option.
    /// - [`DeviceError::Pointless`]: a flag that this kind of source does not know.
    /// - [`DeviceError::BadFlag`]: a flag's value is out of range.
    pub fn with_flags(&self, flags: &Options) -> Result<Self, DeviceError> {
        let options = options::merge(self, flags)?;
        Ok(Self {
            options,
            ..self.clone()
        })
    }
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        parse::device(text, 0..text.len())
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != Kind::Auto {
            write!(f, "{}:", self.kind.prefix())?;
        }
        write!(
            f,
            "{}{}{}",
            escape::escape(&self.name),
            self.queues,
            self.options
        )
    }
}

fn describe(text: &str, message: &str, place: &Range<usize>) -> String {
    let column = caret::column(text, place.start);
    let shown = caret::show(text, place);
    format!("bad device: {message} (character {column})\n{shown}")
}

#[cfg(test)]
mod tests;
