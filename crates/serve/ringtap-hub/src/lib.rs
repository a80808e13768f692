// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub: captures from sources once, and gives groups of readers what they want.
//!
//! A [`Hub`] is a thread that moves chunks, never packets; it can be used within a process, and
//! a [`server::Server`] lets readers of other processes in.

pub mod access;
mod capture;
mod engine;
pub mod group;
mod hub;
mod loader;
mod membership;
mod phase;
mod relay;
mod responder;
pub mod server;
mod subscribers;

pub use group::{Congestion, Delivery, Group};
pub use hub::{AttachError, Handle, Hub, HubError};
