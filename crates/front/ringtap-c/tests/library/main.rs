// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as C programs find it: what it exports, how it lies in memory, how it behaves.

mod exports;
mod inline;
mod layout;
mod misuse;
mod packets;
mod support;
