// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of tunnels: how each is recognised, and where the packet inside begins. [`super`] specifies the rules.
//!
//! Invariants
//! - No byte outside the captured bytes is read.
//! - A packet is entered at most [`MAX_LEVELS`] times; each header is walked in bounded steps.

#[cfg(test)]
mod tests;

use super::headers::{
    GRE, IPV4, IPV6, Ip, MAX_EXTENSIONS, MAX_TAGS, MPLS, ParsedPacket, UDP, after_labels, ethernet,
    ethertype_of_version, u16_at, u32_at,
};

/// Tunnels around one packet.
pub const MAX_LEVELS: usize = 2;

/// Type of an Ethernet frame in GRE and Geneve.
pub(super) const ETHERNET: u16 = 0x6558;

/// The tunnels whose packets are entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnels {
    /// None: the outer headers count.
    None,
    /// Those that the kernel's programs enter, one level deep.
    InKernel,
    /// All, [`MAX_LEVELS`] deep.
    All,
}

impl From<crate::Headers> for Tunnels {
    fn from(headers: crate::Headers) -> Self {
        match headers {
            crate::Headers::Outer => Tunnels::None,
            crate::Headers::Inner => Tunnels::All,
        }
    }
}

impl Tunnels {
    pub(super) fn levels(self) -> usize {
        match self {
            Tunnels::None => 0,
            Tunnels::InKernel => 1,
            Tunnels::All => MAX_LEVELS,
        }
    }
}

/// How a packet is carried inside another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelKind {
    /// IP directly in IP, of the same version or the other (RFC 2003, 2473, 4213).
    Ip,
    /// GRE (RFC 2784, 2890); the identifier is the key.
    Gre,
    /// NVGRE (RFC 7637); the identifier is the VSID.
    Nvgre,
    /// ERSPAN types I, II and III; the identifier is the session.
    Erspan,
    /// MPLS in UDP, GRE or IP (RFC 7510, 4023); the identifier is the last label.
    Mpls,
    /// L2TPv3 (RFC 3931); the identifier is the session.
    L2tp,
    /// VXLAN (RFC 7348); the identifier is the VNI.
    Vxlan,
    /// Geneve (RFC 8926); the identifier is the VNI.
    Geneve,
    /// GTP-U (3GPP TS 29.281); the identifier is the TEID.
    Gtp,
    /// Teredo (RFC 4380).
    Teredo,
}

impl TunnelKind {
    /// The name in results.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            TunnelKind::Ip => "ip",
            TunnelKind::Gre => "gre",
            TunnelKind::Nvgre => "nvgre",
            TunnelKind::Erspan => "erspan",
            TunnelKind::Mpls => "mpls",
            TunnelKind::L2tp => "l2tpv3",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gtp => "gtp-u",
            TunnelKind::Teredo => "teredo",
        }
    }

    /// All kinds, in the order of their numbers in `bpf/tunnel.h`, which begin at 1.
    const KINDS: [TunnelKind; 10] = [
        TunnelKind::Ip,
        TunnelKind::Gre,
        TunnelKind::Nvgre,
        TunnelKind::Erspan,
        TunnelKind::Mpls,
        TunnelKind::L2tp,
        TunnelKind::Vxlan,
        TunnelKind::Geneve,
        TunnelKind::Gtp,
        TunnelKind::Teredo,
    ];

    /// The kind of a number in `bpf/tunnel.h`; `None` for 0, no tunnel, and others.
    #[must_use]
    pub fn from_kernel(number: u8) -> Option<Self> {
        TunnelKind::KINDS
            .get(usize::from(number).checked_sub(1)?)
            .copied()
    }

    /// The number in `bpf/tunnel.h`.
    #[must_use]
    pub fn to_kernel(self) -> u8 {
        let at = TunnelKind::KINDS.iter().position(|kind| *kind == self);
        at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
    }

    /// True if each end chooses the identifiers of the packets to it, so that both directions of a connection have
    /// different ones.
    #[must_use]
    pub fn has_identifier_of_receiver(self) -> bool {
        matches!(self, TunnelKind::Mpls | TunnelKind::L2tp | TunnelKind::Gtp)
    }
}

