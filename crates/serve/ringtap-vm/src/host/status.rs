// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ringtap vm list` and `ringtap vm detach` ask the process of a virtual machine: one word on a
//! UNIX socket in a folder of this user only.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringtap_ipc::environment;
use ringtap_ipc::folder::{Folder, SocketFile};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::text;
use ringtap_vnplug::device::{MappingKind, SharedId};
use ringtap_vnplug::host::{HostDevice, Monitor};
use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};

use super::life::GroupLives;
use super::options::GroupOptions;
use super::report::{DeviceReport, GroupReport, VmReport};

/// Longest wait for a request or a report of the process at the other end, on a busy machine.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Most connections that wait to be accepted.
const WAITING: i32 = 64;
/// Most bytes of a report.
const MAX_REPORT_BYTES: u64 = 1024 * 1024;

/// State of a virtual machine, for reports.
pub(super) struct VmState {
    /// Without devices, groups and advice.
    pub(super) report: VmReport,
    devices: Vec<(SharedId, DeviceReport)>,
    groups: Vec<String>,
    pub(super) lives: GroupLives,
}

impl VmState {
    pub(super) fn new(options: &GroupOptions, devices: &[(&'static str, HostDevice)]) -> Self {
        let device = |(name, device): &(&'static str, HostDevice)| {
            let report = DeviceReport {
                device: (*name).to_owned(),
                bytes: device.memory().header().bytes,
                mapping: None,
                interrupts: false,
            };
            (device.id(), report)
        };
        VmState {
            report: VmReport {
                kind: "vm".to_owned(),
                name: options.vm.clone(),
                pid: std::process::id(),
                qmp: match &options.monitor {
                    Monitor::Qmp(socket) => std::path::absolute(socket).ok(),
                    Monitor::Libvirt(_) => None,
                },
                hub: options.socket.clone(),
                agent: false,
                devices: Vec::new(),
                groups: Vec::new(),
                refused_messages: 0,
                lost_answers: 0,
                advice: Vec::new(),
            },
            devices: devices.iter().map(device).collect(),
            groups: options.groups.clone(),
            lives: GroupLives::default(),
        }
    }

    /// An agent has arrived, or left: nothing is mapped.
    pub(super) fn new_agent(&mut self, is_here: bool) {
        self.report.agent = is_here;
        for (_, device) in &mut self.devices {
            device.mapping = None;
            device.interrupts = false;
        }
    }

    /// The guest has mapped a device.
    pub(super) fn map(&mut self, id: SharedId, mapping: MappingKind, interrupts: bool) {
        let mapping = match mapping {
            MappingKind::WriteBack => "write-back",
            MappingKind::WriteCombining => "write-combining",
            MappingKind::Uncached => "uncached",
            MappingKind::Vfio => "vfio",
        };
        for (_, device) in self.devices.iter_mut().filter(|(one, _)| *one == id) {
            device.mapping = Some(mapping.to_owned());
            device.interrupts = interrupts;
        }
    }

    pub(super) fn full_report(&self) -> VmReport {
        let lives = lock(&self.lives);
        let group = |(at, group): (usize, &String)| match lives.get(&at) {
            Some(life) => life.report(group),
            None => GroupReport {
                group: group.clone(),
                ..GroupReport::default()
            },
        };
        VmReport {
            devices: self.devices.iter().map(|(_, one)| one.clone()).collect(),
            groups: self.groups.iter().enumerate().map(group).collect(),
            advice: self.advice(),
            ..self.report.clone()
        }
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if !self.report.agent {
            advice.push(
                "no agent in the guest: install ringtap there and start `ringtap guest`".to_owned(),
            );
        }
        for (_, device) in &self.devices {
            match (&*device.device, device.mapping.as_deref()) {
                (_, None) => {}
                ("control", _) if !device.interrupts => advice.push(
                    "signals go over the command port: interrupts need KVM, QEMU with -device \
                     intel-iommu,intremap=on, and the guest with intel_iommu=on iommu=pt and vfio-pci"
                        .to_owned(),
                ),
                _ => {}
            }
        }
        advice
    }
}

/// Folder of the sockets: `/run/ringtap/vm`, or that of the user's own runtime folder if the user is
/// not root.
#[must_use]
pub fn standard_folder() -> PathBuf {
    match environment::runtime_folder() {
        Some(own) if !rustix::process::geteuid().is_root() => own.join("ringtap-vm"),
        _ => "/run/ringtap/vm".into(),
    }
}

/// Socket on which a process answers; its file is removed when this is dropped.
pub struct StatusServer {
    listener: UnixListener,
    _file: SocketFile,
}

impl StatusServer {
    /// Claims the name in the folder, which is made if necessary.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if a process serves a virtual machine of this name; the system's.
    pub fn bind(folder: &Path, name: &str) -> io::Result<Self> {
        for above in folder.ancestors().skip(1).collect::<Vec<_>>().iter().rev() {
            let _or_created = Folder::open_or_create(above, 0o755)?;
        }
        let opened = Folder::open_or_create(folder, 0o700)?;
        opened.require_own()?;
        let name = format!("{name}.sock");
        match UnixStream::connect(folder.join(&name)) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            // Left by a process that was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                opened.remove(&name)?
            }
            Err(_) => {}
        }
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let file = SocketFile::bind(opened, name.as_ref(), &socket, 0o600, None);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
            _ => error,
        })?;
        listen(&socket, WAITING)?;
        Ok(StatusServer {
            listener: socket.into(),
            _file: file,
        })
    }

    /// Answers until the process ends: with `report`, or by calling `detach`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start(
        &self,
        report: impl Fn() -> VmReport + Send + 'static,
        detach: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let listener = self.listener.try_clone()?;
        let serve = move || {
            // Open until the process ends: who asked for the end waits for that.
            let mut waiting = Vec::new();
            for mut stream in listener.incoming().flatten() {
                match word(&mut stream) {
                    Ok(word) if word == "status" => {
                        let text = serde_json::to_vec(&report()).unwrap_or_default();
                        // Fails if the other process does not read.
                        let _unread = stream.write_all(&text);
                    }
                    Ok(word) if word == "detach" => {
                        waiting.push(stream);
                        detach();
                    }
                    _ => {}
                }
            }
        };
        std::thread::Builder::new()
            .name("status".into())
            .spawn(serve)?;
        Ok(())
    }
}

