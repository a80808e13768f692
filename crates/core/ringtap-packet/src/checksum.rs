// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Internet checksum (RFC 1071).

/// Sums the bytes as 16-bit words in network order, folded; an odd last byte is the high byte.
pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([word[0], low]))
    });
    u32::from(fold(words.sum()))
}

/// The checksum field for a sum.
pub fn finish(sum: u32) -> u16 {
    !fold(sum.into())
}

fn fold(mut sum: u64) -> u16 {
    loop {
        match u16::try_from(sum) {
            Ok(folded) => return folded,
            Err(_) => sum = (sum & 0xffff) + (sum >> 16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(finish(0xddf2), !0xddf2);
    }

    #[test]
    fn a_packet_with_its_checksum_sums_to_all_ones() {
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199,
        ];
        let field = finish(sum(&header));
        assert_eq!(field, 0xb861);
        header[10..12].copy_from_slice(&field.to_be_bytes());
        assert_eq!(sum(&header), 0xffff);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_one() {
        assert_eq!(sum(&[1]), 0x0100);
    }
}
