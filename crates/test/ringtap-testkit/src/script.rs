// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes decisions from bytes, for fuzz targets and property tests.

/// Consumes bytes from the front; zeros follow the last one.
#[derive(Debug)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// The script in these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes are consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// The next eight bytes as a number.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number below `limit`, which is not zero, from two bytes.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = u16::from_le_bytes([self.byte(), self.byte()]);
        usize::from(number) % limit
    }

    /// One of `choices`, which is not empty.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_used_up_from_the_front() {
        let mut script = Script::new(&[3, 1, 0, 7, 9]);
        assert_eq!(script.byte(), 3);
        assert_eq!(script.below(10), 1);
        assert_eq!(script.one_of(&[10, 20]), 20);
        assert_eq!(script.rest(), [9]);
        assert_eq!((script.word(), script.is_empty()), (0, true));
    }
}
