// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the source that a device names.
#![forbid(unsafe_code)]

use ringtap_device::{DeviceError, DeviceSpec, Kind, Queues};
use ringtap_net::interface::{Interface, InterfaceError};
use ringtap_pool::source::Source;

use crate::packet::{PacketError, PacketOptions, PacketSource};
use crate::pcap::{PcapError, PcapOptions, PcapSource};
use crate::sim::{SimError, SimOptions, SimSource};
use crate::tap::{Tap, TapError, TapOptions};
use crate::xdp::{XdpError, XdpOptions, XdpSource};

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device is not one that this version can open.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is a group of a hub: readers subscribe to it, it is no source.
    #[error("{0} is a group of a hub, not a source: subscribe to it")]
    Group(String),
    /// The machine has less memory than the pool would need.
    #[error(
        "{device}: a pool of {pool_bytes} bytes is more than the memory of this machine, \
         {memory_bytes} bytes: ask for a smaller one"
    )]
    Memory {
        /// The device.
        device: String,
        /// Bytes of the pool.
        pool_bytes: u64,
        /// Bytes of memory that the machine has.
        memory_bytes: u64,
    },
    /// Neither the tap nor a packet socket can capture here.
    #[error("{tap}; and packet:{interface}: {packet}")]
    Neither {
        /// The interface.
        interface: String,
        /// Why the tap cannot.
        tap: Box<OpenError>,
        /// Why the packet socket cannot.
        packet: PacketError,
    },
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The tap cannot start.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// AF_XDP cannot start.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The packet socket cannot start.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The capture file cannot be read.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The simulated NIC cannot start.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// Opens a device; its source captures from now on.
///
/// An interface without a kind is opened as a tap, or as a packet socket where the tap cannot
/// start and nothing was asked that only a tap can do; a note in the source's facts says so.
///
/// # Errors
///
/// Every [`OpenError`].
pub fn open(device: &DeviceSpec) -> Result<Box<dyn Source>, OpenError> {
    device.require_available()?;
    if let Some(pool) = device.options.pool {
        require_memory(device, pool.0)?;
    }
    Ok(match device.kind {
        Kind::Pcap => Box::new(PcapSource::open(&PcapOptions::from_device(device))?),
        Kind::Packet => Box::new(PacketSource::open(&PacketOptions::from_device(device)?)?),
        Kind::Tap => open_tap(device)?,
        Kind::Xdp => Box::new(XdpSource::open(&XdpOptions::from_device(device))?),
        Kind::Sim => Box::new(SimSource::open(&SimOptions::from_device(device)?)?),
        Kind::Hub | Kind::Host => return Err(OpenError::Group(device.to_string())),
        _ => open_best(device)?,
    })
}

/// Refuses a pool larger than the machine's memory, before the kernel kills a process for it.
fn require_memory(device: &DeviceSpec, pool_bytes: u64) -> Result<(), OpenError> {
    let machine = rustix::system::sysinfo();
    let memory_bytes = machine.totalram.saturating_mul(machine.mem_unit.into());
    if pool_bytes < memory_bytes {
        return Ok(());
    }
    Err(OpenError::Memory {
        device: device.to_string(),
        pool_bytes,
        memory_bytes,
    })
}

/// Opens a tap, or a packet socket where the tap cannot start.
fn open_best(device: &DeviceSpec) -> Result<Box<dyn Source>, OpenError> {
    let reason = match open_tap(device) {
        Ok(source) => return Ok(source),
        Err(error) => error,
    };
    let options = &device.options;
    let needs_tap = options.exclusive || options.mode.is_some() || device.queues != Queues::All;
    // No other source changes that the interface is missing, or that the sizes are too small.
    let is_final = matches!(
        reason,
        OpenError::Interface(_) | OpenError::Tap(TapError::Sizes { .. })
    );
    if needs_tap || is_final {
        return Err(reason);
    }
    let note = format!(
        "no tap on {0}, capturing with packet:{0}: {reason}",
        device.name
    );
    let packet = DeviceSpec {
        kind: Kind::Packet,
        ..device.clone()
    };
    let source = PacketOptions::from_device(&packet).and_then(|options| {
        PacketSource::open(&PacketOptions {
            notes: vec![note],
            ..options
        })
    });
    match source {
        Ok(source) => Ok(Box::new(source)),
        Err(packet) => Err(OpenError::Neither {
            interface: device.name.clone(),
            tap: Box::new(reason),
            packet,
        }),
    }
}

fn open_tap(device: &DeviceSpec) -> Result<Box<dyn Source>, OpenError> {
    let interface = Interface::find(&device.name)?;
    interface.require_up()?;
    let options = TapOptions::from_device(device, &interface)?;
    Ok(Box::new(Tap::attach(&options)?))
}
