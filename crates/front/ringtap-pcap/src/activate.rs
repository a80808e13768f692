// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a handle with its settings to a capture.
//!
//! Invariants
//! - A capture misses nothing from the moment that this returns.
//! - What was chosen for a plain interface is said, once.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringtap_client::{Attachment, Connection, Lender, Receiver, Wish, default_socket};
use ringtap_device::{DeviceSpec, Kind, Options, Size};
use ringtap_filter::LinkType;

use crate::abi::{ERROR_IFACE_NOT_UP, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED};
use crate::abi::{ERROR_RFMON_NOTSUP, TSTAMP_HOST, WARNING_TSTAMP_TYPE_NOTSUP};
use crate::error::Refused;
use crate::handle::PcapHandle;
use crate::helper::{self, Stay};
use crate::live::{Facts, Live};
use crate::plain::{self, Target};
use crate::say;
use crate::settings::Settings;

/// The one group of a helper.
const ONLY_GROUP: &str = "lent";
/// Snap lengths from here on need not be told to a source: no frame is longer.
const LONG_SNAP_BYTES: u32 = 65_535;
/// A pool is never made smaller than it usually is because a program asks for libpcap's sizes.
const USUAL_POOL_BYTES: u64 = 128 << 20;

/// How it went.
pub(crate) enum Outcome {
    /// Captures; a status of zero, or a warning.
    Live(c_int),
    /// The real library is to open it.
    Real,
}

/// Begins to capture, if the device is one of ours.
pub(crate) fn activate(handle: &PcapHandle) -> Result<Outcome, Refused> {
    let settings = handle.settings().clone();
    handle.token().prepare_wakeup().map_err(Refused::general)?;
    let live = match Target::of(settings.source.as_deref(), plain::via().as_deref())? {
        Target::Real => return Ok(Outcome::Real),
        Target::Device(device) => device_of_ours(&device, &settings)?,
        Target::Plain(name) => match plain_interface(&name, &settings) {
            Ok(live) => live,
            Err(None) => return Ok(Outcome::Real),
            Err(Some(reason)) => {
                say::once(&format!("{name} is read through libpcap: {reason}"));
                return Ok(Outcome::Real);
            }
        },
    };
    let warning = match settings.tstamp_type {
        None | Some(TSTAMP_HOST) => 0,
        Some(_) => WARNING_TSTAMP_TYPE_NOTSUP,
    };
    match handle.go_live(live) {
        0 => Ok(Outcome::Live(warning)),
        _ => Err(Refused::general("the handle is being activated already")),
    }
}

/// A hub that captures it, else a capture of our own; else why not, if that is worth a word.
fn plain_interface(name: &str, settings: &Settings) -> Result<Live, Option<String>> {
    if let Some(beyond) = settings.beyond_us() {
        return Err(Some(beyond.to_owned()));
    }
    // The real library knows best what to say of these.
    if plain::is_up(name) != Some(true) || !plain::is_known_type(name) {
        return Err(None);
    }
    match through_hub(name, settings) {
        Ok(Some(live)) => return Ok(live),
        Ok(None) => {}
        Err(refused) => say::once(&format!("{name}: not through the hub: {refused}")),
    }
    let device = DeviceSpec::new(Kind::Auto, name);
    match by_helper(&device, settings) {
        Ok((live, device)) => {
            say::once(&format!("{name} is captured by {device}"));
            Ok(live)
        }
        Err(refused) => Err(Some(refused.text)),
    }
}

/// A subscription in a group of the hub that gives exactly what the interface gives, if there is one.
fn through_hub(name: &str, settings: &Settings) -> Result<Option<Live>, Refused> {
    let Some(group) = plain::group_for(name)? else {
        return Ok(None);
    };
    let live = at_hub(&DeviceSpec::new(Kind::Hub, &group), settings)?;
    if live.facts.interface.as_deref() != Some(name) {
        return Ok(None);
    }
    say::once(&format!("{name} is read through hub:{group}"));
    Ok(Some(live))
}

fn device_of_ours(device: &DeviceSpec, settings: &Settings) -> Result<Live, Refused> {
    if settings.rfmon != 0 {
        let text = format!("{device}: Ringtap has no monitor mode");
        return Err(Refused::new(ERROR_RFMON_NOTSUP, text));
    }
    if device.kind == Kind::Hub {
        return at_hub(device, settings);
    }
    let opened = by_helper(device, settings);
    let (live, _) = opened.map_err(|refused| explain(device, refused))?;
    Ok(live)
}

