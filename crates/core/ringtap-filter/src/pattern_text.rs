// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a pattern of flows, in words of libpcap's filters: `tcp net 10.0.0.0/8 port 8000-8999 and host 10.9.9.9 vlan 7`.
//!
//! Invariants
//! - The text that `Display` prints parses to the same pattern.

use std::fmt;
use std::iter::Peekable;
use std::net::IpAddr;
use std::str::{FromStr, SplitAsciiWhitespace};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::flow::{
    EndPattern, FlowId, FlowKeyError, FlowPattern, FlowRule, WildcardError, has_ports, masked,
    write_protocol,
};
use crate::flow_text::{FlowTextError, named, number};

/// Why a text names no pattern of flows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum PatternTextError {
    /// A word has no value.
    #[error(
        "\"{word}\" needs a value: a pattern is like `tcp net 10.0.0.0/8 port 8000-8999 vlan 7`"
    )]
    Missing { word: String },
    /// A word that no pattern has.
    #[error(
        "\"{word}\" belongs to no pattern: expected `net`, `host`, `port`, `and` or `vlan`, each once for an end"
    )]
    Word { word: String },
    /// A word is no network.
    #[error("\"{word}\" is no network: expected one like 10.0.0.0/8 or fe80::/10")]
    Network { word: String },
    /// The network's address has bits beyond its prefix.
    #[error("{word} has bits beyond its prefix: the network is {network}/{prefix}")]
    Bits {
        word: String,
        network: IpAddr,
        prefix: u8,
    },
    /// There are no such flows.
    #[error(transparent)]
    Key(#[from] FlowKeyError),
    /// A word of a flow's text, too.
    #[error(transparent)]
    Flow(#[from] FlowTextError),
    /// No flow matches.
    #[error(transparent)]
    Pattern(#[from] WildcardError),
}

/// The flows of a rule: those of a pattern, or one. Rules for patterns come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowSelector {
    /// All flows that match.
    Pattern(FlowPattern),
    /// One flow.
    Flow(FlowId),
}

/// Words of a pattern behind its protocol.
const WORDS: [&str; 6] = ["net", "host", "port", "portrange", "and", "vlan"];

impl From<FlowId> for FlowSelector {
    fn from(flow: FlowId) -> Self {
        FlowSelector::Flow(flow)
    }
}

impl From<FlowPattern> for FlowSelector {
    fn from(pattern: FlowPattern) -> Self {
        FlowSelector::Pattern(pattern.canonical())
    }
}

impl From<FlowRule> for FlowRule<FlowSelector> {
    fn from(rule: FlowRule) -> Self {
        rule.with_flow(rule.flow.into())
    }
}

impl From<FlowRule<FlowPattern>> for FlowRule<FlowSelector> {
    fn from(rule: FlowRule<FlowPattern>) -> Self {
        rule.with_flow(rule.flow.into())
    }
}

impl FlowRule<FlowSelector> {
    /// The rule, if it is for one flow.
    #[must_use]
    pub fn for_flow(&self) -> Option<FlowRule> {
        match self.flow {
            FlowSelector::Flow(flow) => Some(self.with_flow(flow)),
            FlowSelector::Pattern(_) => None,
        }
    }

    /// The rule, if it is for a pattern.
    #[must_use]
    pub fn for_pattern(&self) -> Option<FlowRule<FlowPattern>> {
        match self.flow {
            FlowSelector::Pattern(pattern) => Some(self.with_flow(pattern)),
            FlowSelector::Flow(_) => None,
        }
    }
}

impl FromStr for FlowPattern {
    type Err = PatternTextError;

    fn from_str(text: &str) -> Result<Self, PatternTextError> {
        let mut words = text.split_ascii_whitespace().peekable();
        let mut pattern = FlowPattern {
            protocol: protocol(&mut words)?,
            ..FlowPattern::default()
        };
        let mut at = 0;
        let (mut networks, mut ports) = ([false; 2], [false; 2]);
        while let Some(word) = words.next() {
            if word == "and" && at == 0 && (networks[0] || ports[0]) && words.peek().is_some() {
                at = 1;
                continue;
            }
            let missing = || PatternTextError::Missing { word: word.into() };
            let mut value = || words.next().ok_or_else(missing);
            let end = &mut pattern.ends[at];
            match word {
                "net" | "host" if !networks[at] => {
                    networks[at] = true;
                    end.network = Some(network(value()?, word == "host")?);
                }
                "port" | "portrange" if !ports[at] => {
                    ports[at] = true;
                    end.ports = range(value()?)?;
                }
                "vlan" if pattern.vlan.is_none() => pattern.vlan = Some(number(value()?, "VLAN")?),
                _ => return Err(PatternTextError::Word { word: word.into() }),
            }
        }
        if let Some(protocol) = pattern.protocol
            && ports != [false; 2]
            && !has_ports(protocol)
        {
            return Err(FlowKeyError::NoPorts { protocol }.into());
        }
        pattern.check()?;
        Ok(pattern.canonical())
    }
}

/// The protocol at the beginning, or `any`.
fn protocol(
    words: &mut Peekable<SplitAsciiWhitespace<'_>>,
) -> Result<Option<u8>, PatternTextError> {
    if words.peek().is_some_and(|word| WORDS.contains(word)) {
        return Ok(None);
    }
    let missing = |missing| FlowTextError::Missing { missing };
    match words.next().ok_or(missing("protocol"))? {
        "any" => Ok(None),
        "protocol" => {
            let word = words.next().ok_or(missing("number of a protocol"))?;
            Ok(Some(number(word, "protocol")?))
        }
        word => Ok(Some(named(word)?)),
    }
}

fn network(word: &str, is_host: bool) -> Result<(IpAddr, u8), PatternTextError> {
    let wrong = || PatternTextError::Network { word: word.into() };
    if is_host {
        let address: IpAddr = word.parse().map_err(|_| wrong())?;
        return Ok((address, if address.is_ipv4() { 32 } else { 128 }));
    }
    let (address, prefix) = word.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix = prefix.parse().map_err(|_| wrong())?;
    let network = masked(address, prefix);
    if network != address {
        return Err(PatternTextError::Bits {
            word: word.into(),
            network,
            prefix,
        });
    }
    Ok((address, prefix))
}

fn range(word: &str) -> Result<(u16, u16), FlowTextError> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Ok((number(first, "port")?, number(last, "port")?))
}

