// SPDX-License-Identifier: MIT OR Apache-2.0
//! An interface without a source.

use super::packet::PACKET;
use super::tap::TAP;
use crate::kind::Kind;

/// The description of an interface without a source.
pub static AUTO: Kind = Kind {
    word: "",
    example: "eth0",
    meaning: "interface `eth0`: by `tap`, or by `packet` where `tap` is not possible; Ringtap prints the reason",
    tries: &[&TAP, &PACKET],
    ..TAP
};
