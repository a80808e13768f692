// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of packets, of one or several chunks.

use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use ringtap_columns::{AddressForm, ColumnOptions, LaneLinks, PacketColumns, TakenPackets};

use crate::arrow::ArrowTable;
use crate::packet::PythonPacket;
use crate::slots::SlotBytes;

/// Packets that were taken together.
#[pyclass(name = "Batch", module = "ringtap", frozen, subclass)]
pub(crate) struct NativeBatch {
    parts: Vec<Arc<TakenPackets>>,
    links: Arc<LaneLinks>,
    len: usize,
}

impl NativeBatch {
    pub(crate) fn new(parts: Vec<Arc<TakenPackets>>, links: Arc<LaneLinks>) -> Self {
        NativeBatch {
            len: parts.iter().map(|part| part.len()).sum(),
            parts,
            links,
        }
    }
}

#[pymethods]
impl NativeBatch {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __getitem__(&self, index: isize) -> PyResult<PythonPacket> {
        let from_end = || self.len.checked_sub(index.unsigned_abs());
        let index = usize::try_from(index).ok().or_else(from_end);
        let mut left = index.unwrap_or(usize::MAX);
        for part in &self.parts {
            if left < part.len() {
                let links = Arc::clone(&self.links);
                return Ok(PythonPacket::new(Arc::clone(part), links, left));
            }
            left -= part.len();
        }
        Err(PyIndexError::new_err("the batch has fewer packets"))
    }

    fn __iter__(&self) -> PacketIterator {
        PacketIterator {
            parts: self.parts.clone(),
            links: Arc::clone(&self.links),
            part: 0,
            index: 0,
        }
    }

    /// A batch in memory of its own, which the capture does not wait for.
    fn copy(&self, python: Python<'_>) -> NativeBatch {
        let copy = || {
            let parts = self.parts.iter().map(|part| Arc::new(part.copy()));
            NativeBatch::new(parts.collect(), Arc::clone(&self.links))
        };
        python.detach(copy)
    }

    fn slots(&self) -> SlotBytes {
        SlotBytes::new(&self.parts)
    }

    fn table(&self, python: Python<'_>, columns: ColumnChoice) -> PyResult<ArrowTable> {
        let table = python.detach(|| {
            let mut columns = PacketColumns::new(columns.options(), Arc::clone(&self.links));
            columns.reserve(self.len);
            self.parts.iter().for_each(|part| columns.extend(part));
            columns.finish()
        });
        ArrowTable::new(table)
    }
}

/// Which columns a table has, as a dictionary of Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ColumnChoice {
    headers: bool,
    text: bool,
    community_id: Option<u16>,
    inner: bool,
    data: bool,
}

impl ColumnChoice {
    pub(crate) fn options(&self) -> ColumnOptions {
        ColumnOptions {
            headers: self.headers,
            addresses: if self.text {
                AddressForm::Text
            } else {
                AddressForm::Binary
            },
            community_id: self.community_id,
            inner: self.inner,
            data: self.data,
        }
    }
}

/// Iterates over the packets of a batch.
#[pyclass(module = "ringtap")]
pub(crate) struct PacketIterator {
    parts: Vec<Arc<TakenPackets>>,
    links: Arc<LaneLinks>,
    part: usize,
    index: usize,
}

#[pymethods]
impl PacketIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<PythonPacket> {
        loop {
            let part = self.parts.get(self.part)?;
            if self.index < part.len() {
                let index = self.index;
                self.index += 1;
                let links = Arc::clone(&self.links);
                return Some(PythonPacket::new(Arc::clone(part), links, index));
            }
            (self.part, self.index) = (self.part + 1, 0);
        }
    }
}
