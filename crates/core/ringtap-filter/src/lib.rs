// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet filters: text or classic BPF in; eBPF, a user-space classifier and the flow hash out.
//!
//! Does no input or output and no system calls. With the feature `libpcap`, [`text::compile`]
//! compiles the pcap-filter language with libpcap.
#![deny(unsafe_code)]

mod balance;
pub mod caret;
pub mod classifier;
pub mod ebpf;
pub mod flow;
mod flow_text;
mod group_name;
pub mod hash;
mod link_type;
mod paths;
mod pattern_text;
pub mod program;
mod protocol;
mod rules;
#[cfg(feature = "libpcap")]
pub mod text;

/// Most bytes of a packet that libpcap and Wireshark keep; no common link type has larger ones.
pub const MAX_SNAP_LENGTH: u32 = 262_144;

pub use balance::{Balance, Headers};
pub use flow_text::FlowTextError;
pub use group_name::{GroupName, GroupNameError, MAX_GROUP_NAME};
pub use link_type::LinkType;
pub use paths::{ByteField, FieldBase, FieldConditions, ValueRange};
pub use pattern_text::{FlowSelector, PatternTextError};
pub use program::{FilterTime, Instruction, PACKET_NS, Program, ProgramError};
pub use protocol::protocol_name;
pub use rules::{
    BUCKETS, BucketMasks, FilterLocation, MASKS, MAX_RULES, Rule, Rules, VerifierLimits,
};
