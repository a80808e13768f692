// SPDX-License-Identifier: MIT OR Apache-2.0
//! One packet, in place.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use ringtap::{Packet, Slot};
use ringtap_columns::{LaneLinks, TakenPackets};
use ringtap_filter::hash;

/// One packet. Its bytes lie in the capture's pool as long as the packet or a view of it lives.
#[pyclass(name = "Packet", module = "ringtap", frozen, freelist = 1024)]
pub(crate) struct PythonPacket {
    batch: Arc<TakenPackets>,
    links: Arc<LaneLinks>,
    index: usize,
}

impl PythonPacket {
    pub(crate) fn new(batch: Arc<TakenPackets>, links: Arc<LaneLinks>, index: usize) -> Self {
        PythonPacket {
            batch,
            links,
            index,
        }
    }

    fn packet(&self) -> PyResult<Packet<'_>> {
        let packet = self.batch.packet(self.index);
        packet.ok_or_else(|| crate::errors::Error::new_err("the pool has impossible content"))
    }

    fn slot(&self) -> PyResult<Slot> {
        Ok(self.packet()?.slot())
    }
}

#[pymethods]
impl PythonPacket {
    /// Nanoseconds since 1970.
    #[getter]
    fn time_ns(&self) -> PyResult<u64> {
        Ok(self.slot()?.time_ns)
    }

    /// Seconds since 1970, to about a microsecond.
    #[getter]
    fn time(&self) -> PyResult<f64> {
        #[expect(clippy::cast_precision_loss, reason = "documented")]
        Ok(self.slot()?.time_ns as f64 / 1e9)
    }

    /// Length on the wire in bytes, without the frame check sequence.
    #[getter]
    fn wire_length(&self) -> PyResult<u32> {
        Ok(self.slot()?.wire_length)
    }

    /// Number of captured bytes.
    #[getter]
    fn captured(&self) -> PyResult<usize> {
        Ok(self.packet()?.data.len())
    }

    /// The captured bytes, in place.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf)
    }

    /// The lane, counted over all sources.
    #[getter]
    fn lane(&self) -> u32 {
        self.batch.lane(self.index).map_or(0, |lane| lane.0)
    }

    /// Receive queue.
    #[getter]
    fn queue(&self) -> PyResult<u16> {
        Ok(self.slot()?.queue)
    }

    /// Symmetric flow hash; None if none was computed.
    #[getter]
    fn hash(&self) -> PyResult<Option<u32>> {
        Ok(self.slot()?.hash())
    }

    /// Bits of ringtap.Flag.
    #[getter]
    fn flags(&self) -> PyResult<u8> {
        Ok(self.slot()?.flags)
    }

    /// Number of the packet in its lane.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.packet()?.sequence)
    }

    /// Number of the outermost VLAN tag; None without a tag.
    #[getter]
    fn vlan(&self) -> PyResult<Option<u32>> {
        let data = self.packet()?.data;
        let lane = self.batch.lane(self.index);
        let link = lane.and_then(|lane| self.links.of(lane));
        Ok(link
            .map(|link| hash::vlan(data, link))
            .filter(|vlan| *vlan > 0))
    }

    fn __bytes__<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(python, self.packet()?.data))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.captured()
    }

    fn __repr__(&self) -> PyResult<String> {
        let (packet, slot) = (self.packet()?, self.slot()?);
        Ok(format!(
            "<ringtap.Packet time_ns={} captured={} wire_length={}>",
            slot.time_ns,
            packet.data.len(),
            slot.wire_length
        ))
    }

    /// # Safety
    ///
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let data = slf.get().packet()?.data;
        // SAFETY: the bytes live as long as the packet's batch, which the packet owns.
        unsafe { fill(view, slf.as_any(), data, flags) }
    }
}

/// Fills a view of bytes that live as long as `owner`.
///
/// # Safety
///
/// `view` points to a view to fill; the bytes are not written and live as long as `owner`.
pub(crate) unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    bytes: &[u8],
    flags: c_int,
) -> PyResult<()> {
    let length = isize::try_from(bytes.len())
        .map_err(|_| PyBufferError::new_err("more bytes than Python counts"))?;
    let start = bytes.as_ptr().cast_mut().cast::<c_void>();
    // SAFETY: the caller's promise; the view takes a reference to the owner, and is read-only.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, length, 1, flags) };
    if filled == 0 {
        return Ok(());
    }
    Err(PyErr::fetch(owner.py()))
}
