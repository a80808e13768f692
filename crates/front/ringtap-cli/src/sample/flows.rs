// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flows of the sample.
#![forbid(unsafe_code)]

use anyhow::Result;
use etherparse::{ArpOperation, TcpHeader};
use ringtap_file::Direction;

use super::frames::{Frame, Host, Path, Version, host};

/// All frames, in the order of their times.
pub(super) fn all() -> Result<Vec<Frame>> {
    let (laptop, router, server) = (host(10), host(1), host(80));
    let path = |to: Host, version, vlans: &'static [u16]| Path {
        from: laptop,
        to,
        version,
        vlans,
    };
    let mut sample = Sample(Vec::new());
    sample.arp(0, path(router, Version::V4, &[]))?;
    sample.ping(10_000, path(router, Version::V4, &[]))?;
    sample.ping(15_000, path(router, Version::V6, &[]))?;
    sample.dns(100_000, path(router, Version::V4, &[]))?;
    sample.dns(140_000, path(router, Version::V6, &[]))?;
    sample.clock(400_000, path(router, Version::V4, &[]))?;
    sample.web(200_000, path(server, Version::V4, &[]), (49_152, 80), 20)?;
    sample.web(260_000, path(server, Version::V6, &[]), (49_153, 80), 12)?;
    sample.web(
        600_000,
        path(host(22), Version::V4, &[100]),
        (49_154, 8080),
        6,
    )?;
    sample.voice(500_000, path(host(50), Version::V4, &[100]), 50)?;
    sample.voice(510_000, path(host(51), Version::V6, &[200]), 30)?;
    sample.voice(520_000, path(host(52), Version::V4, &[300, 42]), 20)?;
    sample.0.sort_by_key(|frame| frame.after_us);
    Ok(sample.0)
}

struct Sample(Vec<Frame>);

impl Sample {
    fn sent(&mut self, after_us: u64, bytes: Vec<u8>) {
        self.add(after_us, Direction::Outbound, bytes);
    }

    fn received(&mut self, after_us: u64, bytes: Vec<u8>) {
        self.add(after_us, Direction::Inbound, bytes);
    }

    fn add(&mut self, after_us: u64, direction: Direction, bytes: Vec<u8>) {
        self.0.push(Frame {
            after_us,
            direction,
            bytes,
        });
    }

    fn arp(&mut self, at_us: u64, path: Path<'_>) -> Result<()> {
        self.sent(at_us, path.arp(ArpOperation::REQUEST)?);
        self.received(at_us + 320, path.back().arp(ArpOperation::REPLY)?);
        Ok(())
    }

    fn ping(&mut self, at_us: u64, path: Path<'_>) -> Result<()> {
        for sequence in 1..=4 {
            let at_us = at_us + u64::from(sequence) * 250_000;
            self.sent(at_us, path.echo(true, sequence)?);
            self.received(at_us + 410, path.back().echo(false, sequence)?);
        }
        Ok(())
    }

