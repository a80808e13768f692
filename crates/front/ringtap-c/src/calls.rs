// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of `include/ringtap.h`, which documents them.
//!
//! Invariants
//! - Every pointer is checked for null before use; no pointer of the caller is kept.
//! - Other work happens behind [`handles`], which catches panics.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/ringtap.h has the documentation"
)]
#![expect(missing_docs, reason = "include/ringtap.h has the documentation")]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ringtap_client::{
    CursorPacket, Lasting, Look, ReaderRules, SubscriptionRequest, Verdict, Watermark,
};
use ringtap_pool::number::to_usize;

use crate::error::CallError;
use crate::flows;
use crate::handles;
use crate::session::{Session, deadline};
use crate::types::{
    CFlowEvent, CFlowRule, CHandle, CLastGap, COptions, CSource, CStatistics, DROP, END, FOR_GOOD,
    FOR_TIME, OK, OPEN_PRIVATE, PASS, UNTIL_IDLE,
};

/// Larger than any structure, including those of later versions.
const MAX_STRUCT_BYTES: usize = 4096;

/// The bytes of a text; `None` for NULL.
///
/// # Safety
///
/// `text` is NULL or points to a text that ends with NUL and outlives `'a`.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null; the caller guarantees the rest.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The text, as UTF-8; `None` for NULL.
///
/// # Safety
///
/// As for [`bytes`].
unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Result<Option<&'a str>, CallError> {
    // SAFETY: the caller's guarantee.
    let Some(bytes) = (unsafe { bytes(text) }) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes);
    text.map(Some)
        .map_err(|_| CallError::argument(format!("{what} is not UTF-8 text")))
}

