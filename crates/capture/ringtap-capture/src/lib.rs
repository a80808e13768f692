// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's sources, which write packets into a pool.

#[cfg(test)]
mod c_view;
pub mod classifier;
mod clock;
mod error;
mod fallback;
mod interface;
pub mod meter;
#[doc(hidden)]
pub mod monitor;
pub mod nic;
mod nic_stamps;
mod open;
pub mod packet;
pub mod pcap;
#[doc(hidden)]
pub mod queues;
mod shape;
pub mod sim;
pub mod source;
pub mod tap;
pub mod xdp;

pub use error::CaptureError;
pub use interface::InterfaceOptions;
pub use open::{open, open_for_rules};
pub use shape::{PoolAsked, ShapeError};
