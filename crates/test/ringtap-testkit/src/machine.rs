// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual machines for tests: Debian's QEMU and cloud kernel, and an initial file system made here.
//!
//! The machine's `init` mounts `/proc`, `/sys` and `/dev`, loads the modules of [`GUEST_MODULES`], and
//! prints [`GUEST_STARTED`] on the serial console.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Running, say_skipped, tool_exists};

/// Emulation on a busy machine is slow; a test that waits longer has failed.
pub const GUEST_LIMIT: Duration = Duration::from_secs(300);
/// Folder in the guest with the modules, and a file `list` of them in the order of their dependencies.
pub const GUEST_MODULES: &str = "/modules";
/// What `init` prints once the guest can be attached.
pub const GUEST_STARTED: &str = "GUEST started";

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
#[derive(Debug)]
pub struct VirtualMachine {
    /// QEMU, whose standard output is the serial console.
    pub qemu: Running,
    /// QEMU's arguments, without sockets.
    arguments: Vec<OsString>,
    /// Files of this machine, and of those that it migrates to.
    folder: Arc<TempDir>,
    qmp: PathBuf,
}

impl VirtualMachine {
    /// Boots a machine with these files (path in the guest, file of this machine), one of which is
    /// `init`; programs bring their libraries. `None`, with a line that says why, where that cannot be
    /// done.
    ///
    /// # Panics
    ///
    /// When the guest does not start.
    #[must_use]
    pub fn boot(files: &[(&str, &Path)], options: &[&str], kernel_options: &str) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") || !tool_exists(QEMU) || !tool_exists("setpriv") {
            say_skipped("needs an x86-64 machine with qemu-system-x86_64 and setpriv");
            return None;
        }
        let Some(kernel) = kernel_folder() else {
            say_skipped("needs a guest kernel: scripts/prepare test downloads it");
            return None;
        };
        let folder = Arc::new(TempDir::new().expect("a folder can be made"));
        let image = folder.path().join("initial.cpio");
        fs::write(&image, initial_files(&kernel, files)).expect("there is room for the image");
        let hardware = "-accel tcg,thread=multi -m 512 -smp 2 -display none -nodefaults -no-reboot -serial stdio";
        let mut arguments: Vec<OsString> = hardware.split(' ').map(OsString::from).collect();
        arguments.extend(options.iter().map(OsString::from));
        arguments.extend([
            "-kernel".into(),
            file_in(&kernel.join("boot"), "vmlinuz").into(),
        ]);
        arguments.extend(["-initrd".into(), image.into()]);
        let words = format!("console=ttyS0 quiet panic=-1 no_timer_check {kernel_options}");
        arguments.extend(["-append".into(), words.into()]);
        let start = |_| VirtualMachine::start(&arguments, &folder);
        Some(
            (0..BOOTS)
                .find_map(start)
                .expect("the guest's kernel starts"),
        )
    }

    /// Starts QEMU; `None` if the guest's kernel does not start. On a busy machine, its measurement of
    /// emulated hardware may fail.
    fn start(arguments: &[OsString], folder: &Arc<TempDir>) -> Option<Self> {
        let machine = VirtualMachine::run(arguments, folder, "qmp", &[]);
        let deadline = Instant::now() + GUEST_LIMIT;
        while Instant::now() < deadline {
            let said = machine.qemu.stdout();
            if said.contains(GUEST_STARTED) {
                return Some(machine);
            }
            if said.contains("Kernel panic") {
                eprintln!("the guest's kernel did not start: {said}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the guest has not started: {}", machine.qemu.stdout());
    }

    fn run(arguments: &[OsString], folder: &Arc<TempDir>, qmp: &str, more: &[&str]) -> Self {
        let qmp = folder.path().join(qmp);
        // A QEMU before this one may have left it.
        let _absent = fs::remove_file(&qmp);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]).args(arguments);
        let socket = format!("unix:{},server=on,wait=off", qmp.display());
        command.args(["-qmp", &socket]).args(more);
        let qemu = Running::start(command);
        let deadline = Instant::now() + GUEST_LIMIT;
        while !qmp.exists() {
            let waited = Instant::now() < deadline;
            assert!(waited, "QEMU has not started: {}", qemu.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
        VirtualMachine {
            qemu,
            arguments: arguments.to_vec(),
            folder: Arc::clone(folder),
            qmp,
        }
    }

    /// A QEMU with the same hardware, which waits for the migration of this one; and its address.
    #[must_use]
    pub fn destination(&self) -> (Self, String) {
        // A machine can migrate again from there.
        let name = format!(
            "{}-next",
            self.qmp.file_name().unwrap_or_default().display()
        );
        let address = format!(
            "unix:{}.migration",
            self.folder.path().join(&name).display()
        );
        let more = ["-incoming", &address];
        let machine = VirtualMachine::run(&self.arguments, &self.folder, &name, &more);
        (machine, address)
    }

    /// Path of the QMP socket.
    #[must_use]
    pub fn qmp(&self) -> PathBuf {
        self.qmp.clone()
    }
}

/// Where `scripts/prepare test` unpacks the kernel's package.
pub(crate) fn kernel_folder() -> Option<PathBuf> {
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
pub(crate) fn file_in(folder: &Path, start: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("the kernel's folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let begins = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(start)
    };
    paths.into_iter().find(begins).expect("the kernel has it")
}

/// The files, the libraries that they need, and the modules.
pub(crate) fn initial_files(kernel: &Path, files: &[(&str, &Path)]) -> Vec<u8> {
    let mut image = Vec::new();
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut libraries = Vec::new();
    for (place, path) in files {
        add(&mut image, place, &read(path));
        let needed = Command::new("ldd").arg(path).output().expect("ldd starts");
        let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
        let needed = needed
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        libraries.extend(needed.map(str::to_owned));
    }
    libraries.sort();
    libraries.dedup();
    for path in libraries {
        add(
            &mut image,
            path.trim_start_matches('/'),
            &read(Path::new(&path)),
        );
    }
    let folder = file_in(&kernel.join("lib/modules"), "").join("kernel");
    let root = GUEST_MODULES.trim_start_matches('/');
    let mut list = String::new();
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap_or(module);
        // Later kernels have some of them built in.
        let Ok(bytes) = fs::read(folder.join(format!("{module}.ko"))) else {
            continue;
        };
        add(&mut image, &format!("{root}/{name}.ko"), &bytes);
        list += &format!("{name}.ko\n");
    }
    add(&mut image, &format!("{root}/list"), list.as_bytes());
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