    fn dns(&mut self, at_us: u64, path: Path<'_>) -> Result<()> {
        let (record_type, address) = match path.version {
            Version::V4 => (1, &[192, 0, 2, 80][..]),
            Version::V6 => (28, &host(80).v6.octets()[..]),
        };
        let mut name = b"\x07example\x03org\x00\x00".to_vec();
        name.extend([record_type, 0, 1]);
        let query = [b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0", &name[..]].concat();
        let length = [0, u8::try_from(address.len())?];
        let mut answer = [b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0", &name[..]].concat();
        answer.extend([0xc0, 12, 0, record_type, 0, 1, 0, 0, 14, 16]);
        answer.extend([&length, address].concat());
        self.sent(at_us, path.udp((40_001, 53), &query)?);
        self.received(at_us + 8_000, path.back().udp((53, 40_001), &answer)?);
        Ok(())
    }

    fn clock(&mut self, at_us: u64, path: Path<'_>) -> Result<()> {
        let mut message = [0; 48];
        message[0] = 0x23;
        self.sent(at_us, path.udp((123, 123), &message)?);
        message[0] = 0x24;
        message[1] = 2;
        self.received(at_us + 900, path.back().udp((123, 123), &message)?);
        Ok(())
    }

    /// A TCP connection: handshake, request, `segments` of the answer, close.
    fn web(&mut self, at_us: u64, path: Path<'_>, ports: (u16, u16), segments: u32) -> Result<()> {
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
        const SEGMENT: usize = 1_400;
        let (mut ours, mut theirs) = (1_000, 5_000);
        let (there, back) = (ports, (ports.1, ports.0));
        let syn = TcpHeader {
            syn: true,
            ..header(there, ours, None)
        };
        self.sent(at_us, path.tcp(syn, &[])?);
        ours += 1;
        let accept = TcpHeader {
            syn: true,
            ..header(back, theirs, Some(ours))
        };
        self.received(at_us + 700, path.back().tcp(accept, &[])?);
        theirs += 1;
        self.sent(
            at_us + 720,
            path.tcp(header(there, ours, Some(theirs)), &[])?,
        );
        let request = header(there, ours, Some(theirs));
        self.sent(at_us + 800, path.tcp(request, REQUEST)?);
        ours += u32::try_from(REQUEST.len())?;
        let total = SEGMENT * usize::try_from(segments)?;
        let body = total - ANSWER_HEAD;
        let mut page = format!("HTTP/1.1 200 OK\r\nContent-Length: {body:06}\r\n\r\n").into_bytes();
        page.resize(total, b'.');
        let mut at_us = at_us + 2_000;
        for part in page.chunks(SEGMENT) {
            at_us += 1_100;
            let segment = header(back, theirs, Some(ours));
            self.received(at_us, path.back().tcp(segment, part)?);
            theirs += u32::try_from(part.len())?;
            self.sent(
                at_us + 40,
                path.tcp(header(there, ours, Some(theirs)), &[])?,
            );
        }
        let end = |header| TcpHeader {
            fin: true,
            ..header
        };
        self.sent(
            at_us + 500,
            path.tcp(end(header(there, ours, Some(theirs))), &[])?,
        );
        let last = end(header(back, theirs, Some(ours + 1)));
        self.received(at_us + 1_200, path.back().tcp(last, &[])?);
        let farewell = header(there, ours + 1, Some(theirs + 1));
        self.sent(at_us + 1_230, path.tcp(farewell, &[])?);
        Ok(())
    }

    /// Small packets at an even pace in one direction, as in a telephone call.
    fn voice(&mut self, at_us: u64, path: Path<'_>, packets: u16) -> Result<()> {
        for number in 0..packets {
            let mut message = vec![0x80, 0];
            message.extend(number.to_be_bytes());
            message.extend((u32::from(number) * 160).to_be_bytes());
            message.extend([0, 0, 0, 1]);
            message.resize(172, 0xd5);
            let at_us = at_us + u64::from(number) * 20_000;
            self.sent(at_us, path.udp((16_384, 16_386), &message)?);
        }
        Ok(())
    }
}

/// Bytes of the answer's head.
const ANSWER_HEAD: usize = "HTTP/1.1 200 OK\r\nContent-Length: 000000\r\n\r\n".len();

fn header(ports: (u16, u16), sequence: u32, acknowledged: Option<u32>) -> TcpHeader {
    TcpHeader {
        ack: acknowledged.is_some(),
        acknowledgment_number: acknowledged.unwrap_or(0),
        ..TcpHeader::new(ports.0, ports.1, sequence, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_the_same_every_time_and_in_order() {
        let (one, other) = (all().unwrap(), all().unwrap());
        assert!(one.is_sorted_by_key(|frame| frame.after_us));
        assert!(one.iter().zip(&other).all(|(a, b)| a.bytes == b.bytes));
        assert_eq!(one.len(), other.len());
    }
}
