// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes for the user about a run: another method, unusual packets.
#![forbid(unsafe_code)]

use std::{fmt, time::Duration};

use super::error::NoLiveFrames;

/// A note about a run; its text is for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// The interface is down, and the run waits.
    Down {
        /// Its name.
        name: String,
    },
    /// The interface is up again, and the run goes on.
    UpAgain {
        /// Its name.
        name: String,
        /// How long the run waited.
        waited: Duration,
    },
    /// Packets leave through AF_PACKET from here on, for this reason.
    FellBack(NoLiveFrames),
    /// Without `CAP_SYS_ADMIN` the kernel makes every run of packets wait.
    InBursts,
    /// The small packets of the mix are larger than usual.
    MixRaised {
        /// Their size, on the wire.
        least_bytes: u32,
    },
    /// The first packet of the file that was cut when it was recorded; it is sent as it is.
    CutWhenRecorded {
        /// Its number in the file, from 1.
        number: u64,
    },
    /// The first packet of the file that is too short for an Ethernet header; counted as refused.
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
            Self::Down { name } => write!(f, "{name} is down; waiting"),
            Self::UpAgain { name, waited } => {
                write!(f, "{name} is up again after {:.1} s", waited.as_secs_f64())
            }
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