/// The number that libpcap has for what the helper said.
fn explain(device: &DeviceSpec, refused: Refused) -> Refused {
    let status = match plain::is_up(&device.name) {
        _ if !device.kind.names_an_interface() => refused.status,
        None => ERROR_NO_SUCH_DEVICE,
        Some(false) => ERROR_IFACE_NOT_UP,
        Some(true) if !rustix::process::geteuid().is_root() => ERROR_PERM_DENIED,
        Some(true) => refused.status,
    };
    Refused::new(status, refused.text)
}

/// A subscription in a group of a hub.
fn at_hub(device: &DeviceSpec, settings: &Settings) -> Result<Live, Refused> {
    let options = &device.options;
    let socket = options.socket.as_ref().map(PathBuf::from);
    let wish = Wish {
        group: device.name.clone(),
        name: program_name(),
        private: options.private,
        watermark_packets: options.watermark,
        time_limit: options.limit_ms.map(|ms| Duration::from_millis(ms.into())),
        ..Wish::default()
    };
    let attachment = Connection::attach(&socket.unwrap_or_else(default_socket), &wish)?;
    let stay = Stay::at_hub(Arc::clone(&attachment.control));
    let (live, _) = live(&format!("hub:{}", device.name), attachment, settings, stay)?;
    Ok(live)
}

/// A capture by a process of its own; tells also what it captures from.
fn by_helper(device: &DeviceSpec, settings: &Settings) -> Result<(Live, String), Refused> {
    let device = with_settings(device, settings)?;
    let socket = helper::start(&device.to_string()).map_err(|error| {
        Refused::general(format!("{device}: the capture cannot be started: {error}"))
    })?;
    let wish = Wish {
        group: ONLY_GROUP.into(),
        name: program_name(),
        ..Wish::default()
    };
    let attachment = Connection::attach_over(socket, &wish)?;
    let stay = Stay::at_helper(Arc::clone(&attachment.control));
    live(&device.to_string(), attachment, settings, stay)
}

/// The device with what the program set, where its own text says nothing.
fn with_settings(device: &DeviceSpec, settings: &Settings) -> Result<DeviceSpec, Refused> {
    let own = &device.options;
    let snap = Some(settings.snap_length()).filter(|snap| *snap < LONG_SNAP_BYTES);
    let buffer = settings
        .buffer_bytes
        .and_then(|bytes| u64::try_from(bytes).ok());
    let buffer = buffer.filter(|bytes| *bytes > USUAL_POOL_BYTES);
    let is_live = device.kind.names_an_interface();
    let flags = Options {
        snap_length: snap.filter(|_| own.snap_length.is_none()),
        pool: buffer.filter(|_| own.pool.is_none()).map(Size),
        promiscuous: (is_live && own.promiscuous.is_none()).then_some(settings.promiscuous != 0),
        ..Options::default()
    };
    let device = device.with_flags(&flags);
    device.map_err(|error| Refused::general(error.to_string()))
}

/// The capture at a subscription, and what it captures from.
fn live(
    name: &str,
    attachment: Attachment,
    settings: &Settings,
    stay: Stay,
) -> Result<(Live, String), Refused> {
    let connection = Arc::clone(&attachment.control);
    let receiver = Receiver::new(attachment.subscription, attachment.control)?.by_time();
    let sources: Vec<_> = receiver.facts().cloned().collect();
    let first = sources.first().map_or(1, |source| source.link_type);
    if sources.iter().any(|source| source.link_type != first) {
        let text = format!("{name}: its sources have different link types: read them one by one");
        return Err(Refused::general(text));
    }
    let devices: Vec<_> = sources.iter().map(|source| &*source.device).collect();
    let told = devices.join(", ");
    let interface = match &sources[..] {
        [only] => only.interface.clone(),
        _ => None,
    };
    let facts = Facts {
        name: name.to_owned(),
        interface,
        dlt: LinkType(first).dlt().into(),
        snap_bytes: settings.snap_length(),
        nanoseconds: settings.nanoseconds(),
        timeout: settings.timeout(),
        is_file: sources
            .iter()
            .all(|source| source.device.starts_with("pcap:")),
    };
    let lender = Lender::new(receiver);
    let live = Live::new(facts, lender, connection, stay, settings.nonblock != 0);
    Ok((live, told))
}

fn program_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm");
    name.map_or_else(|_| "libpcap".to_owned(), |name| name.trim().to_owned())
}
