// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a device as the user named it to a running source.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use ringtap_capture::packet::{PacketOptions, PacketSource};
use ringtap_capture::pcap::{PcapOptions, PcapSource};
use ringtap_capture::sim::{SimOptions, SimSource};
use ringtap_capture::tap::{Tap, TapError, TapOptions};
use ringtap_capture::xdp::{XdpOptions, XdpSource};
use ringtap_device::{DeviceSpec, Kind, Queues};
use ringtap_net::interface::{Interface, InterfaceError};
use ringtap_pool::source::Source;

use crate::print;
use crate::report::grouped;

/// Opens a device; it captures from now on.
pub(crate) fn open(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    device.require_available()?;
    if let Some(pool) = device.options.pool {
        require_memory(device, pool.0)?;
    }
    match device.kind {
        Kind::Pcap => open_file(device),
        Kind::Packet => open_packet(device),
        Kind::Tap => open_tap(device),
        Kind::Xdp => Ok(Box::new(XdpSource::open(&XdpOptions::from_device(device))?)),
        Kind::Sim => open_simulated(device),
        Kind::Hub => bail!("{device} is a reader's view of a hub, not a source"),
        _ => open_best(device),
    }
}

/// Refuses a pool that this machine cannot hold: packets would come until the kernel kills somebody.
fn require_memory(device: &DeviceSpec, pool_bytes: u64) -> Result<()> {
    let machine = rustix::system::sysinfo();
    let memory_bytes = machine.totalram.saturating_mul(machine.mem_unit.into());
    ensure!(
        pool_bytes < memory_bytes,
        "{device}: a pool of {} bytes is more than the memory of this machine, {} bytes: ask for a \
         smaller one",
        grouped(pool_bytes),
        grouped(memory_bytes)
    );
    Ok(())
}

/// The tap where it can be had, else the packet source; the reason is said aloud.
fn open_best(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let reason = match open_tap(device) {
        Ok(source) => return Ok(source),
        Err(error) => error,
    };
    // What only a tap can do is not left out silently.
    let needs_tap =
        device.options.exclusive || device.options.mode.is_some() || device.queues != Queues::All;
    // Sizes that are too small are the user's to change, and no reason for another source.
    let hopeless = reason.downcast_ref::<InterfaceError>().is_some()
        || matches!(reason.downcast_ref(), Some(TapError::Sizes { .. }));
    if needs_tap || hopeless {
        return Err(reason);
    }
    let packet = DeviceSpec {
        kind: Kind::Packet,
        ..device.clone()
    };
    let source =
        open_packet(&packet).with_context(|| format!("{reason}; and packet:{}", device.name))?;
    print::note(format_args!(
        "ringtap: no tap on {}, capturing with packet:{0}: {reason}",
        device.name
    ));
    Ok(source)
}

fn open_packet(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    Ok(Box::new(PacketSource::open(&PacketOptions::from_device(
        device,
    )?)?))
}

fn open_file(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let options = PcapOptions::from_device(device);
    Ok(Box::new(PcapSource::open(&options)?))
}

fn open_simulated(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let options = SimOptions::from_device(device)?;
    Ok(Box::new(SimSource::open(&options)?))
}

fn open_tap(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let interface = Interface::find(&device.name)?;
    interface.require_up()?;
    Ok(Box::new(Tap::attach(&TapOptions::from_device(
        device, &interface,
    )?)?))
}
