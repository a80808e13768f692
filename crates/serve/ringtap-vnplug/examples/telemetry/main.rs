// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a guest the host's load and free memory, in a page that the guest reads in place.
//!
//! On the host: `telemetry host QMP_SOCKET`. In the guest, as root: `telemetry guest`.

mod page;

use std::error::Error;
use std::time::Duration;

use ringtap_vnplug::ctrl::message::Message;
use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::guest::HostLink;
use ringtap_vnplug::host::{GuestLimits, GuestVm, Monitor, serve};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", socket] => host(Monitor::Qmp(socket.into())),
        ["guest"] => guest(),
        _ => Err("usage: telemetry host QMP_SOCKET | telemetry guest".into()),
    }
}

fn host(monitor: Monitor) -> Result<(), Box<dyn Error>> {
    let mut vm = GuestVm::attach(&monitor, page::NAME, GuestLimits::default())?;
    let mut telemetry = page::Telemetry::plug(&mut vm, Duration::from_secs(1))?;
    Ok(serve(&mut vm, &mut [&mut telemetry], &|| false)?)
}

fn guest() -> Result<(), Box<dyn Error>> {
    let mut link = HostLink::connect(page::NAME, Duration::from_secs(60))?;
    let mut page = None;
    loop {
        match link.next(None)? {
            Some(Message::DeviceAdded {
                device,
                application: page::APPLICATION,
            }) => {
                let mapped = link.map(device, Duration::from_secs(10))?;
                if mapped.memory.header().kind == DeviceKind::Bulk {
                    page = Some(mapped);
                }
            }
            Some(Message::Signal { .. }) => {
                let figures = page.as_ref().and_then(page::read);
                println!("change, [load × 100, free KiB, uptime s]: {figures:?}");
            }
            Some(Message::DeviceLeaving { device }) => {
                page = page.filter(|page| page.memory.header().device != device);
                link.release(device)?;
            }
            _ => {}
        }
    }
}