impl fmt::Display for FlowPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = self
            .ends
            .iter()
            .filter(|end| **end != EndPattern::default());
        let ends: Vec<_> = ends.map(EndText).collect();
        let mut space = "";
        if let Some(protocol) = self.protocol {
            write_protocol(f, protocol)?;
            space = " ";
        } else if ends.is_empty() {
            write!(f, "any")?;
            space = " ";
        }
        for end in ends {
            write!(f, "{space}{end}")?;
            space = " and ";
        }
        match self.vlan {
            Some(vlan) => write!(f, " vlan {vlan}"),
            None => Ok(()),
        }
    }
}

struct EndText<'a>(&'a EndPattern);

impl fmt::Display for EndText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndPattern { network, ports } = self.0;
        let mut space = "";
        if let Some((address, prefix)) = network {
            let is_host = *prefix == if address.is_ipv4() { 32 } else { 128 };
            if is_host {
                write!(f, "host {address}")?;
            } else {
                write!(f, "net {address}/{prefix}")?;
            }
            space = " ";
        }
        match ports {
            (0, u16::MAX) => Ok(()),
            (first, last) if first == last => write!(f, "{space}port {first}"),
            (first, last) => write!(f, "{space}port {first}-{last}"),
        }
    }
}

impl FromStr for FlowSelector {
    type Err = PatternTextError;

    fn from_str(text: &str) -> Result<Self, PatternTextError> {
        if is_pattern(text) {
            Ok(FlowSelector::Pattern(text.parse()?))
        } else {
            Ok(FlowSelector::Flow(text.parse()?))
        }
    }
}

