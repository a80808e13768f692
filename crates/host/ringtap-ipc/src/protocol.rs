// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between a hub and its readers, as `docs/internals/protocol.md` writes them down.
//!
//! One message is one JSON object in one datagram. Who does not know a field ignores it.
//!
//! Invariants
//! - Parsing never panics, whatever comes, and never makes more than a bounded amount of memory.
#![forbid(unsafe_code)]

mod snapshot;
mod status;
mod subscribed;
pub(crate) mod wire;

use ringtap_filter::Program;
use serde::{Deserialize, Serialize};

pub use snapshot::{LaneSnapshot, Snapshot, SourceSnapshot};
pub use status::{
    CongestionStatus, GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState, SourceStatus,
};
pub use subscribed::{Attached, AttachedEndpoint, AttachedError};

use crate::subscription::{SubscriptionRequest, Wanted};

/// The version of the protocol; both sides must speak the same.
pub const VERSION: u32 = 1;
/// Most instructions of a filter, as in the kernel.
pub const MOST_INSTRUCTIONS: usize = 4096;

/// What a reader asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Always first.
    Hello {
        /// [`VERSION`] of the reader.
        protocol: u32,
        /// What else it can do; nothing is defined yet.
        #[serde(default)]
        features: Vec<String>,
        /// What it calls itself: `count`, `suricata`.
        name: String,
    },
    /// Takes a subscription in a group; once per connection.
    Attach(SubscriptionRequest),
    /// Changes the reader's own filter while packets come.
    Filter {
        /// See [`SubscriptionRequest::filter`].
        #[serde(with = "wire::filter")]
        program: Program,
    },
    /// Changes how many chunks of a lane the reader may hold.
    Credit {
        /// At most what its group allows.
        chunks: u32,
    },
    /// Asks for the reader's counters.
    Statistics,
    /// Makes the reader the inline reader of a bridge, whose packets its subscription delivers.
    Inline,
    /// Leaves the group.
    Detach,
    /// Asks for everybody's counters.
    Status,
}

/// What the hub answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Reply {
    /// To `hello`.
    Hello {
        /// [`VERSION`] of the hub.
        protocol: u32,
        /// What else it can do.
        #[serde(default)]
        features: Vec<String>,
        /// The hub's own version.
        version: String,
    },
    /// To `attach`; descriptors accompany it.
    Attached(Attached),
    /// To `filter`: where it runs now, and from which packets on, for each endpoint.
    Filtered {
        /// In the order of the endpoints.
        wanted: Vec<Wanted>,
    },
    /// To `inline`. Two descriptors accompany it: the memory for verdicts, and a doorbell.
    Inline,
    /// To `credit` and `detach`.
    Done,
    /// To `statistics`.
    Statistics(Snapshot),
    /// To `status`.
    Status(Box<HubStatus>),
    /// Not done, and why.
    Refused {
        /// What kind of refusal.
        code: Refusal,
        /// What to tell the user.
        message: String,
    },
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The message makes no sense, or not now.
    BadRequest,
    /// Another version of the protocol.
    Version,
    /// No such group.
    NoGroup,
    /// The user may not.
    NotAllowed,
    /// More than the group or the hub allows.
    TooMuch,
    /// The filter cannot be used.
    BadFilter,
    /// The hub could not do it.
    Failed,
}

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not a message of this protocol: {0}")]
pub struct ParseError(#[from] serde_json::Error);

/// The bytes of a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Our own types hold nothing that JSON cannot: an empty message is refused by the other side.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The message in these bytes.
///
/// # Errors
///
/// [`ParseError`].
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ParseError> {
    Ok(serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_the_documentation_shows() {
        let hello = Request::Hello {
            protocol: 1,
            features: vec![],
            name: "count".into(),
        };
        let text = r#"{"ask":"hello","protocol":1,"features":[],"name":"count"}"#;
        assert_eq!(encode(&hello), text.as_bytes());
        let short = br#"{"ask":"attach","group":"ids","unknown":5}"#;
        let expected = SubscriptionRequest::new("ids", "");
        assert_eq!(decode::<Request>(short).unwrap(), Request::Attach(expected));
    }

    #[test]
    fn an_invalid_or_long_filter_is_refused_with_its_reason() {
        let reason = |entries: &str| {
            let text = format!(r#"{{"ask":"filter","program":[{entries}]}}"#);
            decode::<Request>(text.as_bytes()).unwrap_err().to_string()
        };
        assert!(reason("18446744073709551615").contains("invalid filter: instruction 0"));
        let most = ["6"; MOST_INSTRUCTIONS].join(",");
        let longer = reason(&format!("{most},6"));
        assert!(longer.contains("4097 instructions"), "{longer}");
        let text = format!(r#"{{"ask":"filter","program":[{most}]}}"#);
        assert!(decode::<Request>(text.as_bytes()).is_ok());
    }

    #[test]
    fn every_example_of_the_documentation_is_a_message() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../docs/internals/protocol.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let blocks = page.split("```json\n").skip(1);
        let text: String = blocks
            .map(|block| block.split("```").next().unwrap())
            .collect();
        // A line that begins with a space goes on with the one before.
        let text = text.replace("\n ", "");
        let (mut asks, mut answers) = (0, 0);
        for line in text.lines() {
            if line.contains(r#"{"ask":"#) {
                let asked: Request = decode(line.as_bytes()).expect(line);
                asks += usize::from(encode(&asked) == line.as_bytes());
            } else {
                let answer: Reply = decode(line.as_bytes()).expect(line);
                answers += usize::from(encode(&answer) == line.as_bytes());
            }
        }
        assert_eq!((asks, answers), (8, 9), "each is written as it is sent");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _either = decode::<Request>(&bytes);
            let _or = decode::<Reply>(&bytes);
        }
    }
}
