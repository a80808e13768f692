// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes capture files byte by byte, in either byte order.

use super::super::ByteOrder;

pub(super) struct Made {
    pub(super) order: ByteOrder,
    pub(super) bytes: Vec<u8>,
}

impl Made {
    pub(super) fn new(order: ByteOrder) -> Self {
        Self {
            order,
            bytes: Vec::new(),
        }
    }

    /// A number, given in network order.
    fn number<const N: usize>(&mut self, mut bytes: [u8; N]) -> &mut Self {
        if matches!(self.order, ByteOrder::Little) {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.number(value.to_be_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.number(value.to_be_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.number(value.to_be_bytes())
    }

    /// Words of 32 bits.
    pub(super) fn words(&mut self, values: &[u32]) -> &mut Self {
        for value in values {
            self.u32(*value);
        }
        self
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn pad(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn option(&mut self, code: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len()).unwrap();
        self.u16(code).u16(length).raw(value).pad()
    }

    pub(super) fn block(&mut self, kind: u32, body: impl FnOnce(&mut Made)) -> &mut Self {
        let mut inner = Made::new(self.order);
        body(&mut inner);
        inner.pad();
        let length = u32::try_from(inner.bytes.len()).unwrap() + 12;
        self.words(&[kind, length]).raw(&inner.bytes).u32(length)
    }

    pub(super) fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    pub(super) fn interface(
        &mut self,
        link_type: u16,
        snap: u32,
        options: impl FnOnce(&mut Made),
    ) -> &mut Self {
        self.block(1, |b| {
            b.u16(link_type).u16(0).u32(snap);
            options(b);
        })
    }

    pub(super) fn packet(
        &mut self,
        interface: u32,
        ticks: u64,
        wire: u32,
        data: &[u8],
    ) -> &mut Self {
        self.packet_with(interface, ticks, wire, data, |_| {})
    }

    pub(super) fn packet_with(
        &mut self,
        interface: u32,
        ticks: u64,
        wire: u32,
        data: &[u8],
        options: impl FnOnce(&mut Made),
    ) -> &mut Self {
        let high = u32::try_from(ticks >> 32).unwrap();
        let low = u32::try_from(ticks & 0xffff_ffff).unwrap();
        let captured = u32::try_from(data.len()).unwrap();
        self.block(6, |b| {
            b.words(&[interface, high, low, captured, wire])
                .raw(data)
                .pad();
            options(b);
        })
    }

    pub(super) fn pcap_header(&mut self, magic: u32, link_type: u32) -> &mut Self {
        self.u32(magic).u16(2).u16(4);
        self.words(&[0, 0, 65535, link_type])
    }

    pub(super) fn pcap_packet(
        &mut self,
        s: u32,
        fraction: u32,
        wire: u32,
        data: &[u8],
    ) -> &mut Self {
        let captured = u32::try_from(data.len()).unwrap();
        self.words(&[s, fraction, captured, wire]).raw(data)
    }
}

pub(super) const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
