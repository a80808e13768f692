// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generated packets: traffic in the user's terms and byte for byte; and the public identifier of a packet's flow.
//!
//! Pure: no input or output, no system calls, no unsafe code.
#![forbid(unsafe_code)]

mod address;
pub mod checksum;
mod community_id;
mod frames;
pub mod stamp;
mod traffic;

pub use address::{MacAddress, MacAddressError, push_address};
pub use community_id::{CommunityFlow, CommunityId, CommunityIdError};
pub use frames::{Offsets, Plan, Shape};
pub use traffic::{
    FCS_BYTES, Sizes, Traffic, TrafficError, TransportProtocol, WIRE_OVERHEAD_BYTES,
};
