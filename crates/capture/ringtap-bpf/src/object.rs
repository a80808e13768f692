// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled eBPF objects: loading, and their maps and programs by name.
//!
//! Invariants
//! - Lines that libbpf prints outside [`logged`] are dropped; none reaches standard error.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY;
use libbpf_rs::{
    Link, MapCore as _, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, set_print,
};

/// Lines at the end of libbpf's log that an error message repeats: the reason is there.
const LAST_LINES: usize = 12;

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

/// Runs `action`; returns its result and the last warnings that libbpf printed on this thread.
pub fn logged<T>(action: impl FnOnce() -> T) -> (T, String) {
    static ROUTE: Once = Once::new();
    ROUTE.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
    LINES.set(Some(Vec::new()));
    let result = action();
    let log = LINES.take().unwrap_or_default().concat();
    let lines: Vec<_> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    (result, last.join("\n"))
}

/// A compiled object, aligned as libelf requires.
#[repr(align(8))]
pub struct ObjectFile<T: ?Sized>(pub T);

/// An object that was not loaded.
#[derive(Debug)]
pub struct LoadFailure {
    /// libbpf's error.
    pub error: libbpf_rs::Error,
    /// The end of libbpf's log.
    pub log: String,
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(format!("{}\n{}", self.error, self.log).trim_end())
    }
}

/// Loads an object after `prepare` has chosen its programs and sized its maps.
///
/// # Errors
///
/// The kernel or libbpf refuses the object, or `prepare` fails.
pub fn load(
    file: &'static ObjectFile<[u8]>,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, LoadFailure> {
    let (object, log) = logged(|| {
        let mut open = ObjectBuilder::default().open_memory(&file.0)?;
        prepare(&mut open)?;
        open.load()
    });
    object.map_err(|error| LoadFailure { error, log })
}

/// Loads only the programs with these names; `bound`, if one of them, only for this interface.
pub fn choose_programs(open: &mut OpenObject, names: &[&str], bound: Option<(&str, u32)>) {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(names.contains(&name.as_str()));
        if let Some((_, interface)) = bound.filter(|(bound, _)| *bound == name) {
            program.set_flags(BPF_F_XDP_DEV_BOUND_ONLY);
            program.set_ifindex(interface);
        }
    }
}

/// Sets the content of a read-only section, as `.rodata.config`.
///
/// # Errors
///
/// The section does not exist, or has another length.
pub fn set_constants(open: &mut OpenObject, section: &str, bytes: &[u8]) -> libbpf_rs::Result<()> {
    let mut map = open
        .maps_mut()
        .find(|map| map.name() == section)
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    map.set_initial_value(bytes)
}

fn missing(kind: &str, name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("no {kind} {name} in the object"),
    )
}

/// A map of a loaded object.
///
/// # Errors
///
/// There is no map of this name, or no free descriptor.
pub fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| missing("map", name))?;
    MapHandle::try_from(&map).map_err(|error| io_error(&error))
}

/// The number of a map's descriptor in a loaded object, which the object's instructions contain.
///
/// # Errors
///
/// There is no map of this name.
pub fn map_number(object: &Object, name: &str) -> io::Result<i32> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| missing("map", name))?;
    Ok(map.as_fd().as_raw_fd())
}

/// The descriptor of a loaded program.
///
/// # Errors
///
/// There is no program of this name, or no free descriptor.
pub fn program(object: &Object, name: &str) -> io::Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == name);
    let program = program.ok_or_else(|| missing("program", name))?;
    program.as_fd().try_clone_to_owned()
}

/// A loaded program's instructions with all references resolved, 8 bytes each.
///
/// # Errors
///
/// There is no program of this name.
pub fn insns(object: &Object, name: &str) -> io::Result<Vec<u64>> {
    let word = |insn: &libbpf_rs::libbpf_sys::bpf_insn| {
        let [off_low, off_high] = insn.off.to_le_bytes();
        let [a, b, c, d] = insn.imm.to_le_bytes();
        let registers = insn.dst_reg() | insn.src_reg() << 4;
        u64::from_le_bytes([insn.code, registers, off_low, off_high, a, b, c, d])
    };
    let program = object.progs().find(|program| program.name() == name);
    let program = program.ok_or_else(|| missing("program", name))?;
    Ok(program.insns().iter().map(word).collect())
}

/// Attaches the programs with these names where their sections say (tracepoints).
///
/// # Errors
///
/// The kernel refuses one; none stays attached.
pub fn attach_tracepoints(object: &Object, names: &[&str]) -> Result<Vec<Link>, LoadFailure> {
    let (links, log) = logged(|| {
        let programs = object.progs_mut();
        let chosen = programs.filter(|program| names.iter().any(|name| program.name() == *name));
        chosen
            .map(|program| program.attach())
            .collect::<libbpf_rs::Result<_>>()
    });
    links.map_err(|error| LoadFailure { error, log })
}

/// The system's error inside libbpf's.
#[must_use]
pub fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        let error = one.downcast_ref::<io::Error>();
        if let Some(code) = error.and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        cause = one.source();
    }
    io::Error::other(error.to_string())
}
