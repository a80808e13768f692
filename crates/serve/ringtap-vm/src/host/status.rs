// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ringtap vm list` and `ringtap vm detach` ask the process of a virtual machine: one word on a
//! UNIX socket in a folder of this user only.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringtap_vnplug::device::{DeviceKind, MappingKind, SharedId};
use ringtap_vnplug::host::HostDevice;
use serde::{Deserialize, Serialize};

use super::commands::ActiveSubscriptions;
use super::{GroupOptions, lock};
use crate::messages::GuestCounters;

/// Longest wait for a request or a report of the process at the other end.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Most bytes of a report.
const MOST_REPORT_BYTES: u64 = 1024 * 1024;

/// A virtual machine as `ringtap vm list --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReport {
    /// Always `vm`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Process id of `ringtap vm attach`.
    pub pid: u32,
    /// QMP socket of the virtual machine; absent for a domain of libvirt.
    pub qmp: Option<PathBuf>,
    /// The hub.
    pub hub: PathBuf,
    /// Whether an agent in the guest is connected.
    pub agent: bool,
    /// The devices.
    pub devices: Vec<DeviceReport>,
    /// The groups that the guest may read.
    pub groups: Vec<GroupReport>,
    /// Messages of the guest that were damaged or of an unknown form.
    pub refused_messages: u64,
    /// Answers that the guest did not take.
    pub lost_answers: u64,
    /// What would be faster, or is missing.
    pub advice: Vec<String>,
}

/// A device of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// `pool`, `control`, or `source`: the pool of the hub's source.
    pub device: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// How the guest maps it; absent: not mapped.
    pub mapping: Option<String>,
    /// Whether signals interrupt the guest.
    pub interrupts: bool,
}

/// A group that a guest may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub group: String,
    /// Name of the subscription at the hub; absent: the guest has not subscribed.
    pub reader: Option<String>,
    /// Why the filter does not run in the host's kernel; absent if it does.
    pub not_in_source: Option<String>,
    /// Why packets are copied although the guest maps the hub's pool; absent if they are not, or it does
    /// not.
    #[serde(default)]
    pub copied_because: Option<String>,
    /// The counters of the subscription, without losses before the hub's readers.
    pub counters: GuestCounters,
}

/// State of a virtual machine, for reports.
pub(super) struct VmState {
    options: GroupOptions,
    pub(super) has_agent: bool,
    pub(super) devices: BTreeMap<SharedId, DeviceState>,
    pub(super) subscriptions: ActiveSubscriptions,
    pub(super) refused_messages: u64,
    pub(super) lost_answers: u64,
}

/// State of a device.
pub(super) struct DeviceState {
    name: &'static str,
    kind: DeviceKind,
    bytes: u64,
    /// How the guest maps it, and whether it interrupts.
    pub(super) mapped: Option<(MappingKind, bool)>,
}

impl VmState {
    pub(super) fn new(options: &GroupOptions, devices: &[(&'static str, &HostDevice)]) -> Self {
        let mut state = VmState {
            options: options.clone(),
            has_agent: false,
            devices: BTreeMap::new(),
            subscriptions: ActiveSubscriptions::default(),
            refused_messages: 0,
            lost_answers: 0,
        };
        for (name, device) in devices {
            state.add(name, device);
        }
        state
    }

    pub(super) fn add(&mut self, name: &'static str, device: &HostDevice) {
        let state = DeviceState {
            name,
            kind: device.kind(),
            bytes: ringtap_pool::number::to_u64(device.memory().bytes()),
            mapped: None,
        };
        self.devices.insert(device.id(), state);
    }

    pub(super) fn report(&self) -> VmReport {
        let subscriptions = lock(&self.subscriptions);
        let group = |(at, group): (usize, &String)| {
            let active = subscriptions.get(&at);
            GroupReport {
                group: group.clone(),
                reader: active.map(|one| one.reader.clone()),
                not_in_source: active.and_then(|one| one.not_in_source.clone()),
                copied_because: active.and_then(|one| one.copied_because.clone()),
                counters: active.map(|one| one.common.known()).unwrap_or_default(),
            }
        };
        VmReport {
            kind: "vm".to_owned(),
            name: self.options.vm.clone(),
            pid: std::process::id(),
            qmp: self.options.qmp.clone(),
            hub: self.options.socket.clone(),
            agent: self.has_agent,
            devices: self.devices.values().map(DeviceState::report).collect(),
            groups: self.options.groups.iter().enumerate().map(group).collect(),
            refused_messages: self.refused_messages,
            lost_answers: self.lost_answers,
            advice: self.advice(),
        }
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if !self.has_agent {
            advice.push(
                "no agent in the guest: install ringtap there and start `ringtap guest`".to_owned(),
            );
        }
        for device in self.devices.values() {
            match (device.kind, device.mapped) {
                (DeviceKind::Bulk, Some((mapping, _))) if mapping != MappingKind::WriteBack => {
                    advice.push(
                        "the guest does not map the pool as ordinary memory: start QEMU with \
                         pref64-reserve=4G for the pool's port, so that /dev/mem can"
                            .to_owned(),
                    );
                }
                (DeviceKind::Control { .. }, Some((_, false))) => advice.push(
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

impl DeviceState {
    fn report(&self) -> DeviceReport {
        let mapping = |mapping| match mapping {
            MappingKind::WriteBack => "write-back",
            MappingKind::WriteCombining => "write-combining",
            MappingKind::Uncached => "uncached",
            MappingKind::Vfio => "vfio",
        };
        DeviceReport {
            device: self.name.to_owned(),
            bytes: self.bytes,
            mapping: self.mapped.map(|(kind, _)| mapping(kind).to_owned()),
            interrupts: self.mapped.is_some_and(|(_, interrupts)| interrupts),
        }
    }
}

/// Folder of the sockets: `/run/ringtap/vm`, or that of the user's own runtime folder if the user is
/// not root.
#[must_use]
pub fn standard_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(own) if !rustix::process::geteuid().is_root() => Path::new(&own).join("ringtap-vm"),
        _ => "/run/ringtap/vm".into(),
    }
}

/// Socket on which a process answers; its file is removed when this is dropped.
pub struct StatusServer {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusServer {
    /// Claims the name in the folder, which is made if necessary.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if a process serves a virtual machine of this name; the system's.
    pub fn bind(folder: &Path, name: &str) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let path = folder.join(format!("{name}.sock"));
        match UnixStream::connect(&path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            // Left by a process that was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path)?
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        Ok(StatusServer { listener, path })
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

impl Drop for StatusServer {
    fn drop(&mut self) {
        // Fails only if the file is gone already.
        let _gone = fs::remove_file(&self.path);
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
        ask(&self.socket(name)).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => io::ErrorKind::NotFound.into(),
            _ => error,
        })
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
        let mut stream = match UnixStream::connect(self.socket(name)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(io::ErrorKind::NotFound.into());
            }
            connected => connected?,
        };
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

fn ask(path: &Path) -> io::Result<VmReport> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.write_all(b"status")?;
    let mut text = String::new();
    stream.take(MOST_REPORT_BYTES).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests;
