// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications by nDPI, a C library that is loaded when a configuration asks for it.
//!
//! Invariants
//! - The memory of a flow has the size that the library states; no structure of the library is known here.
//! - A flow shows the library at most [`MAX_PACKETS`] packets, none of more than [`WorkBudget::PER_PACKET`] bytes.
//!   How often the library touches their bytes is not known.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use libloading::Library;
use ringtap_ipc::mutex::lock;
use ringtap_pool::number::to_u16;

use super::budget::WorkBudget;
use super::text::text;

/// The library of Debian 12 and Ubuntu 24.04. Other versions have other types of results.
const LIBRARY: &str = "libndpi.so.4.2";
/// Packets with payload after which a flow without an application has none.
const MAX_PACKETS: u8 = 12;
/// All bits of `NDPI_PROTOCOL_BITMASK`, which has 512: every protocol.
const ALL_PROTOCOLS: [u32; 16] = [u32::MAX; 16];
/// The library initialises memory of all its modules.
static FIRST: Mutex<()> = Mutex::new(());

/// `ndpi_protocol`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NdpiProtocol {
    master: u16,
    application: u16,
    category: c_int,
}

/// Declares the functions that are looked up, with their types.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct NdpiFunctions { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl NdpiFunctions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(NdpiFunctions { $(
                    // SAFETY: the type is that of ndpi_api.h; the library outlives the functions, because
                    // both are fields of `LoadedNdpi`.
                    $name: *unsafe { library.get(concat!("ndpi_", stringify!($name)).as_bytes()) }?,
                )* })
            }
        }
    };
}

functions! {
    init_detection_module: fn(u32) -> *mut c_void;
    set_protocol_detection_bitmask2: fn(*mut c_void, *const u32);
    finalize_initialization: fn(*mut c_void);
    exit_detection_module: fn(*mut c_void);
    detection_get_sizeof_ndpi_flow_struct: fn() -> u32;
    detection_process_packet: fn(*mut c_void, *mut c_void, *const u8, u16, u64) -> NdpiProtocol;
    protocol2name: fn(*mut c_void, NdpiProtocol, *mut c_char, u32) -> *mut c_char;
    get_flow_info: fn(*const c_void, *const NdpiProtocol) -> *const c_char;
    free_flow_data: fn(*mut c_void);
}

struct LoadedNdpi {
    functions: NdpiFunctions,
    _library: Library,
}

/// The library's state for one worker.
pub(super) struct NdpiModule {
    library: Arc<LoadedNdpi>,
    module: *mut c_void,
    flow_bytes: usize,
}

// SAFETY: a module has no state of the thread that made it, and is used by one thread at a time.
unsafe impl Send for NdpiModule {}

/// The library's state for one flow.
pub(super) struct NdpiFlow {
    library: Arc<LoadedNdpi>,
    /// `ndpi_flow_struct`, as words so that it is aligned.
    memory: Box<[u64]>,
    packets: u8,
    /// Bytes that the library has seen, and may have copied.
    seen: usize,
}

/// The library's verdict on a flow.
pub(super) struct NdpiVerdict {
    /// Protocol and application: `TLS.YouTube`.
    pub(super) application: String,
    /// Name of the server, for protocols that have one: also for QUIC.
    pub(super) server_name: Option<String>,
}

/// Why nDPI cannot name applications.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NdpiError {
    /// The library is not installed, or of another version.
    #[error("ndpi needs {LIBRARY} (apt install libndpi4.2): {0}")]
    Missing(#[from] libloading::Error),
    /// The library refuses.
    #[error("nDPI cannot start: no memory")]
    NoMemory,
}

impl NdpiModule {
    /// Loads the library and all its protocols.
    pub(super) fn new() -> Result<Self, NdpiError> {
        // SAFETY: the library's initialisers have no conditions.
        let library = unsafe { Library::new(LIBRARY) }?;
        let functions = NdpiFunctions::find(&library)?;
        let _alone = lock(&FIRST);
        // SAFETY: 0 is "no preferences".
        let module = unsafe { (functions.init_detection_module)(0) };
        if module.is_null() {
            return Err(NdpiError::NoMemory);
        }
        // SAFETY: the module was just made; the mask has 512 bits.
        unsafe { (functions.set_protocol_detection_bitmask2)(module, ALL_PROTOCOLS.as_ptr()) };
        // SAFETY: the module was just made.
        unsafe { (functions.finalize_initialization)(module) };
        // SAFETY: the function has no conditions.
        let flow_bytes = unsafe { (functions.detection_get_sizeof_ndpi_flow_struct)() };
        Ok(NdpiModule {
            library: Arc::new(LoadedNdpi {
                functions,
                _library: library,
            }),
            module,
            flow_bytes: flow_bytes as usize,
        })
    }

    /// State for a new flow.
    pub(super) fn flow(&self) -> Box<NdpiFlow> {
        Box::new(NdpiFlow {
            library: Arc::clone(&self.library),
            memory: vec![0; self.flow_bytes.div_ceil(8)].into(),
            packets: 0,
            seen: 0,
        })
    }

    /// Shows the library a packet from its IP header on, unless it is too long.
    pub(super) fn packet(
        &mut self,
        flow: &mut NdpiFlow,
        packet: &[u8],
        time_ns: u64,
    ) -> Option<NdpiVerdict> {
        let functions = &self.library.functions;
        let length = to_u16(packet.len());
        flow.packets += 1;
        if packet.len() > WorkBudget::PER_PACKET {
            return None;
        }
        flow.seen += usize::from(length);
        let state = flow.memory.as_mut_ptr().cast::<c_void>();
        let time_ms = time_ns / 1_000_000;
        // SAFETY: module and flow are of this library; the packet has at least `length` bytes.
        let protocol = unsafe {
            (functions.detection_process_packet)(
                self.module,
                state,
                packet.as_ptr(),
                length,
                time_ms,
            )
        };
        if protocol.master == 0 && protocol.application == 0 {
            return None;
        }
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: the buffer has 128 bytes, and the library ends it with a zero.
        let name =
            unsafe { (functions.protocol2name)(self.module, protocol, name.as_mut_ptr(), 128) };
        // SAFETY: flow and protocol live.
        let server = unsafe { (functions.get_flow_info)(state, &raw const protocol) };
        Some(NdpiVerdict {
            application: owned(name).unwrap_or_default(),
            server_name: owned(server),
        })
    }
}

/// A text of the library, which may be absent.
fn owned(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the library's texts end with a zero, and live until its next call.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    (!bytes.is_empty()).then(|| text(bytes))
}

impl Drop for NdpiModule {
    fn drop(&mut self) {
        // SAFETY: made by `init_detection_module`, and not used after this.
        unsafe { (self.library.functions.exit_detection_module)(self.module) };
    }
}

impl NdpiFlow {
    /// Whether the library has seen enough packets.
    pub(super) fn is_over(&self) -> bool {
        self.packets >= MAX_PACKETS
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<NdpiFlow>() + 8 * self.memory.len() + self.seen
    }
}

impl Drop for NdpiFlow {
    fn drop(&mut self) {
        let state = self.memory.as_mut_ptr().cast::<c_void>();
        // SAFETY: frees what the library added to the flow, which is not used after this.
        unsafe { (self.library.functions.free_flow_data)(state) };
    }
}

impl std::fmt::Debug for NdpiFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NdpiFlow({} packets)", self.packets)
    }
}
