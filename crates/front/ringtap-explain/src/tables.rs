// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of a hub's counters and rates, as `ringtap top` shows them.

mod cells;
mod groups;
mod losses;
mod readers;
mod sources;

pub use cells::{Column, Emphasis, StatusTable, TableCell};
pub use groups::groups;
pub use losses::{faults, losses};
pub use readers::{ReaderOrder, readers};
pub use sources::sources;
