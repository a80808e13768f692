// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xdp`: AF_XDP sockets.

use ringtap_net::rights::Purpose;

use super::shared::{CHUNK, MODE, POOL, PROMISC, SNAP, STAMPS};
use super::tap::TAP;
use crate::{keys::OptionKey, kind::Kind, options::Mode};

/// The description of `xdp`.
pub static XDP: Kind = Kind {
    word: "xdp",
    example: "xdp:eth0@0-3",
    meaning: "AF_XDP sockets with the pool as their memory; captured packets do not reach the host",
    keys: &[
        &MODE, &STAMPS, &PROMISC, &SNAP, &POOL, &CHUNK, &ZERO_COPY, &BUSY_POLL,
    ],
    lacks: &[("chunks", OWN_CHUNKS), ("packets", OWN_CHUNKS)],
    hooks: &[Mode::Native, Mode::Generic],
    purpose: Some(Purpose::Xdp),
    selects_queues: true,
    has_cells: true,
    kernel_losses: TAP.kernel_losses,
    ..Kind::PLAIN
};

const OWN_CHUNKS: &str = "a chunk of xdp has as many packets as it has cells: chunk=SIZE and the largest packet \
    determine that number; pool=SIZE determines the number of chunks";

static ZERO_COPY: OptionKey = OptionKey::switch(
    "zero-copy",
    "allow the NIC to write into the pool",
    "`on`, where the driver can",
    |to| &mut to.zero_copy,
);
static BUSY_POLL: OptionKey = OptionKey::flag(
    "busy-poll",
    "the capturing thread polls the driver without sleeping",
    "off",
    |to| &mut to.busy_poll,
);
