// SPDX-License-Identifier: MIT OR Apache-2.0
//! A producer of librdkafka, which is loaded when the first one is made: no other use of the probe
//! needs the library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use libloading::Library;
use ringtap_ipc::mutex::lock;

use crate::export::ExportError;

/// Major version 1 of the library's interface, which librdkafka has kept since 2016.
const LIBRARY: &str = "librdkafka.so.1";
/// Values of `rdkafka.h`.
const PRODUCER: c_int = 0;
const CONF_OK: c_int = 0;
const ANY_PARTITION: i32 = -1;
const COPY: c_int = 2;
const QUEUE_FULL: c_int = -184;

type DeliveryReport = extern "C" fn(*mut c_void, *const c_int, *mut c_void);
type ErrorReport = extern "C" fn(*mut c_void, c_int, *const c_char, *mut c_void);

/// Declares the functions that are looked up, with their types.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct LibraryFunctions { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl LibraryFunctions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(LibraryFunctions { $(
                    // SAFETY: the type is that of rdkafka.h; the library outlives the functions,
                    // because both are fields of `KafkaProducer`.
                    $name: *unsafe { library.get(concat!("rd_kafka_", stringify!($name)).as_bytes()) }?,
                )* })
            }
        }
    };
}

functions! {
    conf_new: fn() -> *mut c_void;
    conf_destroy: fn(*mut c_void);
    conf_set: fn(*mut c_void, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_set_dr_msg_cb: fn(*mut c_void, DeliveryReport);
    conf_set_error_cb: fn(*mut c_void, ErrorReport);
    conf_set_opaque: fn(*mut c_void, *mut c_void);
    new: fn(c_int, *mut c_void, *mut c_char, usize) -> *mut c_void;
    topic_new: fn(*mut c_void, *const c_char, *mut c_void) -> *mut c_void;
    topic_destroy: fn(*mut c_void);
    produce: fn(*mut c_void, i32, c_int, *mut c_void, usize, *const c_void, usize, *mut c_void) -> c_int;
    last_error: fn() -> c_int;
    poll: fn(*mut c_void, c_int) -> c_int;
    metadata: fn(*mut c_void, c_int, *mut c_void, *mut *const c_void, c_int) -> c_int;
    metadata_destroy: fn(*const c_void);
    err2str: fn(c_int) -> *const c_char;
    flush: fn(*mut c_void, c_int) -> c_int;
    outq_len: fn(*mut c_void) -> c_int;
    destroy: fn(*mut c_void);
}

/// Reports that the callbacks write, which run within `poll` and `flush`.
struct DeliveryReports {
    lost: AtomicU64,
    /// A message was lost since the last acknowledgement.
    is_down: AtomicBool,
    err2str: unsafe extern "C" fn(c_int) -> *const c_char,
    failure: Mutex<Option<String>>,
}

/// A producer for one topic.
pub(super) struct KafkaProducer {
    functions: LibraryFunctions,
    client: *mut c_void,
    topic: *mut c_void,
    /// The callbacks have its address.
    reports: Box<DeliveryReports>,
    _library: Library,
}

// SAFETY: librdkafka's functions may be called from any thread.
unsafe impl Send for KafkaProducer {}

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Produced {
    /// In the backlog, or counted as lost.
    Done,
    /// The backlog is full.
    Full,
}

impl KafkaProducer {
    pub(super) fn new(topic: &str, settings: &[(&str, &str)]) -> Result<Self, ExportError> {
        let missing = |error: libloading::Error| {
            ExportError(format!(
                "Kafka needs librdkafka (apt install librdkafka1): {error}"
            ))
        };
        // SAFETY: librdkafka's initialisers have no conditions.
        let library = unsafe { Library::new(LIBRARY) }.map_err(missing)?;
        let functions = LibraryFunctions::find(&library).map_err(missing)?;
        let reports = Box::new(DeliveryReports {
            lost: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            err2str: functions.err2str,
            failure: Mutex::new(None),
        });
        let conf = configured(&functions, settings, &reports)?;
        let mut why = [0; 512];
        // SAFETY: `conf` is a configuration, `why` has the stated length.
        let client = unsafe { (functions.new)(PRODUCER, conf, why.as_mut_ptr(), why.len()) };
        if client.is_null() {
            // SAFETY: a configuration that was refused still belongs to the caller.
            unsafe { (functions.conf_destroy)(conf) };
            return Err(ExportError(format!("librdkafka: {}", text(&why))));
        }
        let name = c_string(topic)?;
        // SAFETY: the client lives, the name ends with a zero, no configuration is allowed.
        let topic = unsafe { (functions.topic_new)(client, name.as_ptr(), ptr::null_mut()) };
        let producer = KafkaProducer {
            functions,
            client,
            topic,
            reports,
            _library: library,
        };
        if topic.is_null() {
            Err(ExportError(format!(
                "librdkafka: {name:?} cannot be a topic"
            )))
        } else {
            Ok(producer)
        }
    }

    pub(super) fn produce(&self, key: &str, value: &str) -> Produced {
        let (key, key_length) = (key.as_ptr().cast(), key.len());
        let (value, length) = (value.as_ptr().cast_mut().cast(), value.len());
        let produce = self.functions.produce;
        // SAFETY: the topic lives; with `COPY`, key and value are read only during the call.
        let refused = unsafe {
            produce(
                self.topic,
                ANY_PARTITION,
                COPY,
                value,
                length,
                key,
                key_length,
                ptr::null_mut(),
            )
        };
        if refused == 0 {
            return Produced::Done;
        }
        // SAFETY: the function has no conditions.
        if unsafe { (self.functions.last_error)() } == QUEUE_FULL {
            return Produced::Full;
        }
        self.reports.lost.fetch_add(1, Relaxed);
        Produced::Done
    }

    /// Runs callbacks; waits at most this many milliseconds for the first one.
    pub(super) fn poll(&self, milliseconds: i32) {
        // SAFETY: the client lives, and its callbacks' memory too.
        unsafe { (self.functions.poll)(self.client, milliseconds) };
    }

    /// Waits until a broker describes the topic; fails with the library's reason.
    pub(super) fn find_broker(&self, milliseconds: c_int) -> Result<(), ExportError> {
        let (metadata, mut answer) = (self.functions.metadata, ptr::null());
        // SAFETY: client and topic live; `answer` is written.
        let error = unsafe { metadata(self.client, 0, self.topic, &raw mut answer, milliseconds) };
        if error == 0 {
            // SAFETY: made by `metadata`, and not used after this.
            unsafe { (self.functions.metadata_destroy)(answer) };
            return Ok(());
        }
        self.poll(0);
        let reason = self.failure();
        Err(ExportError(
            reason.unwrap_or_else(|| self.reports.word_of(error)),
        ))
    }

    /// Whether a message was lost and none was acknowledged since.
    pub(super) fn is_down(&self) -> bool {
        self.reports.is_down.load(Relaxed)
    }

    /// Counts a message that was not produced as lost.
    pub(super) fn give_up(&self) {
        self.reports.lost.fetch_add(1, Relaxed);
    }

    /// Waits for the acknowledgements of all messages; returns how many are missing, and counts these as lost.
    pub(super) fn flush(&self, milliseconds: i32) -> u64 {
        // SAFETY: as for `poll`.
        unsafe { (self.functions.flush)(self.client, milliseconds) };
        // SAFETY: the client lives.
        let left = unsafe { (self.functions.outq_len)(self.client) };
        let left = u64::try_from(left).unwrap_or(0);
        self.reports.lost.fetch_add(left, Relaxed);
        left
    }

    /// Messages that no broker acknowledged in time.
    pub(super) fn lost(&self) -> u64 {
        self.reports.lost.load(Relaxed)
    }

    /// The last failure, unless messages were delivered since.
    pub(super) fn failure(&self) -> Option<String> {
        self.reports.failure().clone()
    }
}

impl Drop for KafkaProducer {
    fn drop(&mut self) {
        if !self.topic.is_null() {
            // SAFETY: made by `topic_new`, and not used after this.
            unsafe { (self.functions.topic_destroy)(self.topic) };
        }
        // SAFETY: made by `new`, and not used after this; no callback runs after it.
        unsafe { (self.functions.destroy)(self.client) };
    }
}

impl DeliveryReports {
    fn failure(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        lock(&self.failure)
    }

    /// The library's words for an error code.
    fn word_of(&self, error: c_int) -> String {
        // SAFETY: the function has no conditions.
        let text = unsafe { (self.err2str)(error) };
        // SAFETY: every code has a text that ends with a zero and is never freed.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// A configuration with these settings and our callbacks.
fn configured(
    functions: &LibraryFunctions,
    settings: &[(&str, &str)],
    reports: &DeliveryReports,
) -> Result<*mut c_void, ExportError> {
    // SAFETY: the function has no conditions.
    let conf = unsafe { (functions.conf_new)() };
    for (name, value) in settings {
        let (name, value) = (c_string(name)?, c_string(value)?);
        let (name, value) = (name.as_ptr(), value.as_ptr());
        let mut why = [0; 512];
        // SAFETY: `conf` is a configuration, the texts end with a zero, `why` has the stated length.
        let set = unsafe { (functions.conf_set)(conf, name, value, why.as_mut_ptr(), why.len()) };
        if set != CONF_OK {
            // SAFETY: `conf` is a configuration, and not used after this.
            unsafe { (functions.conf_destroy)(conf) };
            return Err(ExportError(format!("librdkafka: {}", text(&why))));
        }
    }
    // SAFETY: `conf` is a configuration; the callback has the type of rdkafka.h.
    unsafe { (functions.conf_set_dr_msg_cb)(conf, delivered) };
    // SAFETY: as above.
    unsafe { (functions.conf_set_error_cb)(conf, failed) };
    // SAFETY: `conf` is a configuration; the reports outlive the client, whose callbacks read them.
    unsafe { (functions.conf_set_opaque)(conf, ptr::from_ref(reports).cast_mut().cast()) };
    Ok(conf)
}

/// A broker acknowledged a message, or its time is over. A message begins with its error code.
extern "C" fn delivered(_: *mut c_void, message: *const c_int, reports: *mut c_void) {
    // SAFETY: librdkafka passes a message that lives during the call.
    let error = unsafe { message.read() };
    // SAFETY: the address is that of `KafkaProducer::reports`, which outlives the client.
    let reports = unsafe { &*reports.cast_const().cast::<DeliveryReports>() };
    match error {
        0 => {
            reports.is_down.store(false, Relaxed);
            *reports.failure() = None;
        }
        _ => {
            reports.lost.fetch_add(1, Relaxed);
            reports.is_down.store(true, Relaxed);
            // The reason of the error callback says more.
            let mut failure = reports.failure();
            failure.get_or_insert_with(|| reports.word_of(error));
        }
    }
}

extern "C" fn failed(_: *mut c_void, _: c_int, reason: *const c_char, reports: *mut c_void) {
    // SAFETY: librdkafka passes a text that ends with a zero and lives during the call.
    let reason = unsafe { CStr::from_ptr(reason) };
    // SAFETY: the address is that of `KafkaProducer::reports`, which outlives the client.
    let reports = unsafe { &*reports.cast_const().cast::<DeliveryReports>() };
    *reports.failure() = Some(reason.to_string_lossy().into_owned());
}

fn c_string(text: &str) -> Result<CString, ExportError> {
    CString::new(text).map_err(|_| ExportError(format!("{text:?} has a zero byte")))
}

/// Text up to the first zero byte of a buffer that the library has written.
fn text(buffer: &[c_char]) -> String {
    let bytes = buffer.iter().take_while(|byte| **byte != 0);
    let bytes: Vec<u8> = bytes.map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
