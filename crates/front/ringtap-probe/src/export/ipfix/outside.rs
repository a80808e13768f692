// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of the tunnels around a flow, outermost first and before those of the flow (RFC 7011, section 8).
//!
//! IANA's registry has no element for the kind of a tunnel; the protocol and the port of the outer headers name it.
//!
//! Invariants
//! - The addresses of a tunnel are of the flow's IP version: nfdump and nfacctd take others for those of the flow.

use super::octets::{put, put_address};
use crate::record::{FlowRecord, Tunnel, TunnelKind};

/// Elements of one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TunnelTemplate {
    v6: bool,
    identifier: IdentifierElement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentifierElement {
    None,
    /// layer2SegmentId: 1 for VXLAN or 2 for NVGRE in the first byte, the number in the last three.
    Segment,
    /// gtpuTEid, of each direction.
    Teid,
}

const LAYER2_SEGMENT: u16 = 351;
const GTPU_TEID: u16 = 507;

impl TunnelTemplate {
    pub(super) fn new(tunnel: &Tunnel) -> Self {
        TunnelTemplate {
            v6: tunnel.source.is_ipv6(),
            identifier: match tunnel.kind {
                TunnelKind::Vxlan | TunnelKind::Nvgre => IdentifierElement::Segment,
                TunnelKind::Gtp => IdentifierElement::Teid,
                _ => IdentifierElement::None,
            },
        }
    }

    /// A number below 4 for each kind of template of one IP version; 0 for none.
    pub(super) fn number(template: Option<Self>) -> u16 {
        template.map_or(0, |own| 1 + own.identifier as u16)
    }

    /// Elements with their lengths.
    pub(super) fn fields(self) -> impl Iterator<Item = (u16, u16)> {
        let addresses = if self.v6 {
            [(27, 16), (28, 16)]
        } else {
            [(8, 4), (12, 4)]
        };
        let identifier = match self.identifier {
            IdentifierElement::None => None,
            IdentifierElement::Segment => Some((LAYER2_SEGMENT, 8)),
            IdentifierElement::Teid => Some((GTPU_TEID, 4)),
        };
        let fields = addresses.into_iter().chain([(4, 1), (11, 2)]);
        fields.chain(identifier)
    }

    /// Elements of the reverse direction.
    pub(super) fn reverse_fields(self) -> Option<(u16, u16)> {
        (self.identifier == IdentifierElement::Teid).then_some((GTPU_TEID, 4))
    }

    /// The values of [`TunnelTemplate::fields`].
    pub(super) fn put(self, tunnel: &Tunnel, out: &mut Vec<u8>) {
        put_address(out, tunnel.source);
        put_address(out, tunnel.destination);
        put(out, 1, tunnel.protocol.into());
        put(out, 2, tunnel.port.into());
        let identifier = u64::from(tunnel.identifiers[0].unwrap_or(0));
        match self.identifier {
            IdentifierElement::None => {}
            IdentifierElement::Segment => {
                let network = if tunnel.kind == TunnelKind::Vxlan {
                    1
                } else {
                    2
                };
                put(out, 8, network << 56 | identifier);
            }
            IdentifierElement::Teid => put(out, 4, identifier),
        }
    }

    /// The value of [`TunnelTemplate::reverse_fields`].
    pub(super) fn put_reverse(self, tunnel: &Tunnel, out: &mut Vec<u8>) {
        if self.identifier == IdentifierElement::Teid {
            put(out, 4, tunnel.identifiers[1].unwrap_or(0).into());
        }
    }
}

/// The tunnels of a flow that are exported, as the responder's packets have them if `is_back`.
pub(super) fn tunnels(flow: &FlowRecord, is_back: bool) -> [Option<Tunnel>; 2] {
    let is_v6 = flow.key.source.is_ipv6();
    let tunnels = flow
        .outside
        .as_deref()
        .map_or([None; 2], |outside| outside.tunnels)
        .map(|tunnel| tunnel.filter(|own| own.source.is_ipv6() == is_v6));
    let swapped = |tunnel: Tunnel| Tunnel {
        source: tunnel.destination,
        destination: tunnel.source,
        identifiers: [tunnel.identifiers[1], tunnel.identifiers[0]],
        ..tunnel
    };
    if is_back {
        tunnels.map(|tunnel| tunnel.map(swapped))
    } else {
        tunnels
    }
}