/// Whether a text is that of a pattern: the one of a flow has an address behind the protocol.
fn is_pattern(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    if first == "any" || WORDS.contains(&first) {
        return true;
    }
    if first == "protocol" {
        words.next();
    }
    !first.is_empty() && words.next().is_none_or(|word| WORDS.contains(&word))
}

impl fmt::Display for FlowSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowSelector::Pattern(pattern) => pattern.fmt(f),
            FlowSelector::Flow(flow) => flow.fmt(f),
        }
    }
}

impl Serialize for FlowSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FlowSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_text_that_it_prints() {
        for text in [
            "any",
            "any vlan 0",
            "udp",
            "protocol 47",
            "net 10.0.0.0/8",
            "tcp net 10.0.0.0/8 port 8000-8999",
            "tcp host 10.0.0.1 port 80 and net 10.0.0.0/8 vlan 7",
            "net fe80::/10 and host fe80::1",
            "port 0-80",
            "net 0.0.0.0/0",
            "udp net 10.0.0.0/8 and port 53",
        ] {
            let parsed: FlowPattern = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = parsed.to_string();
            assert_eq!(
                again.parse::<FlowPattern>().unwrap(),
                parsed,
                "{text}: {again}"
            );
            let selector = FlowSelector::Pattern(parsed);
            assert_eq!(text.parse::<FlowSelector>().unwrap(), selector, "{text}");
        }
        let canonical = [
            (
                "portrange 1-2 and net 10.0.0.0/8",
                "net 10.0.0.0/8 and port 1-2",
            ),
            ("any net 10.0.0.0/32", "host 10.0.0.0"),
            ("tcp port 1 and port 2", "tcp port 2 and port 1"),
            ("vlan 7", "any vlan 7"),
        ];
        for (text, printed) in canonical {
            assert_eq!(text.parse::<FlowPattern>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "there is no protocol"),
            ("tpc port 80", "\"tpc\" is no protocol"),
            ("tcp net 10.0.0.0", "\"10.0.0.0\" is no network"),
            ("tcp net 10.0.0.1/8", "the network is 10.0.0.0/8"),
            ("net 10.0.0.0/33", "an address of this kind has 32 bits"),
            ("host 10.0.0.0/8", "is no network"),
            ("tcp port", "\"port\" needs a value"),
            ("tcp port 99999", "\"99999\" is no number of a port"),
            ("tcp port 9-1", "there are no ports from 9 to 1"),
            ("icmp port 80", "protocol 1 has no ports"),
            ("net 10.0.0.0/8 and net fe80::/10", "different IP versions"),
            (
                "net 10.0.0.0/8 net 10.0.0.0/8",
                "\"net\" belongs to no pattern",
            ),
            ("tcp and port 1", "\"and\" belongs to no pattern"),
            ("tcp port 1 and", "\"and\" belongs to no pattern"),
            (
                "port 1 and port 2 and port 3",
                "\"and\" belongs to no pattern",
            ),
            ("tcp vlan 4096", "there is no VLAN 4096"),
            ("any or any", "\"or\" belongs to no pattern"),
        ] {
            let told = text.parse::<FlowPattern>().unwrap_err().to_string();
            assert!(told.contains(reason), "{text}: {told}");
        }
    }

    #[test]
    fn a_text_with_an_address_behind_the_protocol_is_a_flow() {
        for text in [
            "tcp 10.0.0.1:80 10.0.0.2:5000",
            "protocol 47 10.0.0.1 10.0.0.2 vlan 7",
        ] {
            let flow = FlowSelector::Flow(text.parse().unwrap());
            assert_eq!(text.parse::<FlowSelector>().unwrap(), flow);
        }
        let half = "tcp 10.0.0.1:80".parse::<FlowSelector>().unwrap_err();
        assert!(half.to_string().contains("no second end"), "{half}");
    }
}