/// A tunnel around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelHeader<'a> {
    /// How the packet is carried.
    pub kind: TunnelKind,
    /// Number that the header has to tell tunnels apart.
    pub identifier: Option<u32>,
    /// Address of the end that sent the packet, 4 or 16 bytes.
    pub source: &'a [u8],
    /// Address of the end that receives it.
    pub destination: &'a [u8],
    /// Protocol that the outer IP header names, and its destination port.
    pub carrier: (u8, u16),
    /// Outermost VLAN number of the frame inside; 0 without a tag.
    pub vlan: u16,
}

/// Condition under which an IP packet carries a tunnel.
enum Carrier {
    Protocol(u8),
    /// UDP to this port.
    Port(u16),
    /// UDP from or to this port.
    EitherPort(u16),
}

/// Header of a tunnel.
struct Opened {
    kind: TunnelKind,
    identifier: Option<u32>,
    /// Type of the packet inside, and where it begins behind the IP or UDP header.
    ethertype: u16,
    at: usize,
}

struct TunnelRow {
    carrier: Carrier,
    open: fn(&[u8]) -> Option<Opened>,
    /// `bpf/tunnel.h` enters it, too. The others need more instructions than their use is worth there.
    in_kernel: bool,
}

const fn row(carrier: Carrier, open: fn(&[u8]) -> Option<Opened>, in_kernel: bool) -> TunnelRow {
    TunnelRow {
        carrier,
        open,
        in_kernel,
    }
}

/// All tunnels.
const TABLE: [TunnelRow; 11] = [
    row(Carrier::Port(4789), vxlan, true),
    row(Carrier::Port(6081), geneve, true),
    row(Carrier::Port(2152), gtp, true),
    row(Carrier::Protocol(GRE), gre, true),
    row(Carrier::Protocol(4), ip4, true),
    row(Carrier::Protocol(41), ip6, true),
    row(Carrier::Port(6635), mpls, true),
    row(Carrier::Protocol(137), mpls, false),
    row(Carrier::Protocol(115), l2tp, false),
    row(Carrier::EitherPort(1701), l2tp_in_udp, false),
    row(Carrier::EitherPort(3544), teredo, false),
];

/// The packet inside a tunnel's packet; `None` if `outer` is no tunnel's, or what is inside is neither Ethernet nor IP.
pub(super) fn enter<'a>(outer: &Ip<'a>, tunnels: Tunnels) -> Option<ParsedPacket<'a>> {
    // Most packets leave here.
    if outer.fragment.is_some() || matches!(outer.protocol, 1 | 6 | 58) {
        return None;
    }
    let row = TABLE.iter().find(|row| row.carries(outer))?;
    if tunnels == Tunnels::InKernel && !row.in_kernel {
        return None;
    }
    let payload = match outer.protocol {
        UDP => outer.payload.get(8..)?,
        _ => outer.payload,
    };
    let opened = (row.open)(payload)?;
    let inside = payload.get(opened.at..)?;
    let inner = match opened.ethertype {
        ETHERNET => ethernet(inside),
        kind => {
            let ip = super::headers::ip(inside, kind, [0; MAX_TAGS]);
            ip.map_or(ParsedPacket::TooShort, ParsedPacket::Ip)
        }
    };
    match inner {
        ParsedPacket::Ip(ip) => Some(ParsedPacket::Ip(within(outer, ip, &opened))),
        ParsedPacket::Ethernet { .. } => Some(inner),
        ParsedPacket::TooShort => None,
    }
}

