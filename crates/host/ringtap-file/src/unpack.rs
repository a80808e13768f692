// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decompresses gzip and zstd files while they are read.
//!
//! Invariant: memory does not depend on what a file claims: a frame's window is at most 128 MiB.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::fs::FileExt as _,
};

use flate2::read::MultiGzDecoder;

/// First bytes of a gzip file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a zstd file.
pub(super) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A compressed file's content as a stream; the file itself if it is not compressed.
pub(super) fn unpack(mut file: File) -> io::Result<Result<Box<dyn Read + Send>, File>> {
    let mut start = [0; 4];
    let at = file.stream_position()?;
    let count = file.read_at(&mut start, at)?;
    Ok(match &start[..count] {
        [first, second, ..] if [*first, *second] == GZIP => Ok(Box::new(MultiGzDecoder::new(file))),
        all if all == ZSTD => Ok(Box::new(zstd::Decoder::new(file)?)),
        _ => Err(file),
    })
}
