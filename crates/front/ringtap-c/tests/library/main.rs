// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as C programs see it: exports, memory layout, behaviour.

mod daq;
mod exports;
mod flows;
mod inline;
mod layout;
mod misuse;
mod packets;
mod support;