/// The inner packet with the tunnels around it.
fn within<'a>(outer: &Ip<'a>, inner: Ip<'a>, opened: &Opened) -> Ip<'a> {
    let header = TunnelHeader {
        kind: opened.kind,
        identifier: opened.identifier,
        source: outer.source,
        destination: outer.destination,
        carrier: (outer.protocol, outer.ports.1),
        vlan: inner.vlans[0],
    };
    let [first, _] = outer.tunnels;
    Ip {
        vlans: outer.vlans,
        tunnels: match first {
            None => [Some(header), None],
            Some(first) => [Some(first), Some(header)],
        },
        ..inner
    }
}

impl TunnelRow {
    fn carries(&self, outer: &Ip<'_>) -> bool {
        let (from, to) = outer.ports;
        match self.carrier {
            Carrier::Protocol(protocol) => outer.protocol == protocol,
            Carrier::Port(port) => outer.protocol == UDP && to == port,
            Carrier::EitherPort(port) => outer.protocol == UDP && (to == port || from == port),
        }
    }
}

fn ip4(_: &[u8]) -> Option<Opened> {
    ip_in_ip(IPV4)
}

fn ip6(_: &[u8]) -> Option<Opened> {
    ip_in_ip(IPV6)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "as the other functions of the table"
)]
fn ip_in_ip(ethertype: u16) -> Option<Opened> {
    Some(Opened {
        kind: TunnelKind::Ip,
        identifier: None,
        ethertype,
        at: 0,
    })
}

fn vxlan(data: &[u8]) -> Option<Opened> {
    let has_identifier = data.first()? & 0x08 != 0;
    let identifier = u32_at(data, 4)? >> 8;
    has_identifier.then_some(Opened {
        kind: TunnelKind::Vxlan,
        identifier: Some(identifier),
        ethertype: ETHERNET,
        at: 8,
    })
}

fn geneve(data: &[u8]) -> Option<Opened> {
    let head: &[u8; 8] = data.first_chunk()?;
    // Version 0, no control message.
    let is_data = head[0] >> 6 == 0 && head[1] & 0x80 == 0;
    is_data.then_some(Opened {
        kind: TunnelKind::Geneve,
        identifier: Some(u32_at(data, 4)? >> 8),
        ethertype: u16_at(data, 2)?,
        at: 8 + 4 * usize::from(head[0] & 0x3f),
    })
}

fn gre(data: &[u8]) -> Option<Opened> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    let (flags, ethertype) = (u16_at(data, 0)?, u16_at(data, 2)?);
    if flags & 0x4007 != 0 {
        return None;
    }
    let options = [CHECKSUM, KEY, SEQUENCE]
        .iter()
        .filter(|&&bit| flags & bit != 0);
    let at = 4 + 4 * options.count();
    let key_at = if flags & CHECKSUM != 0 { 8 } else { 4 };
    let key = match flags & KEY {
        0 => None,
        _ => Some(u32_at(data, key_at)?),
    };
    let is_nvgre = |key: &u32| flags == KEY && (0x1000..0xff_ffff).contains(&(key >> 8));
    let (kind, identifier) = match (ethertype, key.filter(is_nvgre)) {
        (ETHERNET, Some(key)) => (TunnelKind::Nvgre, Some(key >> 8)),
        _ => (TunnelKind::Gre, key),
    };
    let opened = Opened {
        kind,
        identifier,
        ethertype,
        at,
    };
    let rest = data.get(at..)?;
    match ethertype {
        0x88be if flags & SEQUENCE == 0 => Some(Opened {
            kind: TunnelKind::Erspan,
            ethertype: ETHERNET,
            ..opened
        }),
        0x88be | 0x22eb => erspan(rest, at),
        kind if MPLS.contains(&kind) => {
            let inner = mpls(rest)?;
            Some(Opened {
                at: at + inner.at,
                ..inner
            })
        }
        _ => Some(opened),
    }
}

