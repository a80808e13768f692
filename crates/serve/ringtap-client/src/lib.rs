// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's side of a hub: attach, receive packets in place, wait for packets, count every one.
//!
//! A [`Receiver`] reads from a [`subscription`](ringtap_ipc::subscription::Subscription) at a hub
//! in this process, or at one in another process by a [`Connection`].
//!
//! A reader of the group `ids` with a filter, packets in the order of their times, and counters at
//! the end:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ringtap_client::{Connection, Next, Receiver, SubscriptionRequest, Tally, default_socket};
//! use ringtap_filter::{Instruction, Program};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Classic BPF, as `tcpdump -ddd ip` prints it; `text::compile` of `ringtap-filter` compiles
//! // text.
//! let ip = [(40, 0, 0, 12), (21, 0, 1, 2048), (6, 0, 0, 262_144), (6, 0, 0, 0)];
//! let ip = ip.map(|(code, jump_true, jump_false, k)| Instruction {
//!     code,
//!     jump_true,
//!     jump_false,
//!     k,
//! });
//! let request = SubscriptionRequest {
//!     filter: Program::new(&ip)?,
//!     ..SubscriptionRequest::new("ids", "sorted")
//! };
//! let (subscription, connection) = Connection::attach(&default_socket(), &request)?;
//! let receiver = Receiver::new(subscription, connection)?;
//! let mut receiver = receiver.in_order(Duration::from_millis(20));
//! let mut tally = Tally::new(receiver.lanes());
//! loop {
//!     let batch = match receiver.next(Some(Duration::from_secs(1)))? {
//!         Next::Batch(batch) => batch,
//!         Next::Empty => continue, // no packet came for a second
//!         Next::Ended => break,
//!     };
//!     // The same chunk has packets for other readers, which are only counted.
//!     tally.count_batch(&batch, |packet| {
//!         println!("{} ns: {} bytes", packet.slot().time_ns, packet.data.len());
//!         true
//!     })?;
//! }
//! let counters = tally.total(&receiver.snapshot()?);
//! println!("{}", counters.balance());
//! # Ok(())
//! # }
//! ```
//!
//! A batch may be kept and dropped later. A program with a poll loop of its own uses a [`Cursor`]:
//! it reads and counts packets one by one, and has a descriptor that tells when to call it.

mod beside;
mod classified;
mod connection;
mod control;
mod copier;
mod cursor;
mod descriptor;
mod distance;
mod endpoint;
mod flow_rules;
mod merge;
mod new_memory;
mod pending;
mod receive_error;
mod receiver;
mod tally;
#[cfg(test)]
mod tests;
mod waiter;

pub use beside::HubBeside;
pub use classified::{Batch, Packets, ReceivedPacket};
pub use connection::{ConnectError, Connection, HOST_FOLDER, default_socket, host_socket};
pub use control::{AwaitedAnswer, Control, ControlError};
pub use copier::{Copier, CopyCounts, CopyPool};
pub use cursor::{Cursor, CursorPacket, Deadline, Look, LookStep, OutsideWait};
pub use flow_rules::{FlowEvents, ReaderRules};
pub use merge::{ORDER_WINDOW, Order};
pub use pending::{AFTER_GAP, KeptPackets};
pub use receiver::{Next, ReceiveError, Receiver};
pub use ringtap_ipc::subscription::{AttachedError, Recipient, SubscriptionRequest, Watermark};
pub use ringtap_ipc::verdict::{Lasting, PacketVerdict, Verdict, VerdictError, VerdictSender};
pub use tally::{LaneTally, Tally};
