// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user should know of a run that goes on: changes of the way out, odd packets.
#![forbid(unsafe_code)]

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::error::NoLiveFrames;

/// Something to be said aloud.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// Packets go out through AF_PACKET from here on, and why.
    FellBack(NoLiveFrames),
    /// Without `CAP_SYS_ADMIN` the kernel makes every run of packets wait.
    InBursts,
    /// The small packets of the mix are larger than usual.
    MixRaised {
        /// Their size, on the wire.
        least_bytes: u32,
    },
    /// A packet of the file had been cut when it was recorded; it is sent as it is. Said once.
    CutWhenRecorded {
        /// Its number in the file, from 1.
        number: u64,
    },
    /// A packet of the file is no Ethernet frame; such ones count as refused. Said once.
    TooShort {
        /// Its number in the file, from 1.
        number: u64,
        /// Its length.
        length_bytes: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FellBack(why) => write!(f, "{why}; sending through AF_PACKET instead"),
            Self::InBursts => f.write_str(
                "without CAP_SYS_ADMIN live frames leave in bursts every 10 to 40 ms, and more \
                 slowly: `--method packet` sends evenly",
            ),
            Self::MixRaised { least_bytes } => write!(
                f,
                "the mix's 64-byte packets are {least_bytes} bytes: headers and stamp need that"
            ),
            Self::CutWhenRecorded { number } => write!(
                f,
                "packet {number} of the file was cut when it was recorded: such packets are sent cut"
            ),
            Self::TooShort {
                number,
                length_bytes,
            } => write!(
                f,
                "packet {number} of the file has {length_bytes} bytes, less than an Ethernet \
                 header: such packets are not sent, and counted as refused"
            ),
        }
    }
}

/// Notes on their way from the sending thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    pub(super) fn say(&self, note: Note) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(note);
    }

    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
