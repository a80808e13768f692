// SPDX-License-Identifier: MIT OR Apache-2.0
//! Around libbpf: compiled programs, and what libbpf says (kept for error messages).
//!
//! Invariants
//! - Lines that libbpf prints outside [`collect`] are dropped; none reaches standard error.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, Program, set_print};

thread_local! {
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

fn keep(_level: PrintLevel, line: String) {
    LINES.with_borrow_mut(|lines| {
        if let Some(lines) = lines {
            lines.push(line);
        }
    });
}

/// Runs `action` and tells what libbpf said on this thread meanwhile (warnings only).
pub fn collect<T>(action: impl FnOnce() -> T) -> (T, Vec<String>) {
    static ROUTE: Once = Once::new();
    ROUTE.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
    LINES.set(Some(Vec::new()));
    let result = action();
    (result, LINES.take().unwrap_or_default())
}

/// Compiled programs, aligned as libelf wants them.
#[repr(align(8))]
pub struct Code<T: ?Sized>(pub T);

/// A loaded program's instructions with all references resolved, 8 bytes each.
pub fn insns(program: &Program<'_>) -> Vec<u64> {
    let word = |insn: &libbpf_rs::libbpf_sys::bpf_insn| {
        let [off_low, off_high] = insn.off.to_le_bytes();
        let [a, b, c, d] = insn.imm.to_le_bytes();
        let registers = insn.dst_reg() | insn.src_reg() << 4;
        u64::from_le_bytes([insn.code, registers, off_low, off_high, a, b, c, d])
    };
    program.insns().iter().map(word).collect()
}
