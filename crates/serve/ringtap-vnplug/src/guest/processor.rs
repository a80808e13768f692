// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the hypervisor honours the guest's kinds of mapping.

/// Signature of KVM in the answer of the processor's instruction.
#[cfg(target_arch = "x86_64")]
const KVM: [u32; 3] = [
    u32::from_le_bytes(*b"KVMK"),
    u32::from_le_bytes(*b"VMKV"),
    u32::from_le_bytes(*b"M\0\0\0"),
];

/// Whether memory of a device that other processes of this guest can map is cached. On AMD's processors KVM honours the
/// guest's kind of mapping: only `/dev/mem` is cached there, and maps any memory.
#[must_use]
pub fn can_share_devices() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        #[allow(unused_unsafe, reason = "safe from Rust 1.92 on")]
        // SAFETY: every x86-64 processor has the instruction; it only returns numbers.
        let ask = |leaf| unsafe { __cpuid(leaf) };
        let (vendor, hypervisor) = (ask(0), ask(0x4000_0000));
        let is_intel = vendor.ebx == u32::from_le_bytes(*b"Genu");
        is_intel || [hypervisor.ebx, hypervisor.ecx, hypervisor.edx] != KVM
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
