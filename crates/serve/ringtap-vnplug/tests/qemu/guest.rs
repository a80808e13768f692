// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only program of the tests' virtual machines: starts the guest, runs and restarts an agent.
//!
//! The agent serves two applications: `telemetry`, and one that checks every part of the framework. It
//! reports on the serial console.

#[path = "../../examples/telemetry/page.rs"]
#[expect(dead_code, reason = "the host's half runs in the test")]
mod page;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_vnplug::ctrl::frame;
use ringtap_vnplug::ctrl::message::{ApplicationMessage, Message};
use ringtap_vnplug::device::{DeviceKind, HEADER_BYTES, SharedId};
use ringtap_vnplug::guest::{GuestDevice, HostLink};
use rustix::mount::{MountFlags, mount};

/// Modules of Debian's cloud kernel, in the order of their dependencies.
const MODULES: &str = "/modules";
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    if std::process::id() == 1 {
        start();
    }
    if let Err(error) = agent() {
        println!("GUEST error: {error}");
    }
}

/// What an init does.
fn start() -> ! {
    let none = MountFlags::empty();
    for (kind, folder) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        let _ = fs::create_dir_all(folder);
        if let Err(error) = mount(kind, folder, kind, none, None) {
            println!("GUEST {folder}: {error}");
        }
    }
    let list = fs::read_to_string(format!("{MODULES}/list")).unwrap_or_default();
    for name in list.lines() {
        let loaded = fs::File::open(format!("{MODULES}/{name}"))
            .and_then(|file| Ok(rustix::system::finit_module(file, c"", 0)?));
        if let Err(error) = loaded {
            println!("GUEST module {name}: {error}");
        }
    }
    println!("GUEST started");
    loop {
        let ended = Command::new("/init").status();
        println!("GUEST agent ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn agent() -> Result<(), Box<dyn Error>> {
    let mut link = HostLink::connect("check", LIMIT)?;
    println!("GUEST connected");
    let mut devices: BTreeMap<SharedId, GuestDevice> = BTreeMap::new();
    loop {
        match link.next(None)? {
            Some(Message::DeviceAdded { device, .. }) => match link.map(device, LIMIT) {
                Ok(mapped) => drop(devices.insert(device, mapped)),
                Err(error) => println!("GUEST {error}"),
            },
            Some(Message::DeviceLeaving { device }) => {
                devices.remove(&device);
                link.release(device)?;
            }
            Some(Message::Signal { device, vector }) => {
                let header = |one: &GuestDevice| *one.memory.header();
                let application = devices.get(&device).map(|one| header(one).application);
                if application == Some(page::APPLICATION) {
                    let bulk = |one: &&GuestDevice| {
                        header(one).application == page::APPLICATION
                            && header(one).kind == DeviceKind::Bulk
                    };
                    let figures = devices.values().find(bulk).and_then(page::read);
                    println!("GUEST telemetry {figures:?}");
                } else if let Some(one) = devices.get(&device) {
                    let count = one.memory.words::<AtomicU64>(8 * usize::from(vector), 1);
                    count.ok_or("no word")?[0].fetch_add(1, SeqCst);
                    link.signal(device, vector)?;
                }
            }
            Some(Message::Application(message)) => {
                let answer = answer(&message, &devices);
                match message.kind {
                    4 => return Err("asked to end".into()),
                    5 => return end_in_the_middle_of_a_message(link),
                    _ => link.send(ApplicationMessage {
                        payload: answer,
                        ..message
                    })?,
                }
            }
            _ => {}
        }
    }
}

/// The answer to a message of the checking application.
fn answer(message: &ApplicationMessage, devices: &BTreeMap<SharedId, GuestDevice>) -> Vec<u8> {
    let id = message
        .payload
        .first_chunk()
        .map(|id| u64::from_le_bytes(*id));
    let device = devices.get(&SharedId(id.unwrap_or(0)));
    let sum = |device: &GuestDevice| {
        let words = device
            .memory
            .words::<AtomicU64>(0, device.memory.bytes() / 8);
        let words = words.map(|words| words.iter().map(|one| one.load(SeqCst)).sum());
        words.unwrap_or(0_u64)
    };
    match (message.kind, device) {
        (2, Some(device)) => sum(device).to_le_bytes().to_vec(),
        (3, Some(device)) => match write_into(device) {
            Ok(()) => sum(device).to_le_bytes().to_vec(),
            Err(error) => error.to_string().into_bytes(),
        },
        _ => message.payload.clone(),
    }
}

/// Maps the device writable, as only root can, and stores into all of it.
fn write_into(device: &GuestDevice) -> std::io::Result<()> {
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let file = entry?.path().join("resource2");
        let Ok(file) = OpenOptions::new().read(true).write(true).open(file) else {
            continue;
        };
        let bytes = HEADER_BYTES + device.memory.bytes();
        let Ok(mapping) = Mapping::new(file, bytes, Access::ReadWrite) else {
            continue;
        };
        let words = Arc::new(mapping).words::<AtomicU64>(0, bytes / 8);
        let words = words.ok_or(std::io::ErrorKind::InvalidInput)?;
        if words[2].load(SeqCst) == device.memory.header().device.0 {
            words.iter().for_each(|word| word.store(u64::MAX, SeqCst));
            return Ok(());
        }
    }
    Err(std::io::Error::other("no device could be mapped writable"))
}

/// Leaves noise and half a message on the port, and is killed.
fn end_in_the_middle_of_a_message(link: HostLink) -> Result<(), Box<dyn Error>> {
    drop(link);
    let ports = fs::read_dir("/sys/class/virtio-ports")?;
    let port: PathBuf = ports
        .filter_map(|port| Some(port.ok()?.path()))
        .find(|port| {
            fs::read_to_string(port.join("name")).is_ok_and(|name| name.contains("vnplug"))
        })
        .ok_or("no port")?;
    let device = PathBuf::from("/dev").join(port.file_name().ok_or("no name")?);
    let mut file = OpenOptions::new().write(true).open(device)?;
    let noise: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    file.write_all(&noise)?;
    let whole = frame::encode(&[7; 1000]);
    file.write_all(whole.get(..500).unwrap_or_default())?;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    Ok(())
}
