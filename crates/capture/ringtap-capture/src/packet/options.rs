// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a packet socket, and the sizes that follow from them.

use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::number::to_u32;

use crate::shape::ShapeError;
use ringtap_device::{ChunkOptions, DeviceSpec, Direction};
use ringtap_filter::Instruction;
use ringtap_filter::LinkType;
use ringtap_net::interface::Interface;
use ringtap_net::rights::{Purpose, Rights};

use crate::{CaptureError, InterfaceOptions};

/// Default pool size, in bytes.
const POOL_BYTES: u64 = 64 << 20;
/// Default chunk size, in bytes: a chunk holds the largest packet that GRO merges, and some more.
const CHUNK_BYTES: u32 = 256 << 10;
/// Size of the kernel's ring, in bytes.
const RING_BYTES: u64 = 32 << 20;
/// Smallest ring to try when memory is short, in bytes.
const MIN_RING_BYTES: u64 = 2 << 20;
/// Smallest block, in bytes; at high rates the kernel would hand over smaller blocks too often.
const MIN_BLOCK_BYTES: u32 = 64 << 10;
/// Room in a block for its header, a packet's header and a link header.
const HEADERS: u32 = 1024;
/// Largest link header before an IP packet, in bytes.
const LINK_HEADER: u32 = 64;

/// Captures both directions of an interface, with default sizes.
#[must_use]
pub fn options(interface: impl Into<String>) -> InterfaceOptions {
    InterfaceOptions::new(interface, Direction::InOut)
}

/// The options in a device's text.
///
/// # Errors
///
/// - [`CaptureError::QueuesOfPacketSocket`]: a packet socket cannot choose receive queues.
pub(super) fn from_device(device: &DeviceSpec) -> Result<InterfaceOptions, CaptureError> {
    let queues = device.queues.to_string();
    if !queues.is_empty() {
        return Err(CaptureError::QueuesOfPacketSocket {
            device: device.to_string(),
            interface: device.name.clone(),
            queues,
        });
    }
    Ok(InterfaceOptions::from_device(device, || Direction::InOut))
}

/// Sizes of the kernel's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingLayout {
    /// Bytes of a block: a power of two that holds the largest packet.
    pub(super) block_bytes: u32,
    pub(super) block_count: u32,
}

impl RingLayout {
    fn new(largest_packet: u32) -> Self {
        let block_bytes = largest_packet.saturating_add(HEADERS).next_power_of_two();
        let block_bytes = block_bytes.max(MIN_BLOCK_BYTES);
        // At most one block in sixteen is being filled, copied or returned.
        let block_count = (RING_BYTES / u64::from(block_bytes)).max(16);
        Self {
            block_bytes,
            block_count: u32::try_from(block_count).unwrap_or(16),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.block_count)
    }

    /// Half as many blocks; `None` if the ring would be too small.
    pub(super) fn halved(&self) -> Option<Self> {
        let half = Self {
            block_count: self.block_count / 2,
            ..*self
        };
        (half.block_count >= 2 && half.bytes() >= MIN_RING_BYTES).then_some(half)
    }
}

/// Sizes and filter from the options and the interface.
#[derive(Debug)]
pub(super) struct PacketPlan {
    pub(super) link_type: LinkType,
    pub(super) geometry: Geometry,
    pub(super) ring: RingLayout,
    pub(super) promiscuous: bool,
    /// Rejects unwanted packets in the kernel.
    pub(super) filter: Vec<Instruction>,
}

impl PacketPlan {
    pub(super) fn new(
        options: &InterfaceOptions,
        interface: &Interface,
    ) -> Result<Self, CaptureError> {
        interface.require_up()?;
        Rights::current().require(Purpose::Packet)?;
        let link_type = interface.link_type;
        if link_type == LinkType::UNKNOWN {
            return Err(CaptureError::LinkType {
                interface: interface.name.clone(),
            });
        }
        let largest = interface.largest_merged_bytes.max(interface.mtu_bytes);
        let largest = largest.saturating_add(LINK_HEADER);
        let geometry = geometry(options, largest)?;
        Ok(Self {
            link_type,
            geometry,
            // Whole packets: the rules see them before the snap length cuts.
            ring: RingLayout::new(largest),
            promiscuous: options.promiscuous && !interface.is_loopback,
            filter: filter(options.direction, interface.is_loopback),
        })
    }
}

