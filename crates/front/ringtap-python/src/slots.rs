// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slots of a batch as bytes: those in the pool, or a copy.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use ringtap_columns::TakenPackets;

use crate::packet::fill;

/// Slots of 32 bytes, which numpy.frombuffer reads.
#[pyclass(name = "Slots", module = "ringtap", frozen)]
pub(crate) struct SlotBytes(SlotMemory);

enum SlotMemory {
    Lent(Arc<TakenPackets>),
    Copied(Vec<u8>),
}

impl SlotBytes {
    /// Of one part without packets of others in place; otherwise a copy.
    pub(crate) fn new(parts: &[Arc<TakenPackets>]) -> Self {
        if let [only] = parts
            && only.slots().is_some()
        {
            return SlotBytes(SlotMemory::Lent(Arc::clone(only)));
        }
        let mut copy = Vec::with_capacity(32 * parts.iter().map(|part| part.len()).sum::<usize>());
        parts.iter().for_each(|part| part.copy_slots(&mut copy));
        SlotBytes(SlotMemory::Copied(copy))
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            SlotMemory::Lent(batch) => batch.slots().unwrap_or_default(),
            SlotMemory::Copied(copy) => copy,
        }
    }
}

#[pymethods]
impl SlotBytes {
    /// # Safety
    ///
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().bytes();
        // SAFETY: the bytes live as long as this object, which owns them or their batch.
        unsafe { fill(view, slf.as_any(), bytes, flags) }
    }
}
