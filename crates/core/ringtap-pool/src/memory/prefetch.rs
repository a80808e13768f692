// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints to the processor about memory that will be read or written soon.
//!
//! A line that another core wrote or read last must travel. Asked for early, many lines travel
//! at once; asked for when needed, they travel one after the other. A reused chunk is the worst
//! case: the writer's first store to each of its lines waits until the reader's core gives it up.

/// Asks for the line at `place` for reading. Any address is allowed: nothing is accessed.
#[inline]
pub(super) fn for_reading(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint: it never faults, and changes neither memory, registers, flags nor stack.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) place.addr(), options(nostack, preserves_flags, nomem));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint: it never faults, and changes neither memory, registers, flags nor stack.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) place.addr(), options(nostack, preserves_flags, nomem));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _no_hint = place;
}

/// Asks for the line at `place` for writing. Any address is allowed: nothing is accessed.
#[inline]
pub(super) fn for_writing(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint: it never faults, and changes neither memory, registers, flags nor stack.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place.addr(), options(nostack, preserves_flags, nomem));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint: it never faults, and changes neither memory, registers, flags nor stack.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) place.addr(), options(nostack, preserves_flags, nomem));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _no_hint = place;
}
