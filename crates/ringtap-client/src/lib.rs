// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader links: attach to a hub, receive packets in place, wait for them, account for
//! every one.
//!
//! A [`Receiver`] reads from a [`seat`](ringtap_shared::seat::Seat), wherever that came from: from
//! a hub in this process, or over its socket by [`Connection`].

mod connection;
mod control;
mod descriptor;
mod judge;
mod lender;
mod merge;
mod pending;
mod receiver;
mod tally;
#[cfg(test)]
mod tests;

pub use connection::{Attachment, ConnectError, Connection, Wish, default_socket};
pub use control::{Control, ControlError};
pub use judge::{Batch, Judged, Packets};
pub use lender::{Found, Lender, Lent, Patience, Stop};
pub use merge::Order;
pub use receiver::{Next, ReceiveError, Receiver};
pub use ringtap_shared::verdict::{Judgement, Verdict, VerdictError, Verdicts};
pub use tally::{LaneTally, Tally};
