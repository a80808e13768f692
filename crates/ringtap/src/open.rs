// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a device as the user named it to a running source.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use ringtap_capture::device::{self, DeviceSpec, Kind, Options, Queues};
use ringtap_capture::files::Speed;
use ringtap_capture::interface::Interface;
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
        Kind::Tap => open_tap(device),
        _ => open_tap(device),
    }
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
    // For the near names, should there be no such interface.
    Interface::find(&device.name)?;
    Ok(Box::new(Tap::attach(&tap_options(device)?)?))
}

fn tap_options(device: &DeviceSpec) -> Result<TapOptions> {
    let Options {
        exclusive,
        mode,
        direction,
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
    options.direction = match direction.unwrap_or(device::Direction::In) {
        device::Direction::In => tap::Direction::In,
        device::Direction::Out => tap::Direction::Out,
        device::Direction::InOut => tap::Direction::InOut,
    };
    options.snap_length = snap_length.unwrap_or(0);
    if let Some(size) = pool {
        options.pool_bytes = size.0;
    }
    if let Some(size) = chunk {
        options.chunk_size = u32::try_from(size.0).context("the chunk size is too large")?;
    }
    Ok(options)
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
