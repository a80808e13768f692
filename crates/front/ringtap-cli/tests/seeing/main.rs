// SPDX-License-Identifier: MIT OR Apache-2.0
//! `status`, `top` and `why`, as their users run them.

mod completion;
mod helping;
mod monitoring;
mod served;
mod stopped;
mod terminal;
mod verbs;
