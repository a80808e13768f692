// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves the interrupts of an interface to a CPU, and its NAPI to threads.
//!
//! Invariants
//! - Dropping the guard restores all changed settings, the last one first.
//! - The caller sees the old value of a setting before the setting changes.
//! - A note names what an interface lacks: a software device has no interrupts.
//! - A setting that another process stored names nothing but what this module changes.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::thread::Pid;
use serde::{Deserialize, Serialize};

use crate::cpu;

/// Bytes of an interface's name with its end, in the kernel.
const INTERFACE_BYTES: usize = 16;

/// The settings to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// CPU for the receive interrupts and the NAPI threads.
    pub cpu: Option<usize>,
    /// Run NAPI in threads, which the scheduler can place.
    pub threaded: bool,
}

/// Reason why a setting cannot change.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterruptsError {
    /// The interface does not poll, or the kernel is too old.
    #[error(
        "NAPI of {interface} cannot run in threads ({reason}): leave out napi=threaded; for a veth, \
         attach an XDP program or switch GRO on"
    )]
    NotThreaded {
        interface: String,
        reason: io::Error,
    },
    /// An interrupt stays where it is.
    #[error(
        "interrupt {irq} of {interface} cannot be moved to CPU {cpu} ({reason}): choose another CPU"
    )]
    NotMoved {
        interface: String,
        irq: u32,
        cpu: usize,
        reason: io::Error,
    },
    /// A NAPI thread stays where it is.
    #[error("the NAPI threads of {interface} cannot run on CPU {cpu}: {reason}")]
    NotPinned {
        interface: String,
        cpu: usize,
        reason: io::Error,
    },
}

/// Folders with the kernel's files of these settings; other ones in tests.
#[derive(Clone, Debug)]
struct Files {
    proc: PathBuf,
    sys: PathBuf,
}