fn word(stream: &mut UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    let mut bytes = [0; 16];
    let read = stream.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned())
}

/// The processes of virtual machines in a folder.
pub struct AttachedVms(PathBuf);

impl AttachedVms {
    /// Those of this folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        AttachedVms(folder.to_owned())
    }

    /// A report of each, by name; those that do not answer are left out.
    #[must_use]
    pub fn reports(&self) -> Vec<VmReport> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().filter_map(|path| ask(path).ok()).collect()
    }

    /// The report of the virtual machine of this name.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if no process serves it; the system's.
    pub fn report(&self, name: &str) -> io::Result<VmReport> {
        ask(&self.socket(name))
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.sock"))
    }

    /// Makes a process unplug its devices and end; waits for that at most `limit`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if no process serves a virtual machine of this name;
    /// [`io::ErrorKind::TimedOut`].
    pub fn detach(&self, name: &str, limit: Duration) -> io::Result<()> {
        let mut stream = connect(&self.socket(name))?;
        stream.write_all(b"detach")?;
        stream.set_read_timeout(Some(limit))?;
        match stream.read(&mut [0; 1]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            Err(error) => Err(error),
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).map_err(|error| match error.kind() {
        // Left by a process that was killed.
        io::ErrorKind::ConnectionRefused => io::ErrorKind::NotFound.into(),
        _ => error,
    })
}

fn ask(path: &Path) -> io::Result<VmReport> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.write_all(b"status")?;
    let mut report = Vec::new();
    stream.take(MAX_REPORT_BYTES).read_to_end(&mut report)?;
    Ok(text::from_json(&report, text::MAX_TEXT_BYTES)?)
}

#[cfg(test)]
mod tests;
