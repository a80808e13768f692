// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub: captures from sources once, and gives groups of readers what they want.
//!
//! A [`Hub`] is a thread that moves chunks, never packets; it can be used within a process, and
//! a [`door::Door`] lets readers of other processes in.

pub mod access;
mod capture;
pub mod door;
mod engine;
pub mod group;
mod hub;
mod membership;
mod phase;
mod relay;
mod seats;

pub use group::{Congestion, Delivery, Group};
pub use hub::{Ask, AttachError, Handle, Hub, HubError, InletFiles, SeatId, Taken};
