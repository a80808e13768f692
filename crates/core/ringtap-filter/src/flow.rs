// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules: a reader withholds packets of single flows from itself.
//!
//! A *flow* is the packets of both directions between two addresses and ports of one protocol, in the same VLANs and
//! the same tunnel. Packets that are not IP, and fragments, belong to no flow: rules never withhold them.
//!
//! A table knows a flow from the moment at which a rule is set for it; with standing cut-offs and wildcard rules, from
//! its first packet.
//! It counts packets, bytes and TCP flags of each direction, of packets that some reader wants.
//!
//! - *Ignore*: no packet is for the reader.
//! - *Cut off*: a packet is for the reader if fewer than N packets, or N bytes, of its direction came before it.
//! - *Sample*: a packet is for the reader if the number of packets of its direction before it is a multiple of N.
//! - *Mirror*: a packet is for the reader and for another group. *Forward*: it is for that group only.
//!
//! A rule is for one flow, or for all flows that match a pattern (*wildcard rule*). A reader's rule for the flow comes
//! before its wildcard rules. Standing cut-offs hold beside both.
//!
//! A rule ends at its time, when the flow is idle for longer than [`FlowSettings::idle_ns`], and when a new connection
//! has the same addresses and ports: a TCP segment with SYN and without ACK, after RST, after FIN of both directions, or
//! after any ACK. In the last two cases the flow restarts at the packet: its counts are reported and begin at 0, all its
//! rules end, and it stays in the table until it is idle.
//! `bpf/shunt.h` has the same semantics in the kernel; the conformance suite compares the two.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod key;
mod rule;
mod table;
#[cfg(test)]
mod tests;
mod wildcard;

pub(crate) use key::write_protocol;
pub use key::{FlowId, FlowKeyError, FlowPacket, KEY_WORDS, MARKS, has_ports};
pub use rule::{
    CUTS_WORDS, CutOff, FlowAction, FlowCuts, FlowRule, FlowRuleError, FlowSettings, MAX_CUTS,
    MAX_SAMPLE, RuleBits, StandingCutOff,
};
pub use table::{
    FlowDirection, FlowEnd, FlowSums, FlowTotals, Recipients, RuleTable, TableUse, has_lingered,
};
pub(crate) use wildcard::masked;
pub use wildcard::{
    CHOICES, EndPattern, FlowPattern, MAX_WILDCARDS, WILDCARD_WORDS, WildcardError, WildcardRule,
    Wildcards,
};
