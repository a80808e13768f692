// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in the tools that read them: collectors, brokers, databases.

mod collectors;
#[cfg(feature = "parquet")]
mod files;
mod flows;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "report")]
mod selection;
mod values;