impl Default for Files {
    fn default() -> Self {
        Files {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

impl Files {
    /// The kernel's file of a setting.
    fn path_of(&self, name: &SettingName) -> PathBuf {
        match name {
            SettingName::Irq(irq) => self.proc.join(format!("irq/{irq}/smp_affinity_list")),
            SettingName::Threaded(interface) => {
                self.sys.join(format!("class/net/{interface}/threaded"))
            }
        }
    }
}

/// Name of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingName {
    /// CPUs of the interrupt with this number.
    Irq(u32),
    /// NAPI threads of the interface with this name.
    Threaded(String),
}

/// A setting before its change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the setting.
    pub name: SettingName,
    /// The text of the kernel's file.
    pub text: String,
}

impl Setting {
    /// Whether name and text are such as this module stores.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        let text = self.text.as_bytes();
        match &self.name {
            SettingName::Irq(_) => {
                let is_list = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b',' | b'-');
                !text.is_empty() && text.iter().all(is_list)
            }
            SettingName::Threaded(interface) => {
                let is_name = !matches!(interface.as_str(), "" | "." | "..")
                    && interface.len() < INTERFACE_BYTES
                    && !interface.contains('/');
                is_name && matches!(text, [digit] if digit.is_ascii_digit())
            }
        }
    }

    /// The kernel's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Files::default().path_of(&self.name)
    }

    /// Restores the setting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] unless it [is usual](Self::is_usual). The kernel's;
    /// [`io::ErrorKind::NotFound`] if the interface is gone.
    pub fn put_back(&self) -> io::Result<()> {
        self.put_back_in(&Files::default())
    }

    fn put_back_in(&self, files: &Files) -> io::Result<()> {
        if self.is_usual() {
            write(&files.path_of(&self.name), &self.text)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

/// Writes a file of the kernel, which is not created.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// A function that gets each setting before its change.
pub type Keep<'a> = &'a mut dyn FnMut(&Setting) -> io::Result<()>;

/// Changed settings; dropping this restores them.
#[derive(Debug, Default)]
pub struct Interrupts {
    files: Files,
    changed: Vec<Setting>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Interrupts {
    /// Changes the settings of an interface that is already in use.
    ///
    /// Calls `keep` before each change, so that a later process can restore the settings of a caller
    /// that was killed.
    ///
    /// # Errors
    ///
    /// Every [`InterruptsError`], after restoring earlier changes. An error of `keep` prevents the
    /// change.
    pub fn steer(
        interface: &str,
        steering: Steering,
        keep: Keep<'_>,
    ) -> Result<Self, InterruptsError> {
        Self::steer_in(&Files::default(), interface, steering, keep)
    }

    fn steer_in(
        files: &Files,
        interface: &str,
        steering: Steering,
        keep: Keep<'_>,
    ) -> Result<Self, InterruptsError> {
        let mut steered = Interrupts {
            files: files.clone(),
            changed: Vec::new(),
            notes: Vec::new(),
        };
        let threads = if steering.threaded {
            steered.thread(files, interface, keep)?
        } else {
            Vec::new()
        };
        let Some(cpu) = steering.cpu else {
            return Ok(steered);
        };
        let irqs = receive_irqs(files, interface);
        for irq in &irqs {
            steered
                .write(SettingName::Irq(*irq), &cpu.to_string(), keep)
                .map_err(|reason| InterruptsError::NotMoved {
                    interface: interface.to_owned(),
                    irq: *irq,
                    cpu,
                    reason,
                })?;
        }
        for thread in &threads {
            cpu::bind(Pid::from_raw(*thread), &[cpu]).map_err(|reason| {
                InterruptsError::NotPinned {
                    interface: interface.to_owned(),
                    cpu,
                    reason,
                }
            })?;
        }
        if irqs.is_empty() && threads.is_empty() {
            steered.notes.push(format!(
                "{interface} has no interrupts: the CPU that sends its packets receives them, and \
                 irq={cpu} has no effect (napi=threaded would change that)"
            ));
        }
        Ok(steered)
    }

    /// Switches threaded NAPI on; returns the new threads.
    fn thread(
        &mut self,
        files: &Files,
        interface: &str,
        keep: Keep<'_>,
    ) -> Result<Vec<i32>, InterruptsError> {
        let before = napi_threads(files, interface);
        self.write(SettingName::Threaded(interface.to_owned()), "1", keep)
            .map_err(|reason| InterruptsError::NotThreaded {
                interface: interface.to_owned(),
                reason,
            })?;
        // Interfaces of other network namespaces may have the same name, and threads already.
        let after = napi_threads(files, interface);
        Ok(after.difference(&before).copied().collect())
    }

    /// Writes a setting, unless it has this value already.
    fn write(&mut self, name: SettingName, text: &str, keep: Keep<'_>) -> io::Result<()> {
        let path = self.files.path_of(&name);
        let before = fs::read_to_string(&path)?.trim().to_owned();
        if before != text {
            let setting = Setting { name, text: before };
            keep(&setting)?;
            write(&path, text)?;
            self.changed.push(setting);
        }
        Ok(())
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for setting in self.changed.drain(..).rev() {
            // An interface that is gone has no settings.
            let _gone = setting.put_back_in(&self.files);
        }
    }
}

/// The CPU that receives an interface's packets, if the interface has interrupts.
#[must_use]
pub fn receiving_cpu(interface: &str) -> Option<usize> {
    receiving_cpu_in(&Files::default(), interface)
}

fn receiving_cpu_in(files: &Files, interface: &str) -> Option<usize> {
    let irq = *receive_irqs(files, interface).first()?;
    let folder = files.proc.join(format!("irq/{irq}"));
    let effective = fs::read_to_string(folder.join("effective_affinity_list"));
    let list = effective.or_else(|_| fs::read_to_string(folder.join("smp_affinity_list")));
    cpu::list(&list.ok()?).first().copied()
}

/// The interrupts by which packets arrive: those of the device, without the ones that only its
/// configuration or its sending uses.
fn receive_irqs(files: &Files, interface: &str) -> Vec<u32> {
    let device = files.sys.join(format!("class/net/{interface}/device"));
    // A virtio device's interrupts are those of the PCI device around it.
    let Ok(device) = fs::canonicalize(device) else {
        return Vec::new();
    };
    let around = device.parent().map(Path::to_path_buf);
    let folders = [Some(device), around];
    let irqs = folders
        .into_iter()
        .flatten()
        .find_map(|folder| fs::read_dir(folder.join("msi_irqs")).ok());
    let names = fs::read_to_string(files.proc.join("interrupts")).unwrap_or_default();
    let mut found: Vec<u32> = irqs
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|irq| receives(&names, *irq))
        .collect();
    found.sort_unstable();
    found
}

/// Whether the name in `/proc/interrupts` is not that of a sending or configuration interrupt.
fn receives(names: &str, irq: u32) -> bool {
    let number = format!("{irq}:");
    let line = names
        .lines()
        .find(|line| line.trim_start().starts_with(&number));
    let name = line.and_then(|line| line.split_whitespace().last());
    name.is_some_and(|name| {
        let name = name.to_lowercase();
        let is_both = name.contains("txrx");
        let others = ["-tx", "output", "config", "mgmnt", "async", "ctrl"];
        is_both || !others.iter().any(|other| name.contains(other))
    })
}

/// Kernel threads that poll interfaces of this name.
fn napi_threads(files: &Files, interface: &str) -> BTreeSet<i32> {
    let start = format!("napi/{interface}-");
    let Ok(entries) = fs::read_dir(&files.proc) else {
        return BTreeSet::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            name.starts_with(&start).then_some(id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "           CPU0       CPU1
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      85332 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:      62923          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 40:          0          0 PCI-MSIX-0000:00:04.0   0-edge      i40e-eth1-TxRx-0
";

    /// A machine with `eth0`, whose interrupts are 37 to 39.
    fn machine() -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        let around = files.sys.join("devices/pci0/0000:00:03.0");
        for irq in [37, 38, 39] {
            fs::create_dir_all(around.join("msi_irqs")).unwrap();
            fs::write(around.join(format!("msi_irqs/{irq}")), "msix").unwrap();
            let place = files.proc.join(format!("irq/{irq}"));
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("smp_affinity_list"), "0-1\n").unwrap();
            fs::write(place.join("effective_affinity_list"), "1\n").unwrap();
        }
        fs::create_dir_all(around.join("virtio2")).unwrap();
        for interface in ["eth0", "veth0"] {
            fs::create_dir_all(files.sys.join("class/net").join(interface)).unwrap();
            let threaded = files.sys.join(format!("class/net/{interface}/threaded"));
            fs::write(threaded, "0\n").unwrap();
        }
        let device = files.sys.join("class/net/eth0/device");
        std::os::unix::fs::symlink(around.join("virtio2"), device).unwrap();
        fs::write(files.proc.join("interrupts"), NAMES).unwrap();
        (folder, files)
    }

    fn affinity(files: &Files, irq: u32) -> String {
        let path = files.proc.join(format!("irq/{irq}/smp_affinity_list"));
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    #[test]
    fn receive_interrupts_are_moved_and_go_back() {
        let (_folder, files) = machine();
        assert_eq!(receiving_cpu_in(&files, "eth0"), Some(1));
        let steering = Steering {
            cpu: Some(0),
            threaded: true,
        };
        let mut kept = Vec::new();
        let mut keep = |setting: &Setting| {
            let now = fs::read_to_string(files.path_of(&setting.name))?;
            assert_eq!(now.trim(), setting.text, "told before it is changed");
            kept.push(setting.clone());
            Ok(())
        };
        let steered = Interrupts::steer_in(&files, "eth0", steering, &mut keep).unwrap();
        assert_eq!(kept, steered.changed);
        assert!(steered.notes.is_empty(), "{:?}", steered.notes);
        assert_eq!(affinity(&files, 38), "0");
        assert_eq!(
            affinity(&files, 39),
            "0-1",
            "packets do not arrive by that one"
        );
        let threaded = files.sys.join("class/net/eth0/threaded");
        assert_eq!(fs::read_to_string(&threaded).unwrap(), "1");
        drop(steered);
        assert_eq!(affinity(&files, 38), "0-1");
        assert_eq!(fs::read_to_string(&threaded).unwrap(), "0");
    }

    #[test]
    fn a_device_without_interrupts_is_told() {
        let (_folder, files) = machine();
        assert_eq!(receiving_cpu_in(&files, "veth0"), None);
        let steering = Steering {
            cpu: Some(0),
            threaded: false,
        };
        let steered = Interrupts::steer_in(&files, "veth0", steering, &mut |_| Ok(())).unwrap();
        assert!(
            steered.notes[0].contains("has no interrupts"),
            "{:?}",
            steered.notes
        );
    }

    #[test]
    fn an_interrupt_for_both_ways_is_a_receive_interrupt() {
        assert!(receives(NAMES, 40));
        assert!(!receives(NAMES, 39));
        assert!(!receives(NAMES, 37));
        assert!(!receives(NAMES, 99));
    }

    #[test]
    fn what_nobody_keeps_is_not_changed() {
        let (_folder, files) = machine();
        let steering = Steering {
            cpu: Some(0),
            threaded: false,
        };
        let mut keep = |_: &Setting| Err(io::ErrorKind::BrokenPipe.into());
        let refused = Interrupts::steer_in(&files, "eth0", steering, &mut keep);
        assert!(matches!(refused, Err(InterruptsError::NotMoved { .. })));
        assert_eq!(affinity(&files, 38), "0-1");
    }

    #[test]
    fn a_failure_in_between_changes_everything_back() {
        let (_folder, files) = machine();
        fs::remove_file(files.proc.join("irq/38/smp_affinity_list")).unwrap();
        let steering = Steering {
            cpu: Some(0),
            threaded: true,
        };
        let error = Interrupts::steer_in(&files, "eth0", steering, &mut |_| Ok(())).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("interrupt 38 of eth0 cannot be moved to CPU 0")
        );
        let threaded = files.sys.join("class/net/eth0/threaded");
        assert_eq!(fs::read_to_string(threaded).unwrap(), "0");
    }
}
