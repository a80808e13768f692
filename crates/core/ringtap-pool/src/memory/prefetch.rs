// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetch hints for memory that will be read or written soon.
//!
//! A cache line last used by another core must be transferred. Prefetched lines are transferred in
//! parallel, others one after the other. A reused chunk is the worst case: the writer's first store
//! to each line waits for the reader's core.

/// Prefetches the line at `place` for reading. Any address is allowed: nothing is accessed.
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

/// Prefetches the line at `place` for writing. Any address is allowed: nothing is accessed.
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
