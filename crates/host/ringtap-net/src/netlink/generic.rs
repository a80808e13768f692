// SPDX-License-Identifier: MIT OR Apache-2.0
//! The XDP features of a driver, over generic netlink (kernel 6.3).

use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable as _, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
    NlasIterator,
};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};

/// Message type of the family that lists all families.
const CONTROL: u16 = 16;
/// Bytes of `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;

/// The XDP features of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    act: u64,
    metadata: u64,
}

impl XdpFeatures {
    /// The bit sets `xdp-features` and `xdp-rx-metadata-features` of the netlink family `netdev`.
    pub fn new(act: u64, metadata: u64) -> Self {
        Self { act, metadata }
    }

    /// The driver gives packets to AF_XDP sockets without a copy.
    pub fn zero_copy(self) -> bool {
        self.act & 8 != 0
    }

    /// Programs also see packets that lie in several buffers.
    pub fn several_buffers(self) -> bool {
        self.act & 32 != 0
    }

    /// The driver runs XDP programs itself.
    pub fn native(self) -> bool {
        self.act & 1 != 0
    }

    /// The driver sends packets that XDP redirects to it.
    pub fn takes_redirected(self) -> bool {
        self.act & 4 != 0
    }

    /// The driver also sends redirected packets that lie in several buffers.
    pub fn takes_redirected_pieces(self) -> bool {
        self.act & 64 != 0
    }

    /// The driver tells a program when the NIC received a packet.
    pub fn tells_stamps(self) -> bool {
        self.metadata & 1 != 0
    }

    /// The driver tells a program which VLAN tag it stripped.
    pub fn tells_vlan(self) -> bool {
        self.metadata & 4 != 0
    }
}

/// The XDP features of an interface's driver; `None` if the kernel does not know (before 6.3).
pub fn xdp_features(interface: u32) -> Option<XdpFeatures> {
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const GET_DEVICE: u8 = 1;
    const INTERFACE: u16 = 1;
    const FEATURES: u16 = 3;
    const RX_METADATA: u16 = 5;
    let socket = super::open(NETLINK_GENERIC).ok()?;
    let name = DefaultNla::new(FAMILY_NAME, b"netdev\0".to_vec());
    let answer = ask(&socket, CONTROL, GET_FAMILY, &name).ok()??;
    let family = u16::from_ne_bytes(answer.find(FAMILY_ID)?);
    let index = DefaultNla::new(INTERFACE, interface.to_ne_bytes().to_vec());
    let answer = ask(&socket, family, GET_DEVICE, &index).ok()??;
    let number = |kind| answer.find(kind).map(u64::from_ne_bytes);
    Some(XdpFeatures {
        act: number(FEATURES)?,
        metadata: number(RX_METADATA).unwrap_or(0),
    })
}

fn ask(
    socket: &Socket,
    family: u16,
    command: u8,
    attribute: &DefaultNla,
) -> io::Result<Option<GenericMessage>> {
    let mut body = vec![0; HEADER + attribute.buffer_len()];
    body[..2].copy_from_slice(&[command, 1]);
    attribute.emit(&mut body[HEADER..]);
    super::request(socket, GenericMessage { family, body }, 0, Some)
}

/// A message of generic netlink.
#[derive(Debug)]
struct GenericMessage {
    family: u16,
    /// Header and attributes.
    body: Vec<u8>,
}

impl GenericMessage {
    /// The value of the first attribute of this kind, if it has `N` bytes.
    fn find<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        let attributes = self.body.get(HEADER..)?;
        let mut known = NlasIterator::new(attributes).map_while(Result::ok);
        known
            .find(|one| one.kind() == kind)?
            .value()
            .try_into()
            .ok()
    }
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for GenericMessage {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(GenericMessage {
            family: header.message_type,
            body: payload.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: &[u8]) -> GenericMessage {
        GenericMessage {
            family: CONTROL,
            body: [&[0; HEADER], attributes].concat(),
        }
    }

    #[test]
    fn an_attribute_is_found_behind_an_unaligned_one() {
        let attributes = [
            DefaultNla::new(1, b"abcde".to_vec()),
            DefaultNla::new(7, 9_u64.to_ne_bytes().to_vec()),
        ];
        let mut bytes = vec![0; attributes.as_slice().buffer_len()];
        attributes.as_slice().emit(&mut bytes);
        let message = message(&bytes);
        assert_eq!(message.find(7).map(u64::from_ne_bytes), Some(9));
        assert_eq!(message.find::<8>(8), None);
    }

    #[test]
    fn a_cut_or_endless_attribute_ends_the_search() {
        assert_eq!(message(&[0, 0, 1, 0]).find::<0>(1), None);
        assert_eq!(message(&[200, 0, 1, 0, 1]).find::<1>(1), None);
        assert_eq!(message(&[]).find::<0>(1), None);
    }
}
