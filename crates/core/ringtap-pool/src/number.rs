// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversions between integer types that saturate.
//!
//! A number that the type cannot hold becomes the type's maximum. Nearly all of Ringtap's conversions
//! cannot fail (indexes of a pool, lengths of packets). For the others the maximum exceeds what any
//! pool has, so that a later check refuses it.

/// The number as `u16`, saturated.
#[inline]
pub fn to_u16(number: impl TryInto<u16>) -> u16 {
    number.try_into().unwrap_or(u16::MAX)
}

/// The number as `u32`, saturated.
#[inline]
pub fn to_u32(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// The number as `u64`, saturated.
#[inline]
pub fn to_u64(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

/// The number as `usize`, saturated.
#[inline]
pub fn to_usize(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_fit_stay_and_others_become_the_largest() {
        assert_eq!((to_u16(7_usize), to_u16(70_000_u32)), (7, u16::MAX));
        assert_eq!((to_u32(7_usize), to_u32(1_u64 << 32)), (7, u32::MAX));
        assert_eq!((to_u64(7_usize), to_u64(1_u128 << 64)), (7, u64::MAX));
        assert_eq!((to_usize(7_u32), to_usize(u64::MAX)), (7, usize::MAX));
    }
}
