// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a device as the user named it to a running source.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use ringtap_capture::device::{self, DeviceSpec, Kind, Options, Queues};
use ringtap_capture::files::Speed;
use ringtap_capture::interface::{Interface, InterfaceError};
use ringtap_capture::kernel::{self, Feature};
use ringtap_capture::packet::{PacketOptions, PacketSource};
use ringtap_capture::pcap::{PcapOptions, PcapSource};
use ringtap_capture::tap::{self, Tap, TapOptions};
use ringtap_pool::source::Source;

/// A tap knows as many receive queues.
const TAP_QUEUES: u16 = 256;

/// Opens a device; it captures from now on.
pub(crate) fn open(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    device.require_available()?;
    match device.kind {
        Kind::Pcap => open_file(device),
        Kind::Packet => open_packet(device),
        Kind::Tap => open_tap(device),
        _ => open_best(device),
    }
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
    let hopeless = reason.downcast_ref::<InterfaceError>().is_some();
    if needs_tap || hopeless {
        return Err(reason);
    }
    let packet = DeviceSpec {
        kind: Kind::Packet,
        ..device.clone()
    };
    let source =
        open_packet(&packet).with_context(|| format!("{reason}; and packet:{}", device.name))?;
    eprintln!(
        "ringtap: no tap on {}, capturing with packet:{0}: {reason}",
        device.name
    );
    Ok(source)
}

fn open_packet(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    Ok(Box::new(PacketSource::open(&PacketOptions::from_device(
        device,
    )?)?))
}

fn open_file(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let options = PcapOptions {
        file: device.name.clone(),
        speed: device.options.speed.unwrap_or(Speed::Top),
        snap_length: device.options.snap_length,
        pool_bytes: device.options.pool.map(|size| size.0),
    };
    Ok(Box::new(PcapSource::open(&options)?))
}

fn open_tap(device: &DeviceSpec) -> Result<Box<dyn Source>> {
    let interface = Interface::find(&device.name)?;
    interface.require_up()?;
    Ok(Box::new(Tap::attach(&tap_options(device, &interface)?)?))
}

fn tap_options(device: &DeviceSpec, interface: &Interface) -> Result<TapOptions> {
    let Options {
        exclusive,
        mode,
        direction,
        promiscuous,
        snap_length,
        pool,
        chunk,
        ..
    } = &device.options;
    let mut options = TapOptions::new(&device.name);
    options.queues = queues(&device.queues)?;
    if *exclusive {
        options.taking = tap::Taking::Exclusive;
    }
    options.mode = match mode.unwrap_or(device::Mode::Auto) {
        device::Mode::Native => tap::Mode::Native,
        device::Mode::Generic => tap::Mode::Generic,
        device::Mode::Tc => tap::Mode::Tc,
        _ => tap::Mode::Auto,
    };
    options.direction = match direction.unwrap_or_else(|| usual_direction(device, interface)) {
        device::Direction::In => tap::Direction::In,
        device::Direction::Out => tap::Direction::Out,
        device::Direction::InOut => tap::Direction::InOut,
    };
    options.snap_length = snap_length.unwrap_or(0);
    options.promiscuous = promiscuous.unwrap_or(true);
    if let Some(size) = pool {
        options.pool_bytes = size.0;
    }
    if let Some(size) = chunk {
        options.chunk_size = u32::try_from(size.0).context("the chunk size is too large")?;
    }
    Ok(options)
}

/// Both ways, as tcpdump shows them, where that makes sense and the kernel can.
fn usual_direction(device: &DeviceSpec, interface: &Interface) -> device::Direction {
    // On the loopback every packet that is sent is also received: once is enough.
    if device.options.exclusive || interface.is_loopback {
        return device::Direction::In;
    }
    match kernel::require(Feature::Tcx) {
        Ok(()) => device::Direction::InOut,
        Err(too_old) => {
            eprintln!("ringtap: capturing received packets only: {too_old}");
            device::Direction::In
        }
    }
}

fn queues(queues: &Queues) -> Result<Vec<u16>> {
    match queues {
        Queues::All => Ok(Vec::new()),
        chosen => {
            let highest = chosen.highest().unwrap_or(0);
            anyhow::ensure!(
                highest < TAP_QUEUES,
                "receive queue {highest} cannot be chosen: the tap knows queues below {TAP_QUEUES}"
            );
            Ok((0..TAP_QUEUES)
                .filter(|queue| chosen.contains(*queue))
                .collect())
        }
    }
}
