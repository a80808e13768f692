// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a capture with the settings of a handle.
//!
//! Invariants
//! - The capture misses no packet once `activate` has returned.
//! - The way in which a network interface is captured is printed once.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringtap_client::{
    Connection, HubBeside, SubscriptionRequest, Watermark, default_socket, host_socket,
};
use ringtap_device::{DeviceSpec, Options, Size, StampClock, kinds};
use ringtap_filter::LinkType;
use ringtap_net::interface::Interface;
use ringtap_pool::format::Geometry;
use ringtap_pool::number::to_u32;

use crate::abi::{ERROR_IFACE_NOT_UP, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED};
use crate::abi::{
    ERROR_RFMON_NOTSUP, TSTAMP_ADAPTER_UNSYNCED, TSTAMP_HOST, WARNING_TSTAMP_TYPE_NOTSUP,
};
use crate::capture::{PacketReader, PcapCapture};
use crate::error::LibpcapError;
use crate::handle::PcapHandle;
use crate::helper;
use crate::messages;
use crate::route::{self, Route};
use crate::settings::PcapSettings;

/// The only group of a capture process's hub.
const ONLY_GROUP: &str = "only";
/// Snap lengths from here on are not passed to a source: no frame is longer.
const LONG_SNAP_BYTES: u32 = 65_535;
/// Smallest pool: a program that asks for a smaller buffer gets this one, in bytes.
const USUAL_POOL_BYTES: u64 = 128 << 20;
/// Longest wait on close for the capture process to end its capture.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Capturing = (PcapCapture, PacketReader);

/// Starts to capture; returns zero or a warning, or `None` if the real library must open the device.
pub(crate) fn activate(handle: &Arc<PcapHandle>) -> Result<Option<c_int>, LibpcapError> {
    let settings = handle.settings().clone();
    let mut has_nic = false;
    let capture = match Route::for_device(settings.source.as_deref(), route::via().as_deref())? {
        Route::Libpcap => return Ok(None),
        Route::Ringtap(device) => {
            has_nic = device.kind.names_an_interface();
            ringtap_device(&device, &settings)?
        }
        Route::Interface(name) => match interface(&name, &settings) {
            Ok(capture) => capture,
            Err(reason) => {
                if let Some(reason) = reason {
                    messages::once(&format!("{name} is read through libpcap: {reason}"));
                }
                return Ok(None);
            }
        },
    };
    handle.begin(capture)?;
    Ok(Some(match settings.tstamp_type {
        None | Some(TSTAMP_HOST) => 0,
        // The device would have been refused.
        Some(TSTAMP_ADAPTER_UNSYNCED) if has_nic => 0,
        Some(_) => WARNING_TSTAMP_TYPE_NOTSUP,
    }))
}

/// Captures an interface through a hub, else by a capture process. Fails with the reason if that is
/// worth a message.
fn interface(name: &str, settings: &PcapSettings) -> Result<Capturing, Option<String>> {
    if let Some(unsupported) = settings.unsupported() {
        return Err(Some(unsupported.to_owned()));
    }
    // For other interfaces, libpcap has better error messages.
    let is_known = |link| matches!(link, LinkType::ETHERNET | LinkType::RAW_IP);
    if !Interface::find(name).is_ok_and(|found| found.is_up && is_known(found.link_type)) {
        return Err(None);
    }
    match through_hub(name, settings) {
        Ok(Some(capture)) => return Ok(capture),
        Ok(None) => {}
        Err(error) => messages::once(&format!("{name}: not through the hub: {error}")),
    }
    let device = DeviceSpec::interface(name);
    let capture = by_process(&device, settings).map_err(|error| Some(error.text))?;
    messages::once(&format!("{name} is captured by {}", capture.0.sources));
    Ok(capture)
}

/// Subscribes to a group of a hub that delivers exactly the packets of the interface, if there is one.
fn through_hub(name: &str, settings: &PcapSettings) -> Result<Option<Capturing>, LibpcapError> {
    let hub = HubBeside::find(name, "libpcap")?;
    let Some(group) = hub.as_ref().and_then(HubBeside::whole) else {
        return Ok(None);
    };
    let capture = at_hub(&DeviceSpec::new(&kinds::HUB, group), settings)?;
    if capture.0.interface.as_deref() != Some(name) {
        return Ok(None);
    }
    messages::once(&format!("{name} is read through hub:{group}"));
    Ok(Some(capture))
}

fn ringtap_device(device: &DeviceSpec, settings: &PcapSettings) -> Result<Capturing, LibpcapError> {
    if settings.rfmon != 0 {
        let text = format!("{device}: Ringtap has no monitor mode");
        return Err(LibpcapError::new(ERROR_RFMON_NOTSUP, text));
    }
    if device.kind.names_a_group() {
        return at_hub(device, settings);
    }
    if device.kind.names_a_file() {
        let text =
            format!("{device}: a program reads files through libpcap: give it the file's name");
        return Err(LibpcapError::general(text));
    }
    by_process(device, settings).map_err(|error| LibpcapError {
        status: status(device, error.status),
        ..error
    })
}

