// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Ringtap library: opens a device or a group of a hub, reads packets in place, counts them.
//!
#![doc = include_str!("../../../../docs/library.md")]
#![forbid(unsafe_code)]

mod capture;
mod counted;
mod error;
mod open;
mod rules;

pub use capture::{AllCounters, Capture, CaptureHub};
pub use counted::Counted;
pub use error::Error;
pub use open::{OpenOptions, compile, open};
pub use ringtap_client::{
    AwaitedAnswer, Batch, Control, ControlError, Cursor, CursorPacket, Deadline, FlowEvents, Look,
    Next, ORDER_WINDOW, Order, ReaderRules,
};
pub use ringtap_device::{DeviceSpec, Direction, Mode, Options as DeviceOptions};
pub use ringtap_filter::flow::{CutOff, EndPattern, FlowAction, FlowId, FlowPattern, FlowRule};
pub use ringtap_filter::{
    Balance, FlowSelector, FlowTextError, GroupName, Headers, PatternTextError,
};
pub use ringtap_ipc::protocol::{
    FlowDirectionCounts, FlowEndReason, FlowEvent, RuleStatus, Snapshot,
};
pub use ringtap_net::confine::{Confinement, FileLimits, Sandbox, User, limit_thread};
pub use ringtap_net::rights::{CapabilitySet, WHILE_CAPTURING};
pub use ringtap_pool::congestion::Congestion;
pub use ringtap_pool::counters::{CounterBalance, Counters, Dropped};
pub use ringtap_pool::format::{Slot, flag};
pub use ringtap_pool::ids::LaneId;
pub use ringtap_pool::reader::{CaptureGap, Gap, Packet};
pub use ringtap_pool::source::Facts;
