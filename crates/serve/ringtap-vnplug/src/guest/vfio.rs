// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of a device by vfio-pci, behind an IOMMU.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use ringtap_ipc::mapping::Mapping;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::pci::{BINDER, MEMORY_BAR, PciDevice};

const DRIVER: &str = "/sys/bus/pci/drivers/vfio-pci";
/// The index of the BAR with the doorbell's registers.
const REGISTER_BAR: u32 = 0;
/// vfio's index of the configuration space, after six BARs and the expansion ROM.
const CONFIGURATION: u32 = 7;
/// vfio's index of the event that asks for the release of the device.
const RELEASE_REQUEST: u32 = 4;
/// Place of the command register in the configuration space.
const COMMAND: u64 = 4;
/// The command register's bits: answers to memory accesses, and may interrupt.
const MEMORY_AND_BUS_MASTER: u16 = 0b110;

/// A device that vfio-pci drives for this process.
pub(super) struct VfioEvents {
    device: VfioDevice,
    vectors: Vec<EventFd>,
    /// The kernel signals it when the device is to be unplugged.
    request: EventFd,
}

impl VfioEvents {
    /// Takes the device over and switches its interrupts on; returns its memory as well.
    pub(super) fn open(pci: &PciDevice) -> io::Result<(Self, Arc<Mapping>)> {
        bind(&pci.folder)?;
        let container = Arc::new(VfioContainer::new(None).map_err(other)?);
        let device = VfioDevice::new(&pci.folder, container, false).map_err(other)?;
        let mut command = [0; 2];
        device.region_read(CONFIGURATION, &mut command, COMMAND);
        let command = u16::from_le_bytes(command) | MEMORY_AND_BUS_MASTER;
        device.region_write(CONFIGURATION, &command.to_le_bytes(), COMMAND);
        let new = || EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK);
        let vectors = (0..pci.header.kind.vectors()).map(|_| new());
        let vectors: Vec<EventFd> = vectors.collect::<io::Result<_>>()?;
        let request = new()?;
        device
            .enable_msix(vectors.iter().collect())
            .map_err(other)?;
        device
            .enable_irq(RELEASE_REQUEST, vec![&request])
            .map_err(other)?;
        // SAFETY: `device` keeps the descriptor open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) };
        let offset = device.get_region_offset(MEMORY_BAR);
        let mapping = Mapping::at(file, offset, pci.mapped_bytes()?, pci.access())?;
        let events = VfioEvents {
            device,
            vectors,
            request,
        };
        Ok((events, Arc::new(mapping)))
    }

    /// Stores a word in the doorbell's registers.
    pub(super) fn store(&self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.device.region_write(REGISTER_BAR, &bytes, at);
    }

    /// A descriptor per vector, then that of the request to release the device.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.vectors.iter().chain([&self.request]);
        // SAFETY: `self`, which the result borrows, keeps the descriptor open.
        all.map(|event| unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) })
    }

    /// Discards the signals of one of [`VfioEvents::fds`]; returns its vector, or `None` for the request
    /// to release the device.
    pub(super) fn clear(&self, index: usize) -> Option<u16> {
        let event = self.vectors.get(index).unwrap_or(&self.request);
        // Fails only if there is no signal.
        let _unsignalled = event.read();
        (index < self.vectors.len())
            .then(|| u16::try_from(index).ok())
            .flatten()
    }
}

/// Makes vfio-pci the device's driver.
fn bind(folder: &Path) -> io::Result<()> {
    let missing = |what| Err(io::Error::new(io::ErrorKind::Unsupported, what));
    if !folder.join("iommu_group").exists() {
        return missing("no IOMMU: start QEMU with -device intel-iommu,intremap=on");
    }
    if !Path::new(DRIVER).exists() {
        return missing("no driver vfio-pci: modprobe vfio-pci");
    }
    let address = folder.file_name().unwrap_or_default().as_encoded_bytes();
    fs::write(folder.join("driver_override"), "vfio-pci")?;
    fs::write(BINDER, address)
}

fn other(error: VfioError) -> io::Error {
    io::Error::other(error)
}
