// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exporters, each on a thread of its own behind a bounded queue.
//!
//! Invariants
//! - A live capture never waits for an exporter: what does not fit into the queue is counted as dropped.
//! - Every record sent is counted once: written, dropped, or still in the queue.

#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(any(feature = "arrow", feature = "parquet"))]
#[cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "only Parquet has the other tables")
)]
mod columns;
pub mod destination;
pub mod ipfix;
pub mod json;
#[cfg(feature = "kafka")]
pub mod kafka;
mod lines;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod prometheus;
mod queue;
pub mod text;

use crate::record::{FlowRecord, Record};
pub use queue::WhenFull;
pub(crate) use queue::{ExportQueues, ExportStatus};

/// Writes records to one destination: a file, a collector, a broker.
///
/// Runs on a thread of its own, so it may wait for its destination. It keeps no more memory than a
/// fixed amount, and returns to a destination that was gone.
pub trait Exporter: Send {
    /// Name for messages and counters, with its destination: `ipfix udp://10.0.0.1:4739`.
    fn name(&self) -> String;

    /// Writes records, or takes them into a buffer of bounded size.
    ///
    /// # Errors
    ///
    /// The records are lost, and the queue counts them as dropped.
    fn write(&mut self, records: &[Record]) -> Result<(), ExportError>;

    /// Runs about once a second, with or without records: to send templates, rotate files, connect again.
    ///
    /// # Errors
    ///
    /// Reported once until a call succeeds; no record is lost.
    fn tick(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Writes everything that it has in buffers.
    ///
    /// # Errors
    ///
    /// Buffered records are lost; the exporter states how many in `lost`.
    fn flush(&mut self) -> Result<(), ExportError>;

    /// Learns the sum of the flows so far that found the queue full, about once a second and before the end.
    fn not_queued(&mut self, _flows: FlowSum) {}

    /// Number of records that [`Exporter::write`] took and that were lost later.
    fn lost(&self) -> u64 {
        0
    }

    /// A further writer to the same destination, for a thread that helps when many records wait; `None` if all
    /// records have to go through one writer.
    fn helper(&self) -> Option<Box<dyn Exporter>> {
        None
    }

    /// Whether the reading program ended first, like `head`: what it did not read needs no warning.
    fn is_unread(&self) -> bool {
        false
    }
}

/// Records of flows, with the packets and the IP bytes of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSum {
    /// Number of records.
    pub flows: u64,
    /// Packets.
    pub packets: u64,
    /// IP bytes.
    pub octets: u64,
}

impl FlowSum {
    pub(crate) fn from_flow(flow: &FlowRecord) -> Self {
        FlowSum {
            flows: 1,
            packets: flow.packets(),
            octets: flow.bytes(),
        }
    }

    /// The sum over all records of flows.
    pub(crate) fn from_records(records: &[Record]) -> Self {
        let mut sum = FlowSum::default();
        for record in records {
            if let Record::Flow(flow) = record {
                sum += FlowSum::from_flow(flow);
            }
        }
        sum
    }
}

impl std::ops::AddAssign for FlowSum {
    fn add_assign(&mut self, other: Self) {
        self.flows = self.flows.saturating_add(other.flows);
        self.packets = self.packets.saturating_add(other.packets);
        self.octets = self.octets.saturating_add(other.octets);
    }
}

impl std::ops::Add for FlowSum {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Why an exporter failed; the message says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ExportError(pub String);

impl From<std::io::Error> for ExportError {
    fn from(error: std::io::Error) -> Self {
        ExportError(error.to_string())
    }
}

#[cfg(feature = "parquet")]
impl From<::parquet::errors::ParquetError> for ExportError {
    fn from(error: ::parquet::errors::ParquetError) -> Self {
        ExportError(error.to_string())
    }
}
