// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of one guest.
#![forbid(unsafe_code)]

/// Limits of one guest's use of the host.
#[derive(Clone, Copy, Debug)]
pub struct GuestLimits {
    /// Most bytes of messages that the guest has not taken yet.
    pub unsent_bytes: usize,
    /// How long the guest may take to unmap a device before the host unplugs it anyway. An agent that runs reads
    /// first what is left there, which takes longer on a busy machine.
    pub release_ms: u64,
    /// How long QEMU may take to greet on its QMP socket: while another program is connected, it does not.
    pub greeting_ms: u64,
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
            unsent_bytes: 256 * 1024,
            release_ms: 20_000,
            greeting_ms: 2000,
            answer_ms: 30_000,
            arrival_ms: 0,
            interrupts_without_kvm: false,
        }
    }
}