/// The caller's options; `None` for NULL.
///
/// # Safety
///
/// `options` is NULL or points to a structure of the size in its first member.
unsafe fn read_options(options: *const COptions) -> Result<Option<COptions>, CallError> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the caller guarantees at least the first member.
    let size = unsafe { size_of_struct(options, "options") }?;
    // SAFETY: the caller guarantees the size that was just checked.
    let whole = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    if whole[size_of::<COptions>()..].iter().any(|byte| *byte != 0) {
        return Err(CallError::argument(
            "options from a newer ringtap.h than this library: update the library",
        ));
    }
    // SAFETY: as above; every bit pattern is a value of this structure.
    Ok(Some(unsafe { options.read() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_open(
    handle: *mut *mut CHandle,
    socket: *const c_char,
    group: *const c_char,
    options: *const COptions,
) -> c_int {
    handles::guarded(|| {
        if handle.is_null() {
            return Err(CallError::null("handle"));
        }
        // SAFETY: not null; a place for a handle, by the header.
        unsafe { handle.write(std::ptr::null_mut()) };
        // SAFETY: NULL or a text, by the header; it is copied before the call ends.
        let group = unsafe { text(group, "group") }?.ok_or_else(|| CallError::null("group"))?;
        // SAFETY: as above.
        let socket = unsafe { bytes(socket) };
        // SAFETY: NULL or a structure of the size in it, by the header.
        let options = unsafe { read_options(options) }?;
        // SAFETY: the texts in it are NULL or valid texts, by the header.
        let (mut request, filter) = unsafe { request(group, options.as_ref()) }?;
        let path = socket.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let of_host = request.group.strip_prefix("host:").map(str::to_owned);
        let path = match of_host {
            Some(group) => {
                let path = path.unwrap_or_else(|| ringtap_client::host_socket(&group));
                request.group = group;
                Some(path)
            }
            None => path,
        };
        let order_ms = options.map_or(0, |options| options.order_ms);
        let session = Session::open(path, request, filter, order_ms)?;
        let open = handles::add(session)?;
        // SAFETY: as above.
        unsafe { handle.write(open) };
        Ok(OK)
    })
}

/// # Safety
///
/// Texts in `options` are NULL or valid texts that outlive `'a`.
unsafe fn request<'a>(
    group: &str,
    options: Option<&COptions>,
) -> Result<(SubscriptionRequest, &'a str), CallError> {
    let mut request = SubscriptionRequest::new(group, program_name());
    let Some(options) = options else {
        return Ok((request, ""));
    };
    if options.flags & !OPEN_PRIVATE != 0 {
        return Err(CallError::argument(format!(
            "flags {} is invalid: only the bits RINGTAP_OPEN_* are known",
            options.flags
        )));
    }
    // SAFETY: the caller's guarantee.
    if let Some(name) = unsafe { text(options.name, "name") }? {
        request.name = name.to_owned();
    }
    // SAFETY: the caller's guarantee.
    let filter = unsafe { text(options.filter, "filter") }?.unwrap_or("");
    // SAFETY: the caller's guarantee.
    if let Some(name) = unsafe { text(options.marks, "marks") }? {
        request.marks = Some(flows::group(name)?);
    }
    let given = |value: u32| Some(value).filter(|value| *value != 0);
    request.credit_chunks = given(options.credit_chunks);
    request.watermark = Watermark::or_default(
        given(options.watermark_packets),
        given(options.time_limit_ms),
        None,
    );
    request.private = options.flags & OPEN_PRIVATE != 0;
    Ok((request, filter))
}

fn program_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm");
    name.map_or_else(|_| "libringtap".to_owned(), |name| name.trim().to_owned())
}

/// Receives packets by `give`, which returns the packets and their number.
fn receive(
    handle: *mut CHandle,
    out: *mut *const CursorPacket,
    timeout_ms: c_int,
    give: impl FnOnce(&mut Session) -> (*const CursorPacket, usize),
) -> c_int {
    handles::with(handle, |session| {
        if out.is_null() {
            return Err(CallError::null("packet"));
        }
        let (packets, code) = match session.look(deadline(timeout_ms)?)? {
            Look::Empty => (std::ptr::null(), 0),
            Look::Ended => (std::ptr::null(), END),
            Look::Packets => {
                let (packets, count) = give(session);
                (packets, c_int::try_from(count).unwrap_or(c_int::MAX))
            }
        };
        // SAFETY: not null; a place for a pointer, by the header.
        unsafe { out.write(packets) };
        Ok(code)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_next(
    handle: *mut CHandle,
    packet: *mut *const CursorPacket,
    timeout_ms: c_int,
) -> c_int {
    receive(handle, packet, timeout_ms, |session| {
        let packet = session.cursor.take_one();
        (packet.map_or(std::ptr::null(), std::ptr::from_ref), 1)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_next_batch(
    handle: *mut CHandle,
    packets: *mut *const CursorPacket,
    timeout_ms: c_int,
) -> c_int {
    receive(handle, packets, timeout_ms, |session| {
        let packets = session.cursor.take_all();
        (packets.as_ptr(), packets.len())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_take_batch(
    handle: *mut CHandle,
    packets: *mut *const CursorPacket,
    batch: *mut u64,
    timeout_ms: c_int,
) -> c_int {
    if batch.is_null() {
        return handles::with(handle, |_| Err(CallError::null("batch")));
    }
    receive(handle, packets, timeout_ms, |session| {
        let (number, packets) = session.keep();
        // SAFETY: not null, just checked; a place for a number, by the header.
        unsafe { batch.write(number) };
        (packets.as_ptr(), packets.len())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_release_batch(handle: *mut CHandle, batch: u64) -> c_int {
    handles::with(handle, |session| session.release(batch).map(|()| OK))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_fd(handle: *mut CHandle) -> c_int {
    handles::with(handle, |session| Ok(session.cursor.descriptor()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_set_filter(handle: *mut CHandle, filter: *const c_char) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a text, by the header; it is not kept.
        let filter = unsafe { text(filter, "filter") }?.unwrap_or("");
        session.set_filter(filter)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_inline(handle: *mut CHandle) -> c_int {
    handles::with(handle, |session| session.inline().map(|()| OK))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_verdict(
    handle: *mut CHandle,
    lane: u32,
    sequence: u64,
    verdict: c_int,
) -> c_int {
    handles::with(handle, |session| {
        session.decide(lane, sequence, verdict_of(verdict)?, None)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_flow_verdict(
    handle: *mut CHandle,
    lane: u32,
    sequence: u64,
    verdict: c_int,
    lasting: c_int,
    time_ms: u32,
) -> c_int {
    handles::with(handle, |session| {
        let time = Duration::from_millis(time_ms.into());
        let lasting = match lasting {
            FOR_GOOD => Lasting::ForGood,
            FOR_TIME => Lasting::Time(time),
            UNTIL_IDLE => Lasting::UntilIdle(time),
            other => {
                return Err(CallError::argument(format!(
                    "lasting {other} is invalid: expected RINGTAP_FOR_GOOD, RINGTAP_FOR_TIME or RINGTAP_UNTIL_IDLE"
                )));
            }
        };
        session.decide(lane, sequence, verdict_of(verdict)?, Some(lasting))?;
        Ok(OK)
    })
}

fn verdict_of(number: c_int) -> Result<Verdict, CallError> {
    match number {
        PASS => Ok(Verdict::Pass),
        DROP => Ok(Verdict::Drop),
        other => Err(CallError::argument(format!(
            "verdict {other} is invalid: expected RINGTAP_PASS or RINGTAP_DROP"
        ))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_send_verdicts(handle: *mut CHandle) -> c_int {
    handles::with(handle, |session| {
        session.verdicts()?.send();
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_flow_rule(handle: *mut CHandle, rule: *const CFlowRule) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a structure of the size in it, by the header.
        unsafe { size_of_struct(rule, "rule") }?;
        // SAFETY: not null and large enough, just checked; every bit pattern is a value of this structure.
        let given = unsafe { rule.read() };
        // SAFETY: NULL or a text, by the header.
        let flow = unsafe { text(given.flow, "flow") }?;
        let flow = flow.ok_or_else(|| CallError::null("flow"))?;
        // SAFETY: NULL or a text, by the header.
        let group = unsafe { text(given.group, "group") }?;
        let rule = flows::rule(flow, group, &given)?;
        ReaderRules::new(&*session.connection).set(&[rule])?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_ignore_flow(
    handle: *mut CHandle,
    packet: *const CursorPacket,
) -> c_int {
    handles::with(handle, |session| {
        if packet.is_null() {
            return Err(CallError::null("packet"));
        }
        // SAFETY: not null; a packet of this handle, by the header.
        let packet = unsafe { packet.read() };
        let bytes = to_usize(packet.captured_bytes);
        // SAFETY: the packet's bytes are still there, by the header.
        let data = unsafe { std::slice::from_raw_parts(packet.data, bytes) };
        let link_type = session.cursor.receiver().link_type()?;
        let Some(rule) = flows::ignoring(data, packet.wire_bytes, link_type) else {
            return Ok(0);
        };
        ReaderRules::new(&*session.connection).set(&[rule])?;
        Ok(1)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_remove_flow_rule(
    handle: *mut CHandle,
    flow: *const c_char,
) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a text, by the header.
        let flow = unsafe { text(flow, "flow") }?;
        let flow = flows::flow(flow.ok_or_else(|| CallError::null("flow"))?)?;
        let removed = ReaderRules::new(&*session.connection).remove(&[flow])?;
        Ok(c_int::from(removed > 0))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_next_flow_event(
    handle: *mut CHandle,
    event: *mut CFlowEvent,
    timeout_ms: c_int,
) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a structure of the size in it, by the header.
        let size = unsafe { size_of_struct(event, "event") }?;
        let deadline = deadline(timeout_ms)?;
        let next = session.flows.next(&session.connection, deadline, size)?;
        let Some(filled) = next else {
            return Ok(0);
        };
        // SAFETY: not null and large enough, just checked.
        unsafe { event.write(filled) };
        Ok(1)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_statistics(
    handle: *mut CHandle,
    statistics: *mut CStatistics,
) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a structure of the size in it, by the header.
        let size = unsafe { size_of_struct(statistics, "statistics") }?;
        let (counters, ended) = session.counters()?;
        let filled = CStatistics {
            size,
            balanced: counters.balance().holds().into(),
            counters,
            ended: ended.into(),
        };
        // SAFETY: not null and large enough, just checked.
        unsafe { statistics.write(filled) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_source(
    handle: *mut CHandle,
    index: u32,
    source: *mut CSource,
) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a structure of the size in it, by the header.
        let size = unsafe { size_of_struct(source, "source") }?;
        let index = to_usize(index);
        let Some(found) = session.sources.get(index) else {
            return Ok(0);
        };
        let filled = CSource {
            size,
            device: found.device.as_ptr(),
            offered_from: found.offered_from.as_ptr(),
            link_type: found.link_type.into(),
            snap_length_bytes: found.snap_length_bytes,
            first_lane: found.first_lane,
            lanes: found.lanes,
        };
        // SAFETY: not null and large enough, just checked.
        unsafe { source.write(filled) };
        Ok(1)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_last_gap(handle: *mut CHandle, gap: *mut CLastGap) -> c_int {
    handles::with(handle, |session| {
        // SAFETY: NULL or a structure of the size in it, by the header.
        let size = unsafe { size_of_struct(gap, "gap") }?;
        let Some((last, lane, number)) = session.cursor.last_gap() else {
            return Ok(0);
        };
        let filled = CLastGap {
            size,
            sequence: last.sequence,
            duration_ns: last.duration_ns,
            after: last.after,
            lane: lane.0,
            number,
        };
        // SAFETY: not null and large enough, just checked.
        unsafe { gap.write(filled) };
        Ok(1)
    })
}

/// The first member of the caller's structure, its size, which is at least that of `T`.
///
/// # Safety
///
/// `structure` is NULL or points to a structure whose first member is its size.
unsafe fn size_of_struct<T>(structure: *const T, what: &str) -> Result<usize, CallError> {
    if structure.is_null() {
        return Err(CallError::null(what));
    }
    // SAFETY: not null; the caller guarantees the rest.
    let size = unsafe { structure.cast::<usize>().read() };
    if (size_of::<T>()..=MAX_STRUCT_BYTES).contains(&size) {
        Ok(size)
    } else {
        Err(CallError::argument(format!(
            "{what}: invalid `size` {size}: set it to the sizeof of the structure first"
        )))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_stop(handle: *mut CHandle) -> c_int {
    handles::guarded(|| handles::stop(handle).map(|()| OK))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_error(handle: *const CHandle) -> *const c_char {
    handles::error(handle)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringtap_close(handle: *mut CHandle) -> c_int {
    if handle.is_null() {
        return OK;
    }
    handles::guarded(|| handles::close(handle).map(|()| OK))
}

#[unsafe(no_mangle)]
pub extern "C" fn ringtap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
