// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a flow: `tcp 10.0.0.1:80 10.0.0.2:5000 vlan 7 in vxlan 42`.
//!
//! Invariants
//! - The text that `Display` prints parses to the same flow.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::flow::{FlowId, FlowKeyError};
use crate::hash::TunnelKind;
use crate::protocol::protocol_number;

/// Words of a key in which a tunnel is: its number, and its kind.
const IDENTIFIER: usize = 10;
const REST: usize = 11;

/// Why a text names no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FlowTextError {
    /// A part is missing.
    #[error(
        "a flow is a protocol and two ends, like `tcp 10.0.0.1:80 10.0.0.2:5000`, then perhaps `vlan 7` or \
         `in vxlan 42`: there is no {missing}"
    )]
    Missing { missing: &'static str },
    /// The first word is no protocol.
    #[error("\"{word}\" is no protocol: expected tcp, udp, sctp, icmp, icmp6 or protocol NUMBER")]
    Protocol { word: String },
    /// A word is no end of a flow.
    #[error(
        "\"{word}\" is no end of a flow: expected an address, with a port like 10.0.0.1:80 or [fe80::1]:80"
    )]
    End { word: String },
    /// A word is no number of this kind.
    #[error("\"{word}\" is no number of a {of}")]
    Number { word: String, of: &'static str },
    /// A word is no tunnel.
    #[error("\"{word}\" is no tunnel: expected {known}")]
    Tunnel { word: String, known: String },
    /// Each direction of the tunnel has a number of its own.
    #[error(
        "the directions of a connection in {tunnel} have different numbers: leave the number out"
    )]
    TunnelNumber { tunnel: &'static str },
    /// A word at the end that means nothing.
    #[error("\"{word}\" belongs to no flow: expected `vlan NUMBER` or `in TUNNEL`")]
    Rest { word: String },
    /// There is no such flow.
    #[error(transparent)]
    Key(#[from] FlowKeyError),
}

impl FromStr for FlowId {
    type Err = FlowTextError;

    fn from_str(text: &str) -> Result<Self, FlowTextError> {
        let mut words = text.split_ascii_whitespace();
        let mut next = |missing| words.next().ok_or(FlowTextError::Missing { missing });
        let protocol = match next("protocol")? {
            "protocol" => number(next("number of a protocol")?, "protocol")?,
            word => named(word)?,
        };
        let ends = [next("first end")?, next("second end")?];
        let mut vlans = [0; 2];
        let mut known_vlans = 0;
        let mut tunnel = None;
        while let Some(word) = words.next() {
            let value = words.next();
            match (word, value) {
                ("vlan", Some(value)) if known_vlans < 2 => {
                    vlans[known_vlans] = number(value, "VLAN")?;
                    known_vlans += 1;
                }
                ("in", Some(value)) if tunnel.is_none() => {
                    tunnel = Some((kind(value)?, words.next()));
                }
                _ => {
                    return Err(FlowTextError::Rest {
                        word: word.to_owned(),
                    });
                }
            }
        }
        let flow = FlowId::new(end(ends[0])?, end(ends[1])?, protocol, vlans)?;
        match tunnel {
            Some((kind, number)) => in_tunnel(&flow, kind, number),
            None => Ok(flow),
        }
    }
}

pub(crate) fn named(word: &str) -> Result<u8, FlowTextError> {
    let unknown = || FlowTextError::Protocol {
        word: word.to_owned(),
    };
    protocol_number(word).ok_or_else(unknown)
}

pub(crate) fn number<T: FromStr>(word: &str, of: &'static str) -> Result<T, FlowTextError> {
    let wrong = |_| FlowTextError::Number {
        word: word.to_owned(),
        of,
    };
    word.parse().map_err(wrong)
}

fn end(word: &str) -> Result<(IpAddr, u16), FlowTextError> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Ok((address, 0));
    }
    let wrong = |_| FlowTextError::End {
        word: word.to_owned(),
    };
    let end = word.parse::<SocketAddr>().map_err(wrong)?;
    Ok((end.ip(), end.port()))
}

/// All kinds of tunnels, by their numbers in the kernel.
fn kinds() -> impl Iterator<Item = TunnelKind> {
    (1..).map_while(TunnelKind::from_kernel)
}

fn kind(word: &str) -> Result<TunnelKind, FlowTextError> {
    let unknown = || FlowTextError::Tunnel {
        word: word.to_owned(),
        known: kinds().map(TunnelKind::word).collect::<Vec<_>>().join(", "),
    };
    kinds().find(|kind| kind.word() == word).ok_or_else(unknown)
}

fn in_tunnel(
    flow: &FlowId,
    kind: TunnelKind,
    given: Option<&str>,
) -> Result<FlowId, FlowTextError> {
    let mut words = flow.to_words();
    if let Some(word) = given {
        let tunnel = kind.word();
        if kind.has_identifier_of_receiver() {
            return Err(FlowTextError::TunnelNumber { tunnel });
        }
        words[IDENTIFIER] = number(word, "tunnel")?;
    }
    words[REST] |= u32::from(kind.to_kernel()) << 16;
    Ok(FlowId::from_words(words))
}

impl Serialize for FlowId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FlowId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<FlowId>().unwrap_err().to_string()
    }

    #[test]
    fn a_flow_is_the_text_that_it_prints() {
        for text in [
            "tcp 10.0.0.1:80 10.0.0.2:5000",
            "udp [fe80::1]:53 [fe80::2]:53 vlan 7 vlan 8",
            "icmp 10.0.0.1 10.0.0.2",
            "protocol 47 10.0.0.1 10.0.0.2",
            "sctp 10.0.0.1:1 10.0.0.2:2 vlan 4095 in vxlan 42",
            "tcp 10.0.0.1:80 10.0.0.2:5000 in gtp-u",
        ] {
            assert_eq!(text.parse::<FlowId>().unwrap().to_string(), text);
        }
        let icmp = "protocol 1 10.0.0.2 10.0.0.1".parse::<FlowId>().unwrap();
        assert_eq!(icmp.to_string(), "icmp 10.0.0.1 10.0.0.2");
    }

    #[test]
    fn a_text_that_is_no_flow_is_refused_with_the_reason() {
        for (text, reason) in [
            ("icmp 10.0.0.1:1 10.0.0.2", "protocol 1 has no ports"),
            ("tcp 10.0.0.1:1 [fe80::1]:2", "different IP versions"),
            (
                "tcp 10.0.0.1:1 10.0.0.2:2 vlan 4096",
                "there is no VLAN 4096",
            ),
            ("tcp 10.0.0.1:1", "there is no second end"),
            ("", "there is no protocol"),
            ("tpc 10.0.0.1:1 10.0.0.2:2", "\"tpc\" is no protocol"),
            (
                "tcp 10.0.0.1:99999 10.0.0.2:2",
                "\"10.0.0.1:99999\" is no end",
            ),
            (
                "tcp 10.0.0.1:1 10.0.0.2:2 vlan x",
                "\"x\" is no number of a VLAN",
            ),
            ("tcp 10.0.0.1:1 10.0.0.2:2 in wire", "expected ip, gre,"),
            (
                "tcp 10.0.0.1:1 10.0.0.2:2 in gtp-u 7",
                "leave the number out",
            ),
            (
                "tcp 10.0.0.1:1 10.0.0.2:2 now",
                "\"now\" belongs to no flow",
            ),
        ] {
            let told = refused(text);
            assert!(told.contains(reason), "{text}: {told}");
        }
    }
}
