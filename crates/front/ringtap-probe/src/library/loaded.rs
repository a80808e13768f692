// SPDX-License-Identifier: MIT OR Apache-2.0
//! A loaded library with the interface of `ringtap_analysis.h`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;

use libloading::Library;
use ringtap_pool::number::to_u32;

/// Version of the interface.
const VERSION: u32 = 1;
/// Most bytes of names, keys and values of one interval, as JSON; a message has at most 128 KiB.
const MAX_TEXT: usize = 100_000;

#[repr(C)]
struct AnalysisStart {
    settings: *const c_char,
    worker: u32,
    starts: u32,
    link_type: u32,
    why: [c_char; 256],
}

/// A packet as the library sees it.
#[repr(C)]
pub(super) struct PacketView<'a> {
    time_ns: u64,
    data: *const u8,
    length: u32,
    wire_length: u32,
    bytes: PhantomData<&'a [u8]>,
}

#[repr(C)]
struct AnalysisOutput {
    to: *mut c_void,
    value: extern "C" fn(*mut c_void, *const c_char, *const c_char, f64),
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LibraryTable {
    version: u32,
    init: Option<unsafe extern "C" fn(*mut AnalysisStart) -> *mut c_void>,
    packets: Option<unsafe extern "C" fn(*mut c_void, *const PacketView<'_>, usize)>,
    periodic: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    results: Option<unsafe extern "C" fn(*mut c_void, *const AnalysisOutput)>,
    end: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Values of one interval.
#[derive(Debug, Default)]
pub(super) struct LibraryValues {
    pub(super) values: Vec<(String, Option<String>, f64)>,
    pub(super) left_out: u64,
    text: usize,
}

/// A library that runs.
pub(super) struct LoadedAnalysis {
    table: LibraryTable,
    state: *mut c_void,
    _library: Library,
}

impl<'a> PacketView<'a> {
    pub(super) fn new(time_ns: u64, data: &'a [u8], wire_length: u32) -> Self {
        PacketView {
            time_ns,
            data: data.as_ptr(),
            length: to_u32(data.len()),
            wire_length,
            bytes: PhantomData,
        }
    }
}

/// Why a library cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("cannot be loaded: {0}")]
    NotLoaded(libloading::Error),
    #[error("defines no ringtap_analysis: {0}")]
    NoTable(libloading::Error),
    #[error("has version {0} of the interface; expected {VERSION}")]
    Version(u32),
    #[error("lacks init, packets or results")]
    NoFunction,
    #[error("settings have a zero byte")]
    Settings,
    #[error("refuses to start: {0}")]
    Refused(String),
}

impl LoadedAnalysis {
    /// Loads and starts a library, which may do anything: in a process of its own only.
    pub(super) fn start(
        path: &Path,
        settings: &str,
        (worker, starts, link_type): (u32, u32, u16),
    ) -> Result<Self, LoadError> {
        // SAFETY: the user wants the library's initialisers to run in this process.
        let library = unsafe { Library::new(path) }.map_err(LoadError::NotLoaded)?;
        // SAFETY: the header says that the symbol is a table.
        let table = unsafe { library.get::<*const LibraryTable>(b"ringtap_analysis") }
            .map_err(LoadError::NoTable)?;
        // SAFETY: each version of the table begins with its version.
        let version = unsafe { (*table).cast::<u32>().read() };
        if version != VERSION {
            return Err(LoadError::Version(version));
        }
        // SAFETY: the table of this version has this type.
        let table = unsafe { (*table).read() };
        let (Some(init), Some(_), Some(_)) = (table.init, table.packets, table.results) else {
            return Err(LoadError::NoFunction);
        };
        let settings = CString::new(settings).map_err(|_| LoadError::Settings)?;
        let mut start = AnalysisStart {
            settings: settings.as_ptr(),
            worker,
            starts,
            link_type: link_type.into(),
            why: [0; 256],
        };
        // SAFETY: `start` is valid during the call.
        let state = unsafe { init(&raw mut start) };
        if state.is_null() {
            let why = start.why.iter().take_while(|byte| **byte != 0);
            let why: Vec<u8> = why.map(|byte| byte.to_ne_bytes()[0]).collect();
            return Err(LoadError::Refused(
                String::from_utf8_lossy(&why).into_owned(),
            ));
        }
        Ok(LoadedAnalysis {
            table,
            state,
            _library: library,
        })
    }

    pub(super) fn packets(&mut self, packets: &[PacketView<'_>]) {
        if let (Some(call), false) = (self.table.packets, packets.is_empty()) {
            // SAFETY: the state is that of `init`; the packets' bytes live during the call.
            unsafe { call(self.state, packets.as_ptr(), packets.len()) };
        }
    }

    pub(super) fn periodic(&mut self, now_ns: u64) {
        if let Some(call) = self.table.periodic {
            // SAFETY: the state is that of `init`.
            unsafe { call(self.state, now_ns) };
        }
    }

    /// The values of the interval that is over.
    pub(super) fn results(&mut self) -> LibraryValues {
        let mut values = LibraryValues::default();
        let output = AnalysisOutput {
            to: (&raw mut values).cast(),
            value,
        };
        if let Some(call) = self.table.results {
            // SAFETY: the state is that of `init`; `output` and `values` live during the call.
            unsafe { call(self.state, &raw const output) };
        }
        values
    }
}

impl Drop for LoadedAnalysis {
    fn drop(&mut self) {
        if let Some(call) = self.table.end {
            // SAFETY: the state is that of `init`, and not used after this.
            unsafe { call(self.state) };
        }
    }
}

/// Takes a value of a library.
extern "C" fn value(to: *mut c_void, name: *const c_char, key: *const c_char, value: f64) {
    // SAFETY: `to` is the address of the values, of which no other reference exists during `results`.
    let values = unsafe { &mut *to.cast::<LibraryValues>() };
    let text = |text: *const c_char| {
        // SAFETY: the header asks for texts that end with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    };
    if name.is_null() || !value.is_finite() {
        values.left_out += 1;
        return;
    }
    let one = (text(name), (!key.is_null()).then(|| text(key)), value);
    let bytes = serde_json::to_string(&one).map_or(MAX_TEXT, |text| text.len() + 1);
    if values.text + bytes <= MAX_TEXT {
        values.text += bytes;
        values.values.push(one);
    } else {
        values.left_out += 1
    }
}
