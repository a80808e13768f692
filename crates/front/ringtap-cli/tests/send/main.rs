// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap send`, seen from the other end of a veth pair.

mod errors;
mod figures;
mod packets;
mod replay;
mod wire;
