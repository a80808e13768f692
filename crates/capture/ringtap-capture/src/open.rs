// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the source that a device names.

use ringtap_bpf::BpfError;
use ringtap_device::{DeviceSpec, Kind, Queues};
use ringtap_net::interface::Interface;
use ringtap_pool::source::Source;

use crate::CaptureError;
use crate::nic_stamps;
use crate::packet::{self, PacketOptions};
use crate::pcap::{self, FileStart, PcapOptions};
use crate::sim::{self, SimOptions};
use crate::tap::{Tap, TapOptions};
use crate::xdp::{self, XdpOptions};

/// Opens a device; packets are captured when the function returns.
///
/// An interface without a kind is opened as a tap. A packet socket replaces a tap that cannot
/// start, unless an option needs a tap; a note in the source's facts says so.
pub fn open(device: &DeviceSpec) -> Result<Box<dyn Source>, CaptureError> {
    if let Some(pool) = device.options.pool {
        require_memory(device, pool.0)?;
    }
    Ok(match device.kind {
        Kind::Pcap => Box::new(pcap::open(&PcapOptions::from_device(device))?),
        Kind::Packet => open_packet(device, Vec::new())?,
        Kind::Tap => open_tap(device)?,
        Kind::Xdp => {
            nic_stamps::enable(device)?;
            Box::new(xdp::open(&XdpOptions::from_device(device))?)
        }
        Kind::Sim => Box::new(sim::open(&SimOptions::from_device(device)?)?),
        Kind::Hub | Kind::Host => return Err(CaptureError::Group(device.to_string())),
        Kind::Auto => open_best(device)?,
    })
}

/// As [`open`], for a reader whose filter must see whole packets although the snap length cuts them:
/// a file waits for the source's rules before it writes its first packet.
pub fn open_for_rules(device: &DeviceSpec) -> Result<Box<dyn Source>, CaptureError> {
    if device.kind != Kind::Pcap {
        return open(device);
    }
    Ok(Box::new(pcap::open(&PcapOptions {
        start: FileStart::WithRules,
        ..PcapOptions::from_device(device)
    })?))
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
fn open_best(device: &DeviceSpec) -> Result<Box<dyn Source>, CaptureError> {
    let reason = match open_tap(device) {
        Ok(source) => return Ok(source),
        Err(error) => error,
    };
    let options = &device.options;
    let needs_tap = options.exclusive || options.mode.is_some() || device.queues != Queues::All;
    // No other source helps against a missing interface, too small sizes, or a capture that takes the
    // packets.
    let is_final = matches!(
        reason,
        CaptureError::Interface(_)
            | CaptureError::Sizes { .. }
            | CaptureError::Bpf(BpfError::AnotherRingtap { .. })
    );
    if needs_tap || is_final {
        return Err(reason);
    }
    let note = format!(
        "no tap on {0}, capturing with packet:{0}: {reason}",
        device.name
    );
    let device = DeviceSpec {
        kind: Kind::Packet,
        ..device.clone()
    };
    open_packet(&device, vec![note]).map_err(|packet| CaptureError::Neither {
        interface: device.name.clone(),
        tap: Box::new(reason),
        packet: Box::new(packet),
    })
}

fn open_packet(device: &DeviceSpec, notes: Vec<String>) -> Result<Box<dyn Source>, CaptureError> {
    let options = PacketOptions::from_device(device)?;
    nic_stamps::enable(device)?;
    Ok(Box::new(packet::open(&PacketOptions { notes, ..options })?))
}

fn open_tap(device: &DeviceSpec) -> Result<Box<dyn Source>, CaptureError> {
    let interface = Interface::find(&device.name)?;
    interface.require_up()?;
    let options = TapOptions::from_device(device, &interface)?;
    nic_stamps::enable(device)?;
    Ok(Box::new(Tap::attach(&options)?))
}
