// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub as its users run it: processes that come, go, are stopped, are killed, and lie.

mod attacks;
mod beside;
mod buddies;
mod containers;
mod delivery;
mod filter_time;
mod filters;
mod groups;
mod heavy;
mod hostile;
mod interrupted;
mod killed;
mod mirroring;
mod pressure;
mod refusals;
mod reload;
mod rights;
mod rules;
mod rules_verb;
mod shares;
mod signals;
mod support;
mod tunnels;
