// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of one guest, and the requests that exceed them.
#![forbid(unsafe_code)]

use crate::device::{DeviceKind, HEADER_BYTES, MOST_VECTORS};

use super::VmError;

/// What one guest may use of the host.
#[derive(Clone, Copy, Debug)]
pub struct GuestLimits {
    /// Most devices plugged at once.
    pub devices: usize,
    /// Most bytes of all devices' memory.
    pub device_bytes: u64,
    /// Most bytes of messages that the guest has not taken yet.
    pub unsent_bytes: usize,
    /// How long the guest may take to unmap a device before the host unplugs it anyway.
    pub release_ms: u64,
    /// How long QEMU may take to answer, and the guest to let go of an earlier host process's devices.
    pub answer_ms: u64,
    /// How long the guest may take to arrive, if it still migrates to this QEMU.
    pub arrival_ms: u64,
    /// Whether devices interrupt a guest that QEMU emulates. QEMU then relays the interrupts itself, and
    /// still does so after the unplug: into freed memory. For guests from which nothing is unplugged.
    pub interrupts_without_kvm: bool,
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits {
            devices: 16,
            device_bytes: 1 << 30,
            unsent_bytes: 256 * 1024,
            release_ms: 5000,
            answer_ms: 30_000,
            arrival_ms: 0,
            interrupts_without_kvm: false,
        }
    }
}

impl GuestLimits {
    /// The memory to make for a request: a power of two, as QEMU aborts on any other size.
    pub(super) fn size_of(
        &self,
        kind: DeviceKind,
        bytes: u64,
        plugged: impl ExactSizeIterator<Item = u64>,
    ) -> Result<u64, VmError> {
        let control = matches!(kind, DeviceKind::Control { .. });
        if control && !(1..=MOST_VECTORS).contains(&kind.vectors()) {
            return Err(VmError::Vectors(kind.vectors()));
        }
        if plugged.len() >= self.devices {
            return Err(VmError::TooManyDevices(self.devices));
        }
        let used: u64 = plugged.sum();
        let limit = self.device_bytes;
        let too_much = VmError::TooMuchMemory { bytes, used, limit };
        let whole = bytes
            .checked_add(HEADER_BYTES as u64)
            .and_then(u64::checked_next_power_of_two);
        let Some(size) = whole.filter(|_| bytes > 0) else {
            return Err(too_much);
        };
        match used.checked_add(size) {
            Some(sum) if sum <= limit => Ok(size),
            _ => Err(too_much),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_a_limit_is_refused_and_every_size_is_a_power_of_two() {
        let limits = GuestLimits {
            devices: 3,
            device_bytes: 1 << 20,
            ..GuestLimits::default()
        };
        let size =
            |kind, bytes, plugged: &[u64]| limits.size_of(kind, bytes, plugged.iter().copied());
        let bulk = DeviceKind::Bulk;
        for bytes in [1, 4096, 4097, 100_000, (1 << 20) - 4096] {
            assert!(size(bulk, bytes, &[]).unwrap().is_power_of_two());
        }
        for bytes in [0, (1 << 20) - 4095, u64::MAX - 4096, u64::MAX] {
            let refused = size(bulk, bytes, &[]);
            assert!(
                matches!(refused, Err(VmError::TooMuchMemory { .. })),
                "{bytes}"
            );
        }
        let refused = size(bulk, 600_000, &[4096]);
        assert!(matches!(
            refused,
            Err(VmError::TooMuchMemory { used: 4096, .. })
        ));
        let refused = size(bulk, 1, &[4096; 3]);
        assert!(matches!(refused, Err(VmError::TooManyDevices(3))));
        for vectors in [0, 65] {
            let refused = size(DeviceKind::Control { vectors }, 1, &[]);
            assert!(matches!(refused, Err(VmError::Vectors(_))));
        }
    }
}
