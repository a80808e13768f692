// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets in one buffer, in the order of sending.

/// Packets in the order of sending.
#[derive(Debug, Default)]
pub(super) struct PacketBatch {
    bytes: Vec<u8>,
    /// End of each packet in `bytes`.
    ends: Vec<usize>,
}

impl PacketBatch {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn push(&mut self, packet: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(packet));
    }

    /// Adds the bytes that `write` appends as one packet.
    pub(super) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.bytes[*start..*end])
    }

    pub(super) fn longest(&self) -> usize {
        self.packets().map(<[u8]>::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_as_they_went_in() {
        let mut batch = PacketBatch::default();
        let packets: [&[u8]; 4] = [b"one", b"", b"three", b"4"];
        for packet in packets {
            batch.push(packet);
        }
        assert_eq!(batch.packets().collect::<Vec<_>>(), packets);
        assert_eq!((batch.len(), batch.longest()), (4, 5));
        batch.clear();
        assert!(batch.is_empty());
    }
}
