// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limit of tests.

use std::time::Duration;

/// Time limit for each step of a test; only a failing test on a busy machine takes so long.
pub const LIMIT: Duration = Duration::from_secs(240);
