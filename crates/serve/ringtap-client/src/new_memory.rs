// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the memory in which a pool lies now in place of the one before.
#![allow(unsafe_code, reason = "replaces mappings")]

use ringtap_pool::reader::Reader;

use crate::control::Control;
use crate::receive_error::ReceiveError;

/// Maps the new memory of an endpoint's pool, if there is any.
#[cold]
pub(crate) fn map(
    control: &dyn Control,
    endpoint: usize,
    reader: &mut Reader,
) -> Result<(), ReceiveError> {
    let Some(number) = reader.new_memory() else {
        return Ok(());
    };
    let Some(memory) = control.memory(endpoint)? else {
        reader.has_mapped(number);
        return Ok(());
    };
    // SAFETY: the pool of a hub in another process is a whole mapping, and the hub keeps what readers have of
    // it: it could write any memory of the pool in any case.
    unsafe { memory.map_over(reader.pool().region()) }?;
    reader.has_mapped(memory.number);
    Ok(())
}
