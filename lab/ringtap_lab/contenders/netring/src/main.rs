// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads an interface with the crate netring (AF_PACKET, TPACKET_V3) in place, touches the headers of every packet and
//! counts, as `packet_reader.c` does.
//!
//! usage: netring_reader INTERFACE RING_MIB, ended by the end of its standard input

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use netring::{Capture, RingProfile};

/// The block of netring's default profile.
const BLOCK_MIB: usize = 4;
const LOOK: Duration = Duration::from_millis(100);
/// As in `ringtap count --work headers`: type, IPv4 addresses and ports.
const HEADERS: usize = 38;

fn field(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(device), Some(ring_mib)) = (words.next(), words.next()) else {
        return Err("usage: netring_reader INTERFACE RING_MIB".into());
    };
    let mut capture = Capture::builder()
        .interface(&device)
        .profile(RingProfile::Default)
        .block_count((ring_mib.parse::<usize>()? / BLOCK_MIB).max(1))
        .promiscuous(true)
        .build()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        // An error ends it, too.
        let _end = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Relaxed);
    });
    eprintln!("ready");
    let (mut packets, mut sum) = (0_u64, 0_u64);
    while !stopped.load(Relaxed) {
        let Some(batch) = capture.next_batch_blocking(LOOK)? else {
            continue;
        };
        for packet in &batch {
            let bytes = packet.data();
            if bytes.len() >= HEADERS {
                let part = field(&bytes[12..14]) + field(&bytes[34..38]);
                sum = sum.wrapping_add(part).wrapping_add(field(&bytes[26..34]));
            }
            packets += 1;
        }
    }
    let dropped = capture.cumulative_stats()?.drops;
    println!("received {packets} dropped {dropped}\nheaders sum {sum}");
    Ok(())
}
