// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of AF_XDP share: opening inside a namespace, reading all there is, frames.

use std::sync::Arc;

use ringtap_capture::xdp::{XdpError, XdpOptions, XdpSource};
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Slot;
use ringtap_pool::reader::Next;
use ringtap_pool::source::{Counts, Source};
use ringtap_pool::wake::NoSignal;
use ringtap_testkit::Namespace;

/// All that arrives at `interface`, in a small pool.
pub(crate) fn options(interface: &str) -> XdpOptions {
    XdpOptions {
        pool_bytes: 8 << 20,
        ..XdpOptions::new(interface)
    }
}

/// Opens inside `net`.
pub(crate) fn try_open(net: &Namespace, options: &XdpOptions) -> Result<XdpSource, XdpError> {
    net.enter(|| XdpSource::open(options))
}

/// Opens inside `net`, or fails the test.
pub(crate) fn open(net: &Namespace, options: &XdpOptions) -> XdpSource {
    try_open(net, options).unwrap_or_else(|error| panic!("{error}"))
}

/// One captured packet.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) slot: Slot,
    pub(crate) data: Vec<u8>,
    /// Where it lies in its chunk.
    pub(crate) payload: usize,
}

/// Stops the source; gives what was captured, and the final counters.
pub(crate) fn finish(mut source: XdpSource) -> (Vec<Captured>, Counts) {
    source.stop();
    let mut distributor = Distributor::new(source.pool(), source.take_lanes(), Arc::new(NoSignal));
    let all = ReaderOptions {
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let (_, mut reader) = distributor.add_reader(&all).unwrap();
    let mut captured = Vec::new();
    loop {
        let moved = distributor.step().unwrap();
        let before = captured.len();
        while let Next::Batch(batch) = reader.next().unwrap() {
            for packet in batch.packets() {
                let packet = packet.unwrap();
                captured.push(Captured {
                    slot: packet.slot(),
                    data: packet.data.to_vec(),
                    payload: usize::from(packet.slot().payload) * 8,
                });
            }
        }
        if !moved && captured.len() == before {
            return (captured, source.counts());
        }
    }
}

/// The bytes of all captured packets of the tests' own type.
pub(crate) fn own(captured: &[Captured]) -> Vec<Vec<u8>> {
    let is_own = |packet: &&Captured| {
        packet
            .data
            .windows(2)
            .take(40)
            .any(|two| two == [0x88, 0xb5])
    };
    captured
        .iter()
        .filter(is_own)
        .map(|packet| packet.data.clone())
        .collect()
}

/// A frame of `length` bytes, of the experimental type, whose bytes follow from `number`.
pub(crate) fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, number];
    bytes.extend((15..length).map(|at| (at * 7).to_le_bytes()[0] ^ number));
    bytes.truncate(length);
    bytes
}