/// libpcap's status number for a capture process that could not open a device.
fn status(device: &DeviceSpec, otherwise: c_int) -> c_int {
    if !device.kind.names_an_interface() {
        return otherwise;
    }
    match Interface::find(&device.name) {
        Err(_) => ERROR_NO_SUCH_DEVICE,
        Ok(found) if !found.is_up => ERROR_IFACE_NOT_UP,
        Ok(_) if !rustix::process::geteuid().is_root() => ERROR_PERM_DENIED,
        Ok(_) => otherwise,
    }
}

/// During a pause at most one in `PARTS` of a lane's bytes fills, even at the most that one core captures, 16 Gbit/s.
const PARTS: u64 = 8;
const CORE_BYTES_PER_US: u64 = 2_000;
/// The longest pause: half of the shortest time-out that allows it.
const MAX_PAUSE_US: u32 = 5_000;

/// Subscribes to a group of a hub.
fn at_hub(device: &DeviceSpec, settings: &PcapSettings) -> Result<Capturing, LibpcapError> {
    let options = &device.options;
    let socket = options.socket.as_ref().map(PathBuf::from);
    let request = SubscriptionRequest {
        private: options.private,
        watermark: Watermark::or_default(options.watermark, options.limit_ms, options.distance_us),
        ..SubscriptionRequest::new(&device.name, program_name())
    };
    let socket = socket.unwrap_or_else(|| {
        if device.kind.is_of_host {
            host_socket(&device.name)
        } else {
            default_socket()
        }
    });
    let attached = Connection::attach(&socket, &request)?;
    let name = format!("{}:{}", device.kind, device.name);
    PcapCapture::new(name, attached, settings, Duration::ZERO)
}

/// Starts a process that captures for this handle.
fn by_process(device: &DeviceSpec, settings: &PcapSettings) -> Result<Capturing, LibpcapError> {
    let name = with_settings(device, settings)?.to_string();
    let socket = helper::start(&name).map_err(|error| {
        LibpcapError::general(format!("{name}: the capture cannot be started: {error}"))
    })?;
    let request = SubscriptionRequest::new(ONLY_GROUP, program_name());
    let connection = Connection::over(Box::new(socket), &request.name)?;
    let mut subscription = connection.subscribe(&request)?;
    // Where each packet takes a whole cell, a pool holds too few packets for long pauses.
    if settings.lets_packets_wait() && !device.kind.has_cells {
        let pools = subscription.endpoints.iter();
        let least = pools.map(|one| pause_us(one.pool.geometry())).min();
        subscription.watermark.distance_us = least.unwrap_or(subscription.watermark.distance_us);
    }
    let attached = (subscription, Arc::new(connection));
    PcapCapture::new(name, attached, settings, CLOSE_TIMEOUT)
}

/// Pauses between two reads while packets come fast: each saves wake-ups, and must not cost packets, even if they
/// suddenly come as fast as one core can capture them.
fn pause_us(pool: &Geometry) -> u32 {
    let chunks = u64::from(pool.chunk_count / pool.lane_count.max(1));
    let lane_bytes = chunks * u64::from(pool.chunk_size);
    to_u32(lane_bytes / PARTS / CORE_BYTES_PER_US)
        .clamp(Watermark::default().distance_us, MAX_PAUSE_US)
}

/// The device with the handle's settings; options in the device's name come first.
fn with_settings(device: &DeviceSpec, settings: &PcapSettings) -> Result<DeviceSpec, LibpcapError> {
    let own = &device.options;
    let snap = Some(settings.snap_length()).filter(|snap| *snap < LONG_SNAP_BYTES);
    let buffer = settings
        .buffer_bytes
        .and_then(|bytes| u64::try_from(bytes).ok());
    let buffer = buffer.filter(|bytes| *bytes > USUAL_POOL_BYTES);
    let is_live = device.kind.names_an_interface();
    let by_nic = settings.tstamp_type == Some(TSTAMP_ADAPTER_UNSYNCED);
    let flags = Options {
        snap_length: snap.filter(|_| own.snap_length.is_none()),
        pool: buffer.filter(|_| own.pool.is_none()).map(Size),
        stamps: (is_live && own.stamps.is_none() && by_nic).then_some(StampClock::Nic),
        promiscuous: (is_live && own.promiscuous.is_none()).then_some(settings.promiscuous != 0),
        ..Options::default()
    };
    let device = device.with_flags(&flags);
    device.map_err(|error| LibpcapError::general(error.to_string()))
}

fn program_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm");
    name.map_or_else(|_| "libpcap".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_as_long_as_a_lane_allows() {
        let us = |chunks, lanes| {
            let pool = Geometry::contiguous(64 << 10, chunks, lanes, 1500).unwrap();
            pause_us(&pool)
        };
        assert_eq!(us(2049, 2), 4194, "128 MiB, two CPUs");
        assert_eq!(us(2049, 64), 131, "64 CPUs");
        assert_eq!(us(8193, 2), MAX_PAUSE_US, "512 MiB");
        assert_eq!(us(33, 2), Watermark::default().distance_us, "2 MiB");
    }
}
