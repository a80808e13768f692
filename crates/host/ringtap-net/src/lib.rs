// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host: interfaces and their settings, CPUs, rights, kernel features, namespaces.

pub mod affinity;
pub mod confine;
pub mod cpu;
pub mod doctor;
pub mod interface;
pub mod interrupts;
pub mod kernel;
mod near;
pub mod netlink;
pub mod packet_socket;
pub mod preload;
pub mod private;
pub mod rights;

pub use near::meant;
