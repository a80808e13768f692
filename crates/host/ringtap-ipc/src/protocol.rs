// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between a hub and its readers; `docs/internals/protocol.md` documents them.
//!
//! A message is one JSON object in one datagram. A receiver ignores fields that it does not know.
//!
//! Invariants
//! - Parsing any bytes never panics and allocates a bounded amount of memory.
//! - No text of a decoded message has a control character: see [`text`](crate::text).

mod flows;
mod group;
mod snapshot;
mod status;

use std::io;

use ringtap_filter::flow::FlowRule;
use ringtap_filter::{FlowSelector, Program};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use flows::{
    FLOW_RULES, FlowDirectionCounts, FlowEndReason, FlowEvent, MAX_RULES_OF_REQUEST, RuleStatus,
};
pub use group::{Delivery, Division};
pub use snapshot::{LaneSnapshot, Snapshot, SourceSnapshot};
pub use status::{
    BridgeStatus, BuddyCounts, ConfigurationStatus, DepartedStatus, GroupStatus, HubStatus,
    LaneStatus, ReaderStatus, SourceState, SourceStatus,
};

use crate::pool_memory::MemoryAnswer;
use crate::subscription::{Attached, SubscriptionRequest, Wanted};
use crate::text;

/// Version of the protocol; hub and reader must have the same.
pub const VERSION: u32 = 1;

/// A reader's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// The first message of every connection.
    Hello {
        /// [`VERSION`] of the reader.
        protocol: u32,
        /// Further capabilities of the reader: [`FLOW_RULES`].
        #[serde(default)]
        features: Vec<String>,
        /// The reader's name: `count`, `suricata`.
        name: String,
    },
    /// Subscribes to a group; once per connection.
    Attach(SubscriptionRequest),
    /// Changes the reader's own filter while packets arrive.
    Filter {
        /// See [`SubscriptionRequest::filter`].
        program: Program,
    },
    /// Changes how many chunks of a lane the reader may hold.
    Credit {
        /// Number of chunks, at most what the group allows.
        chunks: u32,
    },
    /// Asks for the reader's counters.
    Statistics,
    /// Asks for the memory in which the pool of an endpoint lies now.
    Memory {
        /// Number of the endpoint.
        endpoint: usize,
    },
    /// Makes the reader the inline reader of a bridge, whose packets its subscription delivers.
    Inline,
    /// Sets rules for flows, or for patterns of flows, one after the other until one is refused.
    SetRules {
        /// Number of the reader; absent: the reader of this connection. Likewise below.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reader: Option<u64>,
        /// At most [`MAX_RULES_OF_REQUEST`].
        rules: Vec<FlowRule<FlowSelector>>,
    },
    /// Removes a reader's rules for flows, or for patterns of flows.
    RemoveRules {
        /// Number of the reader.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reader: Option<u64>,
        /// At most [`MAX_RULES_OF_REQUEST`].
        flows: Vec<FlowSelector>,
    },
    /// Asks for a reader's rules.
    Rules {
        /// Number of the reader.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reader: Option<u64>,
        /// Asks for the rules behind that of this flow or pattern; absent: from the first on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<FlowSelector>,
    },
    /// Asks for the ends of flows since the last request; waits for none.
    FlowEvents {
        /// Number of the reader.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reader: Option<u64>,
    },
    /// Leaves the group.
    Detach,
    /// Asks for the counters of the whole hub.
    Status {
        /// Asks for the readers after the one with this number, and for nothing else; 0: for the first
        /// page.
        #[serde(default)]
        after: u64,
    },
}

/// The hub's answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Reply {
    /// To `hello`.
    Hello {
        /// [`VERSION`] of the hub.
        protocol: u32,
        /// Further capabilities of the hub.
        #[serde(default)]
        features: Vec<String>,
        /// The hub's software version.
        version: String,
        /// Link type of each source (`LINKTYPE_*`), so that a reader can compile its filter.
        #[serde(default)]
        link_types: Vec<u16>,
    },
    /// To `attach`; descriptors accompany it.
    Attached(Attached),
    /// To `filter`: where the filter runs now, and from which packets on, for each endpoint.
    Filtered {
        /// In the order of the endpoints.
        wanted: Vec<Wanted>,
    },
    /// To `inline`. Two descriptors accompany it: the memory for verdicts and a doorbell.
    Inline,
    /// To `memory`. A descriptor accompanies it, and a second one if `kept` has entries.
    Memory(MemoryAnswer),
    /// To `credit` and `detach`.
    Done,
    /// To `set_rules` and `remove_rules`.
    RulesDone {
        /// Number of rules that were set, or removed.
        done: u64,
        /// Why the rule behind these was not set; absent if all were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<Refused>,
    },
    /// To `rules`.
    Rules {
        /// Those for patterns first, then in the order of their flows.
        rules: Vec<RuleStatus>,
        /// More rules are behind the last one.
        #[serde(default)]
        more: bool,
    },
    /// To `flow_events`.
    FlowEvents {
        /// In the order in which the hub learned of them.
        events: Vec<FlowEvent>,
        /// Ends that the hub did not keep for this reader, since the last answer.
        lost: u64,
        /// More events wait.
        #[serde(default)]
        more: bool,
    },
    /// To `statistics`.
    Statistics(Snapshot),
    /// To `status`.
    Status(Box<HubStatus>),
    /// To a request that the hub refuses.
    Refused(Refused),
}

/// Why the hub refuses a request: the answer of a hub in this process and of one in another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The kind of refusal.
    pub code: Refusal,
    /// The reason, for the user.
    pub message: String,
}

impl Refused {
    /// A refusal of this kind for this reason.
    pub fn new(code: Refusal, message: impl Into<String>) -> Self {
        let message = message.into();
        Refused { code, message }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        let message = format!("the hub lacks memory or descriptors: {error}");
        Refused::new(Refusal::Failed, message)
    }
}

/// Kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The message is invalid, or comes at the wrong time.
    BadRequest,
    /// The reader has another version of the protocol.
    Version,
    /// The hub has no such group.
    NoGroup,
    /// The user may not do this.
    NotAllowed,
    /// The request exceeds a limit of the group or the hub.
    TooMuch,
    /// The hub cannot use the filter.
    BadFilter,
    /// The hub could not carry out the request.
    Failed,
}

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not a message of this protocol: {0}")]
pub struct ParseError(#[from] serde_json::Error);

/// Encodes a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Our own types hold only values that JSON has; the other side refuses an empty message.
    serde_json::to_vec(message).unwrap_or_default()
}

/// Decodes a message, and cleans its texts.
///
/// # Errors
///
/// [`ParseError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    Ok(text::from_json(bytes, text::MAX_TEXT_BYTES)?)
}

#[cfg(test)]
mod tests {
    use ringtap_filter::program::MAX_INSTRUCTIONS;

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
        let most = ["6"; MAX_INSTRUCTIONS].join(",");
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
        // A line that begins with a space continues the line before.
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
        assert_eq!((asks, answers), (15, 16), "each is written as it is sent");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _either = decode::<Request>(&bytes);
            let _or = decode::<Reply>(&bytes);
        }
    }
}