/// ERSPAN types II and III at this offset behind the IP header.
fn erspan(data: &[u8], at: usize) -> Option<Opened> {
    let (version, session) = (data.first()? >> 4, u16_at(data, 2)? & 0x3ff);
    let (ethertype, length) = match version {
        1 => (ETHERNET, 8),
        2 => {
            let head: &[u8; 12] = data.first_chunk()?;
            let length = if head[11] & 1 != 0 { 20 } else { 12 };
            match head[10] >> 2 & 0x1f {
                0 => (ETHERNET, length),
                2 => (ethertype_of_version(data.get(length..)?)?, length),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(Opened {
        kind: TunnelKind::Erspan,
        identifier: Some(session.into()),
        ethertype,
        at: at + length,
    })
}

fn mpls(data: &[u8]) -> Option<Opened> {
    let (ethertype, at) = after_labels(data)?;
    Some(Opened {
        kind: TunnelKind::Mpls,
        identifier: Some(u32_at(data, at - 4)? >> 12),
        ethertype,
        at,
    })
}

fn gtp(data: &[u8]) -> Option<Opened> {
    let head: &[u8; 8] = data.first_chunk()?;
    if head[0] & 0xf0 != 0x30 || head[1] != 255 {
        return None;
    }
    let mut rest = &data[8..];
    if head[0] & 0x07 != 0 {
        let options: &[u8; 4] = rest.first_chunk()?;
        rest = &rest[4..];
        if head[0] & 0x04 != 0 {
            rest = after_gtp_extensions(options[3], rest)?;
        }
    }
    Some(Opened {
        kind: TunnelKind::Gtp,
        identifier: Some(u32_at(data, 4)?),
        ethertype: ethertype_of_version(rest)?,
        at: data.len() - rest.len(),
    })
}

fn after_gtp_extensions(first: u8, mut data: &[u8]) -> Option<&[u8]> {
    let mut next = first;
    for _ in 0..MAX_EXTENSIONS {
        if next == 0 {
            return Some(data);
        }
        let length = 4 * usize::from(*data.first()?);
        next = *data.get(..length)?.last()?;
        data = &data[length..];
    }
    (next == 0).then_some(data)
}

/// Over IP. The lengths of the cookie and of the sublayer behind the session are agreed upon elsewhere: the first
/// possible ones count behind which an Ethernet frame with IP lies, Linux's usual ones first.
fn l2tp(data: &[u8]) -> Option<Opened> {
    let session = u32_at(data, 0).filter(|session| *session != 0)?;
    let leads_to_ip = |at: &usize| {
        let inside = data.get(*at..).unwrap_or_default();
        matches!(ethernet(inside), ParsedPacket::Ip(_))
    };
    let at = [8, 4, 12, 16].into_iter().find(leads_to_ip)?;
    Some(Opened {
        kind: TunnelKind::L2tp,
        identifier: Some(session),
        ethertype: ETHERNET,
        at,
    })
}

fn l2tp_in_udp(data: &[u8]) -> Option<Opened> {
    // A data message of version 3.
    let is_data = u16_at(data, 0)? & 0x800f == 3;
    let inner = l2tp(data.get(4..)?)?;
    is_data.then_some(Opened {
        at: 4 + inner.at,
        ..inner
    })
}

fn teredo(data: &[u8]) -> Option<Opened> {
    /// Of Teredo's addresses, of which one end has one.
    const PREFIX: [u8; 4] = [0x20, 1, 0, 0];
    let mut at = 0;
    if let [0, 1, client, value, ..] = *data {
        at += 13 + usize::from(client) + usize::from(value);
    }
    if u16_at(data, at)? == 0 {
        at += 8;
    }
    let ends = [at + 8, at + 24].map(|end| data.get(end..)?.first_chunk());
    ends.contains(&Some(&PREFIX)).then_some(Opened {
        kind: TunnelKind::Teredo,
        identifier: None,
        ethertype: IPV6,
        at,
    })
}
