// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changed copies of options.

/// `value` after `change`.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
