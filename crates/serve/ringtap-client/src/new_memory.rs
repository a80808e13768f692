// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the memory in which a pool lies now in place of the one before.
#![allow(unsafe_code, reason = "replaces mappings")]

use ringtap_pool::reader::Reader;

use crate::control::Control;
use crate::receive_error::ReceiveError;

/// The memory's device was unplugged.
const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// The number of the new memory of an endpoint's pool, if there is any but the one that has `left` already.
#[inline]
pub(crate) fn number(reader: &Reader, left: Option<u32>) -> Option<u32> {
    reader.new_memory().filter(|number| Some(*number) != left)
}

/// Maps the new memory of an endpoint's pool, if there is any. A device that was unplugged meanwhile has `left`: the
/// hub tells of other memory soon.
#[cold]
pub(crate) fn map(
    control: &dyn Control,
    endpoint: usize,
    reader: &mut Reader,
    left: &mut Option<u32>,
) -> Result<(), ReceiveError> {
    let Some(wanted) = number(reader, *left) else {
        return Ok(());
    };
    let Some(memory) = control.memory(endpoint)? else {
        reader.has_mapped(wanted);
        return Ok(());
    };
    // SAFETY: the pool of a hub in another process is a whole mapping, and the hub keeps what readers have of
    // it: it could write any memory of the pool in any case.
    match unsafe { memory.map_over(reader.pool().region()) } {
        Err(error) if error.raw_os_error() == Some(NO_DEVICE) => *left = Some(memory.number),
        mapped => {
            mapped?;
            reader.has_mapped(memory.number);
        }
    }
    Ok(())
}
