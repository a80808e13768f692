// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual machine for tests: Debian's QEMU and cloud kernel, and an initial file system made here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Running, say_skipped, tool_exists};
use ringtap_vnplug::host::{FromGuest, GuestLimits, GuestVm, VmError};
use tempfile::TempDir;

/// Emulation on a busy machine is slow; a test that waits longer has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Most attempts to boot a guest.
const BOOTS: usize = 3;
const QEMU: &str = "qemu-system-x86_64";
/// Modules of the guest's kernel, in the order of their dependencies.
const MODULES: [&str; 12] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/char/virtio_console",
    "virt/lib/irqbypass",
    "drivers/vfio/vfio",
    "drivers/vfio/vfio_virqfd",
    "drivers/vfio/pci/vfio-pci-core",
    "drivers/vfio/pci/vfio-pci",
    "drivers/vfio/vfio_iommu_type1",
];

/// A running virtual machine; killed when dropped.
pub(crate) struct Machine {
    pub(crate) qemu: Running,
    pub(crate) folder: TempDir,
}

impl Machine {
    /// Boots one; `None`, with a line that says why, where that cannot be done.
    pub(crate) fn boot(options: &[&str], kernel_options: &str) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") || !tool_exists(QEMU) || !tool_exists("setpriv") {
            say_skipped("needs an x86-64 machine with qemu-system-x86_64 and setpriv");
            return None;
        }
        let Some(kernel) = kernel_folder() else {
            say_skipped("needs a guest kernel: scripts/prepare test downloads it");
            return None;
        };
        let started = (0..BOOTS).find_map(|_| Machine::start(&kernel, options, kernel_options));
        Some(started.expect("the guest's kernel starts"))
    }

    /// Starts QEMU; `None` if the guest's kernel does not start. On a busy machine, its measurement of
    /// emulated hardware may fail.
    fn start(kernel: &Path, options: &[&str], kernel_options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("initial.cpio");
        fs::write(&image, initial_files(kernel)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]);
        command.args("-accel tcg,thread=multi -m 512 -smp 2 -display none -nodefaults".split(' '));
        command
            .args(["-no-reboot", "-serial", "stdio"])
            .args(options);
        command
            .arg("-kernel")
            .arg(file_in(&kernel.join("boot"), "vmlinuz"));
        command.arg("-initrd").arg(&image);
        command.args([
            "-append",
            &format!("console=ttyS0 quiet panic=-1 no_timer_check {kernel_options}"),
        ]);
        let socket = folder.path().join("qmp");
        command.args([
            "-qmp",
            &format!("unix:{},server=on,wait=off", socket.display()),
        ]);
        let qemu = Running::start(command);
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            let said = qemu.stdout();
            if said.contains("GUEST started") {
                return Some(Machine { qemu, folder });
            }
            if said.contains("Kernel panic") {
                eprintln!("the guest's kernel did not start: {said}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the guest has not started: {}", qemu.stdout());
    }

    pub(crate) fn attach(&self) -> Result<GuestVm, VmError> {
        let limits = GuestLimits {
            answer_ms: u64::try_from(LIMIT.as_millis()).unwrap(),
            ..GuestLimits::default()
        };
        GuestVm::attach(&self.folder.path().join("qmp"), limits)
    }

    /// Takes in events until one has happened; returns it.
    pub(crate) fn until(&self, vm: &mut GuestVm, is: impl Fn(&FromGuest) -> bool) -> FromGuest {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the guest: {}", self.qemu.stdout());
            match vm.next(Some(left)).unwrap() {
                Some(event) if is(&event) => return event,
                Some(FromGuest::Gone) => panic!("QEMU: {}", self.qemu.stderr()),
                _ => {}
            }
        }
    }
}

impl Machine {
    /// Takes in events until QEMU has ended; returns those before.
    pub(crate) fn until_gone(&self, vm: &mut GuestVm) -> Vec<FromGuest> {
        let mut before = Vec::new();
        loop {
            match vm.next(Some(LIMIT)).unwrap() {
                Some(FromGuest::Gone) => return before,
                Some(event) => before.push(event),
                None => assert!(before.len() < 1000, "QEMU has not ended: {before:?}"),
            }
        }
    }
}

/// Where `scripts/prepare test` unpacks the kernel's package.
fn kernel_folder() -> Option<PathBuf> {
    let home = std::env::var_os("RINGTAP_GUEST_KERNEL").map(PathBuf::from);
    let cache =
        || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/ringtap/guest-kernel"));
    let folder = home.or_else(cache)?;
    // Kernels with compressed modules, or without this one, are not for these tests.
    let modules = fs::read_dir(folder.join("lib/modules")).ok()?;
    let console = "kernel/drivers/char/virtio_console.ko";
    let mut kernels = modules.filter_map(|entry| Some(entry.ok()?.path()));
    kernels
        .any(|one| one.join(console).exists())
        .then_some(folder)
}

/// The file or folder whose name begins like this.
fn file_in(folder: &Path, start: &str) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let begins = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(start)
    };
    paths.into_iter().find(begins).unwrap()
}

/// The program, the libraries that it needs, and the modules.
fn initial_files(kernel: &Path) -> Vec<u8> {
    let tests = std::env::current_exe().unwrap();
    let built = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/vnplug_guest");
    let program = fs::read(&built).expect("cargo build -p ringtap-vnplug --examples");
    let mut image = Vec::new();
    add(&mut image, "init", &program);
    let libraries = Command::new("ldd").arg(&built).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for path in libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        add(
            &mut image,
            path.trim_start_matches('/'),
            &fs::read(path).unwrap(),
        );
    }
    let folder = file_in(&kernel.join("lib/modules"), "").join("kernel");
    let mut list = String::new();
    for module in MODULES {
        let (_, name) = module.rsplit_once('/').unwrap();
        // Later kernels have some of them built in.
        let Ok(bytes) = fs::read(folder.join(format!("{module}.ko"))) else {
            continue;
        };
        add(&mut image, &format!("modules/{name}.ko"), &bytes);
        list += &format!("{name}.ko\n");
    }
    add(&mut image, "modules/list", list.as_bytes());
    entry(&mut image, "TRAILER!!!", 0, &[]);
    image
}

/// Appends an executable file, and the folders above it.
fn add(image: &mut Vec<u8>, path: &str, bytes: &[u8]) {
    for (end, _) in path.match_indices('/') {
        entry(image, &path[..end], 0o040_755, &[]);
    }
    entry(image, path, 0o100_755, bytes);
}

/// Appends an entry of a cpio archive of the kind "newc".
fn entry(image: &mut Vec<u8>, path: &str, mode: usize, bytes: &[u8]) {
    let inode = image.len();
    let fields = [
        inode,
        mode,
        0,
        0,
        1,
        0,
        bytes.len(),
        0,
        0,
        0,
        0,
        path.len() + 1,
        0,
    ];
    image.extend(b"070701");
    fields
        .iter()
        .for_each(|field| image.extend(format!("{field:08x}").bytes()));
    image.extend(path.bytes().chain([0]));
    image.resize(image.len().next_multiple_of(4), 0);
    image.extend(bytes);
    image.resize(image.len().next_multiple_of(4), 0);
}
