// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the source that a device names.

use ringtap_bpf::BpfError;
use ringtap_device::{DeviceSpec, Kind, kinds};
use ringtap_pool::source::Source;

use crate::source::SourceStart;
use crate::{CaptureError, packet, pcap, sim, tap, xdp};

/// Opens a device of one kind of source.
type OpenDevice = fn(&DeviceSpec, SourceStart) -> Result<Source, CaptureError>;

/// The driver of each kind of source.
static OPENERS: [(&Kind, OpenDevice); 5] = [
    (&kinds::TAP, tap::open_device),
    (&kinds::XDP, xdp::open_device),
    (&kinds::PACKET, packet::open_device),
    (&kinds::PCAP, pcap::open_device),
    (&kinds::SIM, sim::open_device),
];

/// Opens a device; packets are captured when the function returns.
///
/// An interface without a kind is opened as a tap. A packet socket replaces a tap that cannot
/// start, unless an option needs a tap; a note in the source's facts says so.
///
/// # Examples
///
/// ```
/// let source = ringtap_capture::open(&"sim:10Gbps?burst=100&queues=2".parse()?)?;
/// assert_eq!(source.lanes.len(), 2);
/// assert_eq!(source.facts.link_type, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(device: &DeviceSpec) -> Result<Source, CaptureError> {
    open_at(device, SourceStart::AtOnce)
}

/// As [`open`], for readers whose rules must see every packet, before the snap length cuts it: a file and a simulated
/// link wait for the source's rules.
pub fn open_for_rules(device: &DeviceSpec) -> Result<Source, CaptureError> {
    open_at(device, SourceStart::WithRules)
}

fn open_at(device: &DeviceSpec, start: SourceStart) -> Result<Source, CaptureError> {
    if let Some(pool) = device.options.pool {
        require_memory(device, pool.0)?;
    }
    match device.kind.tries {
        [first, second] => open_best(device, first, second),
        _ => open_as(device.kind, device, start),
    }
}

/// Opens a device as one kind of source.
fn open_as(
    kind: &'static Kind,
    device: &DeviceSpec,
    start: SourceStart,
) -> Result<Source, CaptureError> {
    let open = OPENERS.iter().find(|(of, _)| *of == kind);
    let (_, open) = open.ok_or_else(|| CaptureError::Group(device.to_string()))?;
    let device = DeviceSpec {
        kind,
        ..device.clone()
    };
    open(&device, start)
}

/// Refuses a pool larger than the machine's memory, before the kernel kills a process for it.
fn require_memory(device: &DeviceSpec, pool_bytes: u64) -> Result<(), CaptureError> {
    let machine = rustix::system::sysinfo();
    let memory_bytes = machine.totalram.saturating_mul(machine.mem_unit.into());
    if pool_bytes < memory_bytes {
        return Ok(());
    }
    Err(CaptureError::Memory {
        device: device.to_string(),
        pool_bytes,
        memory_bytes,
    })
}

/// Opens a tap, or a packet socket where the tap cannot start.
fn open_best(
    device: &DeviceSpec,
    first: &'static Kind,
    second: &'static Kind,
) -> Result<Source, CaptureError> {
    let reason = match open_as(first, device, SourceStart::AtOnce) {
        Ok(source) => return Ok(source),
        Err(error) => error,
    };
    // No other source helps against a missing interface, too small sizes, or a capture that takes the
    // packets.
    let is_final = matches!(
        reason,
        CaptureError::Interface(_)
            | CaptureError::Sizes { .. }
            | CaptureError::Bpf(BpfError::AnotherRingtap { .. })
    );
    if is_final || !device.suits(second) {
        return Err(reason);
    }
    let note = format!(
        "no {first} on {0}, capturing with {second}:{0}: {reason}",
        device.name
    );
    let opened = open_as(second, device, SourceStart::AtOnce);
    let mut source = opened.map_err(|packet| CaptureError::Neither {
        interface: device.name.clone(),
        tap: Box::new(reason),
        packet: Box::new(packet),
    })?;
    source.facts.notes.insert(0, note);
    Ok(source)
}
