// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces that go down, come up, are renamed, moved, removed and made again, under traffic.
//!
//! `RINGTAP_FLAPS=50` sets the number of outages of each case; `make flaps` runs 50.

#[cfg(test)]
mod bridges;
#[cfg(test)]
mod conflicts;
#[cfg(test)]
mod detached;
#[cfg(test)]
mod removed;
#[cfg(test)]
mod senders;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod support;
#[cfg(test)]
mod waiting;
