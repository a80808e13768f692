// SPDX-License-Identifier: MIT OR Apache-2.0
//! Postings: the blocks of a segment in which a term occurs.
//!
//! In the file a list of blocks is a count below 255 and the differences of successive numbers as LEB128, or 255, a
//! length in 32 bits and a roaring bitmap in its portable format, whichever is shorter.
//!
//! Invariant: reading takes memory in proportion to the blocks of the segment, whatever the bytes are.

use ringtap_pool::number::to_u32;
use roaring::RoaringBitmap;

/// In place of a count: a bitmap follows.
const BITMAP: u8 = 255;
/// Most blocks of a segment: a bitmap of their numbers has one container, because these have 16 bits.
pub(crate) const MAX_BLOCKS: u32 = 1 << 16;

/// The blocks in which a term occurs, while a segment grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posting {
    /// The number after that of the last block; 0 without blocks.
    last: u32,
    count: u32,
    differences: Vec<u8>,
}

impl Posting {
    /// Adds a block, not below the last one; returns `true` if it is the term's first.
    #[inline]
    pub(crate) fn add(&mut self, block: u32) -> bool {
        if self.last == block + 1 {
            return false;
        }
        let is_first = self.count == 0;
        let difference = if is_first {
            block
        } else {
            block + 1 - self.last
        };
        put_number(&mut self.differences, difference);
        self.last = block + 1;
        self.count += 1;
        is_first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the list in the form of the file.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        if self.count > 8 {
            let mut bitmap: RoaringBitmap = self.blocks().collect();
            bitmap.optimize();
            let bytes = bitmap.serialized_size();
            if bytes + 4 < self.differences.len() || self.count >= u32::from(BITMAP) {
                into.push(BITMAP);
                into.extend_from_slice(&to_u32(bytes).to_le_bytes());
                // A vector takes all bytes.
                let _ = bitmap.serialize_into(into);
                return;
            }
        }
        into.push(u8::try_from(self.count).unwrap_or(0));
        into.extend_from_slice(&self.differences);
    }

    fn blocks(&self) -> impl Iterator<Item = u32> {
        let (mut rest, mut last) = (&self.differences[..], 0);
        std::iter::from_fn(move || {
            last += take_number(&mut rest)?;
            Some(last)
        })
    }
}

/// Reads a list, and adds its blocks to `into`; `None` if the bytes are no list of blocks below `blocks`.
pub(crate) fn read(from: &mut &[u8], blocks: u32, into: &mut RoaringBitmap) -> Option<()> {
    let (&count, mut rest) = from.split_first()?;
    if count == BITMAP {
        let (length, bytes) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (bitmap, rest) = bytes.split_at_checked(length)?;
        *into |= read_bitmap(bitmap).filter(|read| read.max().is_none_or(|max| max < blocks))?;
        *from = rest;
        return Some(());
    }
    let mut last = 0_u32;
    for _ in 0..count {
        last = last.checked_add(take_number(&mut rest)?)?;
        if last >= blocks {
            return None;
        }
        into.insert(last);
    }
    *from = rest;
    Some(())
}

/// Passes over a list.
pub(crate) fn skip(from: &mut &[u8]) -> Option<()> {
    let (&count, mut rest) = from.split_first()?;
    if count == BITMAP {
        let (length, bytes) = rest.split_first_chunk::<4>()?;
        *from = bytes.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
        return Some(());
    }
    for _ in 0..count {
        take_number(&mut rest)?;
    }
    *from = rest;
    Some(())
}

/// A bitmap with at most one container: a short run in the file may stand for 8 KiB in memory, but not for more.
fn read_bitmap(bytes: &[u8]) -> Option<RoaringBitmap> {
    /// First words of the portable format, without and with runs.
    const NO_RUNS: u32 = 12346;
    const RUNS: u32 = 12347;
    let (cookie, rest) = bytes.split_first_chunk::<4>()?;
    let containers = match u32::from_le_bytes(*cookie) {
        NO_RUNS => u32::from_le_bytes(*rest.first_chunk()?),
        word if word & 0xffff == RUNS => (word >> 16) + 1,
        _ => return None,
    };
    if containers > 1 {
        return None;
    }
    RoaringBitmap::deserialize_from(bytes).ok()
}

fn put_number(into: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        into.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    into.push(number.to_le_bytes()[0]);
}

fn take_number(from: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in [0, 7, 14] {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_come_back(blocks in prop::collection::btree_set(0..5000_u32, 0..2000), runs in any::<bool>()) {
            let mut posting = Posting::default();
            let all: Vec<u32> = if runs { (3..3000).collect() } else { blocks.into_iter().collect() };
            for block in &all {
                posting.add(*block);
                prop_assert!(!posting.add(*block));
            }
            let mut bytes = Vec::new();
            posting.write(&mut bytes);
            bytes.push(7);
            let (mut rest, mut skipped, mut read_back) = (&bytes[..], &bytes[..], RoaringBitmap::new());
            read(&mut rest, 5000, &mut read_back).unwrap();
            skip(&mut skipped).unwrap();
            prop_assert_eq!(read_back.iter().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!((rest, skipped), (&[7_u8][..], &[7_u8][..]));
            let too_few = all.last().copied().unwrap_or(0);
            let refused = read(&mut &bytes[..], too_few, &mut RoaringBitmap::new()).is_none();
            prop_assert_eq!(refused, !all.is_empty());
        }

        #[test]
        fn any_bytes_are_a_list_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), bitmap in any::<bool>()) {
            let bytes = if bitmap { [&[255, 40, 0, 0, 0, 0x3b, 0x30][..], &bytes].concat() } else { bytes };
            let mut blocks = RoaringBitmap::new();
            if read(&mut &bytes[..], 100, &mut blocks).is_some() {
                prop_assert!(blocks.max().is_none_or(|max| max < 100));
            }
        }
    }

    #[test]
    fn a_bitmap_of_many_containers_is_refused_before_it_takes_memory() {
        let many: RoaringBitmap = (0..100).map(|container| container << 16).collect();
        let mut bytes = vec![BITMAP];
        bytes.extend(to_u32(many.serialized_size()).to_le_bytes());
        many.serialize_into(&mut bytes).unwrap();
        assert!(read(&mut &bytes[..], u32::MAX, &mut RoaringBitmap::new()).is_none());
    }
}