fn geometry(options: &InterfaceOptions, largest: u32) -> Result<Geometry, CaptureError> {
    let asked = &options.pool;
    if asked.chunks != ChunkOptions::default() {
        let kept = options
            .snap_length
            .map_or(largest, |snap| snap.min(largest));
        return Ok(asked.shape(1, kept, (POOL_BYTES, CHUNK_BYTES))?.geometry);
    }
    let fitting = largest.saturating_add(HEADERS).next_power_of_two();
    let usual = CHUNK_BYTES.max(fitting).min(MAX_CHUNK_SIZE);
    let chunk = asked.chunk_bytes.unwrap_or(usual);
    let pool = asked.bytes.unwrap_or(POOL_BYTES);
    let chunks = pool / u64::from(chunk.max(1));
    // One more for the region header; a lane needs at least two.
    let chunks = to_u32(chunks).max(2);
    let snap_length = options.snap_length.unwrap_or(u32::MAX);
    let geometry = Geometry::contiguous(chunk, chunks.saturating_add(1), 1, snap_length)
        .map_err(ShapeError::from)?;
    Ok(Geometry {
        snap_length: snap_length.min(geometry.max_payload()),
        ..geometry
    })
}

/// Builds a classic BPF program for the socket.
///
/// Each packet passes `lo` twice, first out, then in. As in libpcap, the incoming passage counts
/// unless only outgoing packets are captured.
fn filter(direction: Direction, is_loopback: bool) -> Vec<Instruction> {
    const WHOLE: u32 = u32::MAX;
    match (direction, is_loopback) {
        (Direction::InOut, false) => vec![give(WHOLE)],
        (Direction::Out, _) => by_direction(WHOLE, 0),
        (Direction::In, _) | (Direction::InOut, true) => by_direction(0, WHOLE),
    }
}

/// Keeps `leaving` bytes of outgoing packets and `arriving` bytes of incoming ones.
fn by_direction(leaving: u32, arriving: u32) -> Vec<Instruction> {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    /// `SKF_AD_OFF + SKF_AD_PKTTYPE`.
    const PACKET_TYPE: u32 = 0xffff_f000 + 4;
    const PACKET_OUTGOING: u32 = 4;
    vec![
        instruction(LOAD_BYTE, PACKET_TYPE),
        Instruction {
            jump_false: 1,
            ..instruction(JUMP_IF_EQUAL, PACKET_OUTGOING)
        },
        give(leaving),
        give(arriving),
    ]
}

fn give(bytes: u32) -> Instruction {
    const RETURN: u16 = 0x06;
    instruction(RETURN, bytes)
}

fn instruction(code: u16, k: u32) -> Instruction {
    Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolAsked;

    #[test]
    fn a_block_and_a_chunk_hold_the_largest_merged_packet() {
        let options = options("eth0");
        for largest in [1_500, 65_535 + 64, 185_000] {
            let geometry = geometry(&options, largest).unwrap();
            let ring = RingLayout::new(largest);
            assert!(geometry.snap_length >= largest, "{geometry:?}");
            assert!(ring.block_bytes >= largest + HEADERS, "{ring:?}");
            assert!(ring.bytes() >= RING_BYTES);
        }
    }

    #[test]
    fn queues_are_refused_with_the_reason() {
        let device: DeviceSpec = "packet:eth0@1-3".parse().unwrap();
        let error = from_device(&device).unwrap_err().to_string();
        assert!(
            error.starts_with("packet:eth0@1-3: a packet socket"),
            "{error}"
        );
        assert!(error.contains("use tap:eth0@1-3"), "{error}");
    }

    #[test]
    fn a_devices_options_are_taken_over() {
        let text = "packet:eth0?direction=in&promisc=off&snap=96&pool=8MiB&chunk=64KiB&packets=256";
        let device: DeviceSpec = text.parse().unwrap();
        let expected = InterfaceOptions {
            promiscuous: false,
            snap_length: Some(96),
            pool: PoolAsked {
                bytes: Some(8 << 20),
                chunk_bytes: Some(64 << 10),
                chunks: ChunkOptions {
                    per_lane: None,
                    packets: Some(256),
                },
            },
            ..InterfaceOptions::new("eth0", Direction::In)
        };
        assert_eq!(from_device(&device).unwrap(), expected);
    }

    #[test]
    fn a_ring_is_halved_until_it_is_too_small() {
        let mut layout = RingLayout::new(65_600);
        let mut sizes = vec![layout.bytes()];
        while let Some(half) = layout.halved() {
            layout = half;
            sizes.push(layout.bytes());
        }
        assert_eq!(sizes, [32 << 20, 16 << 20, 8 << 20, 4 << 20, 2 << 20]);
    }
}
