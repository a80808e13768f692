// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport layer: frames in a byte stream.
//!
//! A frame is a zero byte, the body and its CRC-32 in COBS (which holds no zero byte), a zero byte. So
//! the next zero byte ends whatever came before it: a receiver is in step again with the first frame
//! of a sender that restarted in the middle of another.
//!
//! Invariants
//! - At most [`MAX_FRAME_BYTES`] bytes of an unfinished frame are kept.
#![forbid(unsafe_code)]

/// Most bytes of a frame's body.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Most bytes between the two zero bytes of a frame.
pub const MAX_FRAME_BYTES: usize = cobs::max_encoding_length(MAX_BODY_BYTES + CRC_BYTES);

const CRC_BYTES: usize = 4;

/// The frame of a body.
#[must_use]
pub fn encode(body: &[u8]) -> Vec<u8> {
    let mut content = body.to_vec();
    content.extend(crc32fast::hash(body).to_le_bytes());
    let mut frame = cobs::encode_vec_including_sentinels(&content);
    // The library leaves zero bytes behind a frame that is shorter than the longest of its content's length.
    while frame.ends_with(&[0, 0]) {
        frame.pop();
    }
    frame
}

/// Finds frames in a byte stream.
#[derive(Default)]
pub struct Deframer {
    /// Bytes of the unfinished frame.
    pending: Vec<u8>,
    overlong: bool,
    damaged: u64,
}

impl Deframer {
    /// Takes bytes from the front of `input`, up to the end of the next intact frame; returns its body,
    /// or `None` when all of `input` is taken.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Vec<u8>> {
        while let Some(end) = input.iter().position(|byte| *byte == 0) {
            let (part, rest) = input.split_at(end);
            *input = rest.get(1..).unwrap_or_default();
            self.keep(part);
            if let Some(body) = self.finish() {
                return Some(body);
            }
        }
        self.keep(input);
        *input = &[];
        None
    }

    /// Frames dropped because they were cut, damaged or too long.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    fn keep(&mut self, part: &[u8]) {
        self.overlong |= self.pending.len() + part.len() > MAX_FRAME_BYTES;
        if self.overlong {
            self.pending.clear();
        } else {
            self.pending.extend_from_slice(part);
        }
    }

    fn finish(&mut self) -> Option<Vec<u8>> {
        let frame = std::mem::take(&mut self.pending);
        let overlong = std::mem::take(&mut self.overlong);
        if frame.is_empty() && !overlong {
            return None;
        }
        let body = (!overlong).then(|| body_of(&frame)).flatten();
        if body.is_none() {
            self.damaged += 1;
        }
        body
    }
}

fn body_of(frame: &[u8]) -> Option<Vec<u8>> {
    let mut content = cobs::decode_vec(frame).ok()?;
    let (body, crc) = content.split_last_chunk::<CRC_BYTES>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    content.truncate(body.len());
    Some(content)
}
