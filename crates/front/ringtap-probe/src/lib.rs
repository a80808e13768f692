// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic probe: analyses on the packets of a capture, flow records, exporters.
#![forbid(unsafe_code)]

pub mod export;
pub mod record;
