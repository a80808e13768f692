// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a guest the host's load and free memory, in a page that the guest reads in place.
//!
//! On the host: `telemetry host QMP_SOCKET`. In the guest, as root: `telemetry guest`.

mod page;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::guest::{FromHost, HostLink};
use ringtap_vnplug::host::{GuestLimits, GuestVm, serve};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", socket] => host(Path::new(socket)),
        ["guest"] => guest(),
        _ => Err("usage: telemetry host QMP_SOCKET | telemetry guest".into()),
    }
}

fn host(socket: &Path) -> Result<(), Box<dyn Error>> {
    let mut vm = GuestVm::attach(socket, GuestLimits::default())?;
    let mut telemetry = page::Telemetry::plug(&mut vm, Duration::from_secs(1))?;
    Ok(serve(&mut vm, &mut [&mut telemetry], &|| false)?)
}

fn guest() -> Result<(), Box<dyn Error>> {
    let mut link = HostLink::connect(Duration::from_secs(60))?;
    let mut page = None;
    loop {
        match link.next(None)? {
            Some(FromHost::DeviceAdded(device, page::APPLICATION)) => {
                let mapped = link.map(device, Duration::from_secs(10))?;
                if mapped.header.kind == DeviceKind::Bulk {
                    page = Some(mapped);
                }
            }
            Some(FromHost::Signal(..)) => {
                let figures = page.as_ref().and_then(page::read);
                println!("change, [load × 100, free KiB, uptime s]: {figures:?}");
            }
            Some(FromHost::DeviceLeaving(device)) => {
                page = page.filter(|page| page.header.device != device);
                link.release(device)?;
            }
            Some(FromHost::Left) => return Ok(()),
            _ => {}
        }
    }
}
