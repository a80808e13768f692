// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random packets of all kinds that filters and hashes read, from a seed.

/// Generates packets; equal for equal seeds.
pub(crate) struct Maker(u64);

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Maker(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    /// A port, often one of few, so that some are equal and some belong to tunnels.
    fn port(&mut self) -> [u8; 2] {
        match self.below(3) {
            0 => self
                .one_of(&[
                    53_u16, 53, 80, 80, 80, 443, 1701, 2152, 3544, 4789, 6081, 6635,
                ])
                .to_be_bytes(),
            1 => [0x10, self.byte() & 3],
            _ => [self.byte(), self.byte()],
        }
    }

    /// A whole Ethernet frame, often valid, sometimes truncated or with a changed byte.
    pub(crate) fn packet(&mut self) -> Vec<u8> {
        let mut bytes = self.ethernet(0);
        if self.below(4) == 0 {
            let at = usize::try_from(self.below(bytes.len() as u64)).unwrap();
            bytes[at] = self.byte();
        }
        if self.below(4) == 0 {
            let length = self.below(bytes.len() as u64);
            bytes.truncate(usize::try_from(length).unwrap());
        }
        let short = bytes.len().max(14);
        bytes.resize(short, 0);
        // The interface's maximum.
        bytes.truncate(1514);
        bytes
    }

    fn ethernet(&mut self, depth: u32) -> Vec<u8> {
        let mut bytes = vec![
            2,
            0,
            0,
            0,
            0,
            self.byte() & 3,
            2,
            0,
            0,
            0,
            0,
            self.byte() & 3,
        ];
        for _ in 0..self.one_of(&[0, 0, 0, 0, 1, 2, 3]) {
            bytes.extend(self.one_of(&[[0x81, 0], [0x88, 0xa8], [0x91, 0]]));
            bytes.extend([self.byte() & 0xe1, self.byte() & 7]);
        }
        match self.below(10) {
            0 => {
                bytes.extend([0x88, 0xb5]);
                bytes.extend(self.bytes(30));
            }
            8 => {
                bytes.extend(self.one_of(&[[0x88, 0x47], [0x88, 0x48]]));
                bytes.extend([0, 1, 0, 64].repeat(self.one_of(&[0, 0, 1, 3, 4])));
                bytes.extend([0, 2, self.one_of(&[1, 1, 0xff, 0]), 64]);
                bytes.extend(self.ip(depth).1);
            }
            9 => {
                let (protocol, ip) = self.ip(depth);
                bytes.extend([0x88, 0x64, self.one_of(&[0x11, 0x11, 0x12]), 0, 0, 5, 0, 30]);
                bytes.extend([self.one_of(&[0, 0, 0xc0]), protocol]);
                bytes.extend(ip);
            }
            1..=4 => {
                bytes.extend([8, 0]);
                bytes.extend(self.ipv4(depth));
            }
            _ => {
                bytes.extend([0x86, 0xdd]);
                bytes.extend(self.ipv6(depth));
            }
        }
        bytes
    }

    /// An IP packet, and its protocol of PPP.
    fn ip(&mut self, depth: u32) -> (u8, Vec<u8>) {
        match self.below(3) {
            0 => (0x57, self.ipv6(depth)),
            _ => (0x21, self.ipv4(depth)),
        }
    }

    fn ipv4(&mut self, depth: u32) -> Vec<u8> {
        let words = self.one_of(&[5, 5, 5, 6, 15, 4]);
        let (protocol, payload) = self.transport(depth);
        let fragment = self.one_of(&[[0, 0], [0x40, 0], [0, 0], [0x20, 0], [0x20, 9], [0, 9]]);
        let mut bytes = vec![0x40 | words, 0, 0, 0, 1, 2, fragment[0], fragment[1]];
        bytes.extend([
            64,
            protocol,
            0,
            0,
            10,
            0,
            0,
            self.byte() & 3,
            10,
            0,
            0,
            self.byte() & 3,
        ]);
        bytes.extend(self.bytes(usize::from(words.max(5) - 5) * 4));
        bytes.extend(payload);
        let total = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        bytes[2..4].copy_from_slice(&total);
        bytes
    }

    fn ipv6(&mut self, depth: u32) -> Vec<u8> {
        let (mut protocol, mut payload) = self.transport(depth);
        for _ in 0..self.one_of(&[0, 0, 0, 1, 2, 4, 5]) {
            let kind = self.one_of(&[0, 43, 60, 60, 44, 51]);
            let units = if kind == 44 {
                0
            } else {
                self.one_of(&[0, 0, 1, 3])
            };
            let mut header = vec![protocol, units];
            header.extend(self.bytes(6 + 8 * usize::from(units)));
            header.extend(payload);
            (protocol, payload) = (kind, header);
        }
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
        for _ in 0..2 {
            bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.push(self.byte() & 3);
        }
        bytes.extend(payload);
        bytes
    }

    fn transport(&mut self, depth: u32) -> (u8, Vec<u8>) {
        let mut bytes = [self.port(), self.port()].concat();
        match self.below(if depth == 0 { 22 } else { 5 }) {
            0 => (1, self.bytes(12)),
            1 => (132, [bytes, self.bytes(12)].concat()),
            2 | 3 | 20 | 21 => (6, [bytes, self.bytes(20)].concat()),
            4 | 5 => (17, [bytes, self.bytes(12)].concat()),
            6 | 7 | 12 | 13 => (47, self.gre()),
            8 | 9 => {
                bytes[2..4].copy_from_slice(&4789_u16.to_be_bytes());
                bytes.extend(self.bytes(4));
                bytes.extend([self.one_of(&[8, 8, 8, 0, 0xff]), 0, 0, 0, 1, 2, 3, 0]);
                (17, [bytes, self.ethernet(1)].concat())
            }
            14 => (4, self.ipv4(1)),
            15 => (41, self.ipv6(1)),
            16 => (self.one_of(&[4, 41, 115, 137]), self.ip(1).1),
            17 | 18 => {
                bytes[2..4].copy_from_slice(&6081_u16.to_be_bytes());
                bytes.extend(self.bytes(4));
                (17, [bytes, self.geneve()].concat())
            }
            19 => {
                bytes[2..4].copy_from_slice(&6635_u16.to_be_bytes());
                bytes.extend(self.bytes(4));
                (17, [bytes, self.labels()].concat())
            }
            _ => {
                bytes[2..4].copy_from_slice(&2152_u16.to_be_bytes());
                bytes.extend(self.bytes(4));
                (17, [bytes, self.gtp()].concat())
            }
        }
    }

    fn gre(&mut self) -> Vec<u8> {
        let flags = self.one_of(&[0_u16, 0, 0x8000, 0x2000, 0x3000, 0xb000, 0x4000, 1]);
        let kinds = [
            0x6558_u16, 0x0800, 0x86dd, 0x1234, 0x88be, 0x22eb, 0x8847, 0x8864,
        ];
        let kind = self.one_of(&kinds);
        let mut bytes = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
        let options = [0x8000, 0x2000, 0x1000]
            .iter()
            .filter(|bit| flags & **bit != 0);
        bytes.extend(self.bytes(4 * options.count()));
        bytes.extend(match kind {
            0x6558 => self.ethernet(1),
            0x86dd => self.ipv6(1),
            0x88be if flags & 0x1000 == 0 => self.ethernet(1),
            0x88be | 0x22eb => self.erspan(),
            0x8847 => self.labels(),
            _ => self.ipv4(1),
        });
        bytes
    }

    fn erspan(&mut self) -> Vec<u8> {
        let version = self.one_of(&[0x10, 0x10, 0x20, 0x20, 0x30]);
        let mut bytes = vec![version, 1, self.byte(), self.byte(), 0, 0, 0, 1];
        let (mut has_more, mut frame) = (0, 0);
        if version == 0x20 {
            (has_more, frame) = (self.one_of(&[0, 1]), self.one_of(&[0, 0, 2, 3]));
            bytes.extend([0, 0, frame << 2, has_more]);
        }
        bytes.extend(vec![0; 8 * usize::from(has_more)]);
        let inside = if frame == 2 {
            self.ip(1).1
        } else {
            self.ethernet(1)
        };
        [bytes, inside].concat()
    }

    fn geneve(&mut self) -> Vec<u8> {
        let words = self.one_of(&[0, 0, 1, 3]);
        let kind = self
            .one_of(&[0x6558_u16, 0x6558, 0x0800, 0x86dd, 0x8847])
            .to_be_bytes();
        let mut bytes = vec![
            self.one_of(&[0, 0, 0, 0x40]) | words,
            self.one_of(&[0, 0, 0x40, 0x80]),
        ];
        bytes.extend(kind);
        bytes.extend([1, 2, 3, 0]);
        bytes.extend(self.bytes(4 * usize::from(words)));
        bytes.extend(match kind {
            [0x65, 0x58] => self.ethernet(1),
            [0x86, 0xdd] => self.ipv6(1),
            [0x88, 0x47] => self.labels(),
            _ => self.ipv4(1),
        });
        bytes
    }

    /// MPLS labels and an IP packet.
    fn labels(&mut self) -> Vec<u8> {
        let mut bytes = [0, 1, 0, 64].repeat(self.one_of(&[0, 0, 1, 3, 4]));
        bytes.extend([0, 2, self.one_of(&[1, 1, 0xff, 0]), 64]);
        bytes.extend(self.ip(1).1);
        bytes
    }

    fn gtp(&mut self) -> Vec<u8> {
        let flags = self.one_of(&[0x30, 0x30, 0x32, 0x34, 0x36, 0x20]);
        let mut bytes = vec![flags, self.one_of(&[255, 255, 255, 1]), 0, 0, 0, 0, 0, 1];
        if flags & 7 != 0 {
            let extensions = self.one_of(&[0, 1, 2, 4, 5]);
            bytes.extend([0, 0, 0, u8::from(extensions > 0)]);
            for left in (0..extensions).rev() {
                let units = self.one_of(&[1, 1, 2, 0]);
                bytes.push(units);
                bytes.extend(vec![0; (usize::from(units) * 4).max(4) - 2]);
                bytes.push(u8::from(left > 0));
            }
        }
        let inner = if self.below(2) == 0 {
            self.ipv4(1)
        } else {
            self.ipv6(1)
        };
        [bytes, inner].concat()
    }

    /// UDP packets of one connection, in both directions.
    pub(crate) fn conversation(&mut self) -> Vec<Vec<u8>> {
        let ends = [(); 2].map(|()| [10, self.byte(), self.byte(), self.byte()]);
        let ports = [(); 2].map(|()| self.port());
        let packet = |from: usize, to: usize| {
            let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
            bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
            bytes.extend([ends[from], ends[to]].concat());
            bytes.extend([ports[from], ports[to]].concat());
            bytes.extend([0, 26, 0, 0]);
            bytes.resize(60, u8::try_from(from).unwrap());
            bytes
        };
        vec![packet(0, 1), packet(1, 0)]
    }
}
