// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile program in a guest: reads and overwrites everything that the host shares, and rings the
//! doorbell, without end.
//!
//! Its arguments are bytes. Each pass prints how many words that repeat each of them were found.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::memory::Words;

const DEVICES: &str = "/sys/bus/pci/devices";
const PAGE: u64 = 4096;
/// Stores to the doorbell in a pass.
const RINGS: u32 = 20_000;
/// The doorbell's register, in words.
const DOORBELL: usize = 3;

/// The memory behind a BAR, and whether it can be written.
struct Bar {
    words: Words<AtomicU64>,
    is_writable: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = std::env::args().skip(1).map(|text| text.parse::<u8>());
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>()?;
    let (mut bars, mut doorbells) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(DEVICES)? {
        let folder = entry?.path();
        let is = |name: &str, id: &str| {
            fs::read_to_string(folder.join(name)).is_ok_and(|text| text.trim() == id)
        };
        if is("vendor", "0x1af4") && is("device", "0x1110") {
            fs::write(folder.join("enable"), "1")?;
            for bar in 0..6 {
                let path = folder.join(format!("resource{bar}"));
                let Ok(bytes) = fs::metadata(&path).map(|file| file.len()) else {
                    continue;
                };
                match bar {
                    0 => doorbells
                        .push(map(&path, PAGE, Access::ReadWrite)?.words::<AtomicU32>(0, 4)),
                    // The table of interrupts.
                    1 => {}
                    _ => bars.push(open(&path, bytes)?),
                }
            }
        }
    }
    println!("GUEST intruder has {} devices", bars.len());
    for pass in 1_u64.. {
        let mut found = vec![0_u64; bytes.len()];
        for word in bars.iter().flat_map(|bar| bar.words.iter()) {
            let word = word.load(Relaxed).to_le_bytes();
            for (byte, count) in bytes.iter().zip(&mut found) {
                *count += u64::from(word == [*byte; 8]);
            }
        }
        println!("GUEST pass {pass} found {found:?} end");
        let control = bars.iter().filter(|bar| bar.is_writable);
        for word in control.flat_map(|bar| bar.words.iter()) {
            word.store(u64::MAX / pass, Relaxed);
        }
        for doorbell in doorbells.iter().flatten() {
            (0..RINGS).for_each(|ring| doorbell[DOORBELL].store(ring % 3, Relaxed));
        }
    }
    Ok(())
}

/// Maps a device's memory writable; memory in which a store changes nothing is not.
fn open(path: &Path, bytes: u64) -> Result<Bar, Box<dyn Error>> {
    let mapping = map(path, bytes, Access::ReadWrite)?;
    let words: Words<AtomicU64> = mapping
        .words(0, usize::try_from(bytes / 8)?)
        .ok_or("no memory")?;
    let first = words[0].load(Relaxed);
    words[0].store(!first, Relaxed);
    let is_writable = words[0].load(Relaxed) != first;
    Ok(Bar { words, is_writable })
}

fn map(path: &Path, bytes: u64, access: Access) -> Result<Arc<Mapping>, Box<dyn Error>> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok(Arc::new(Mapping::new(
        file,
        usize::try_from(bytes)?,
        access,
    )?))
}
