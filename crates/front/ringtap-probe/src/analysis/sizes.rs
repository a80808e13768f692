// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets by the length of their frames, in the ranges of RMON (RFC 2819).

use crate::record::as_value;

/// Upper end of each range but the last, in bytes without the frame check sequence.
const ENDS: [u32; 6] = [64, 127, 255, 511, 1023, 1518];

/// Counts of each range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameSizes([(u64, u64); ENDS.len() + 1]);

impl FrameSizes {
    /// Counts a frame.
    #[inline]
    pub(crate) fn add(&mut self, frame_bytes: u32) {
        let range = ENDS.iter().take_while(|end| frame_bytes > **end).count();
        let (packets, bytes) = &mut self.0[range];
        *packets += 1;
        *bytes += u64::from(frame_bytes);
    }

    /// Adds the counts of another worker.
    pub(crate) fn merge(&mut self, other: &FrameSizes) {
        self.add_all(&other.0);
    }

    /// Adds packets and bytes of each range.
    pub(crate) fn add_all(&mut self, ranges: &[(u64, u64); ENDS.len() + 1]) {
        for (sum, more) in self.0.iter_mut().zip(ranges) {
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
    }

    /// Ranges with packets, and their counts.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (String, Vec<(&'static str, f64)>)> {
        let starts = [0].into_iter().chain(ENDS.map(|end| end + 1));
        let ends = ENDS.into_iter().map(Some).chain([None]);
        let ranges = starts.zip(ends).zip(self.0);
        ranges
            .filter(|(_, (packets, _))| *packets > 0)
            .map(|((start, end), (packets, bytes))| {
                let range = match end {
                    Some(end) => format!("{start}-{end}"),
                    None => format!("{start}-"),
                };
                let values = vec![("packets", as_value(packets)), ("bytes", as_value(bytes))];
                (range, values)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_is_in_the_range_of_its_length() {
        let (mut sizes, mut more) = (FrameSizes::default(), FrameSizes::default());
        for length in [60, 64, 65, 1518, 1519, 9000] {
            sizes.add(length);
        }
        more.add(65);
        sizes.merge(&more);
        let got: Vec<_> = sizes
            .ranges()
            .map(|(range, values)| (range, values[0].1))
            .collect();
        let want = [
            ("0-64", 2.0),
            ("65-127", 2.0),
            ("1024-1518", 1.0),
            ("1519-", 2.0),
        ];
        assert_eq!(
            got,
            want.map(|(range, packets)| (range.to_owned(), packets))
        );
    }
}
