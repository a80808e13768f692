// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets as columns: time, lengths, addresses, ports and flags, computed for many packets at once.
//!
//! [`PacketColumns`] makes Arrow record batches of packets, [`PacketLine`] lines of text and JSON, and with the feature
//! `files` [`TableFiles`] writes Parquet, Arrow and CSV. All take their values from [`PacketHeaders`].
//! `docs/packets.md` states the schema.

mod columns;
mod data;
#[cfg(feature = "files")]
mod files;
mod headers;
mod line;
mod taken;

pub use columns::{AddressForm, ColumnOptions, PacketColumns};
#[cfg(feature = "files")]
pub use files::{TableError, TableFiles, TableFormat};
pub use headers::{FlowHeaders, LaneLinks, PacketHeaders};
pub use line::{LinePacket, PacketLine, PacketOrigin};
pub use taken::{CopiedPackets, TakenPackets};
