// SPDX-License-Identifier: MIT OR Apache-2.0
//! `packet`: a packet socket.

use ringtap_net::rights::Purpose;

use super::shared::{CHUNK, CHUNKS, DIRECTION, PACKETS, POOL, PROMISC, SNAP, STAMPS, WAIT};
use crate::kind::Kind;

/// The description of `packet`.
pub static PACKET: Kind = Kind {
    word: "packet",
    example: "packet:eth0",
    meaning: "AF_PACKET socket, copied into the pool; needs only `CAP_NET_RAW`",
    keys: &[
        &DIRECTION, &STAMPS, &PROMISC, &WAIT, &SNAP, &POOL, &CHUNK, &CHUNKS, &PACKETS,
    ],
    purpose: Some(Purpose::Packet),
    opens_when_down: true,
    kernel_losses: &[
        "Capture with the tap, which has no ring that can overflow: tap:{name}.",
        "Keep the CPU of the hub's packet thread free of other work.",
    ],
    ..Kind::PLAIN
};
