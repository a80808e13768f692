// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap bridge` between two namespaces; needs root.
//!
//! `cfg(test)` on the modules tells clippy that helpers are tests too.

#[cfg(test)]
mod inline;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod support;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod verdicts;
