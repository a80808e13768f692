// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocols of collectors, and where collectors listen.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::export::ExportError;

/// Protocol of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// RFC 7011. One record per flow, with both directions.
    Ipfix,
    /// RFC 7011 for collectors that know no biflows: one record per direction.
    IpfixUniflow,
    /// RFC 3954: one record per direction.
    NetflowV9,
}

impl FlowProtocol {
    /// Refuses a collector that this protocol cannot reach.
    pub(in crate::export) fn require_transport(
        self,
        collector: Collector,
    ) -> Result<(), ExportError> {
        match (self, collector.is_tcp()) {
            (FlowProtocol::NetflowV9, true) => Err(ExportError(format!(
                "{collector}: NetFlow v9 has no TCP transport: use udp:// or protocol ipfix"
            ))),
            _ => Ok(()),
        }
    }
}

/// Where a collector listens: `udp://10.0.0.1:4739`, `tcp://[::1]:4739`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// Datagrams.
    Udp(SocketAddr),
    /// A connection that is opened again when it breaks.
    Tcp(SocketAddr),
}

impl FromStr for Collector {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let wrong = || {
            ExportError(format!(
                "\"{text}\" is no collector: expected udp://ADDRESS:PORT or tcp://ADDRESS:PORT, \
                 like udp://10.0.0.1:4739"
            ))
        };
        let (transport, address) = text.split_once("://").ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        match transport {
            "udp" => Ok(Collector::Udp(address)),
            "tcp" => Ok(Collector::Tcp(address)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collector::Udp(address) => write!(f, "udp://{address}"),
            Collector::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Collector {
    pub(in crate::export) fn is_tcp(self) -> bool {
        matches!(self, Collector::Tcp(_))
    }
}
