// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for a program that starts a probe: libraries, exporters, the plan read again, a function that ends it.

mod libraries;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringtap::Capture;
use ringtap_capture::meter::KernelMeter;

use crate::config::{ExportPlan, ProbeConfig};
use crate::control::PlanReader;
use crate::export::destination::Destination;
use crate::export::json::JsonLines;
use crate::export::text::TextLines;
use crate::export::{ExportError, Exporter, WhenFull};

pub use libraries::{LibraryStart, LibraryStartError};

/// Ends what a probe reads.
pub type ProbeEnd = Arc<dyn Fn() + Send + Sync>;

/// A function that ends the workers' capture, the programs in the kernel, or both.
pub fn ending(capture: Option<&Capture>, meter: Option<&KernelMeter>) -> ProbeEnd {
    let control = capture.map(|capture| Arc::clone(capture.control()));
    let ending = meter.map(KernelMeter::ending);
    Arc::new(move || {
        if let Some(ending) = &ending {
            ending.store(true, Relaxed);
        }
        if let Some(control) = &control {
            control.stop();
        }
    })
}

/// The exporters of a configuration and of `more`, and whether those that write to `output`, the standard output, write
/// JSON. Without a configuration, one writes to it; `is_json`: the user asked for JSON.
///
/// # Errors
///
/// A destination cannot be opened.
pub fn open_exporters(
    plans: &[ExportPlan],
    more: &[Destination],
    is_json: bool,
    output: impl Write + Send + 'static,
    when_full: WhenFull,
) -> Result<(bool, Vec<Box<dyn Exporter>>), ExportError> {
    let mut to_stdout = plans.is_empty().then_some(is_json);
    let mut destinations = Vec::new();
    for plan in plans {
        match plan {
            ExportPlan::Text => to_stdout = Some(is_json),
            ExportPlan::Json => to_stdout = Some(true),
            ExportPlan::To(destination) => destinations.push(destination),
        }
    }
    let mut exporters: Vec<Box<dyn Exporter>> = Vec::new();
    match to_stdout {
        Some(true) => exporters.push(Box::new(JsonLines::new(output, "standard output"))),
        Some(false) => exporters.push(Box::new(TextLines::new(output))),
        None => {}
    }
    for destination in destinations.into_iter().chain(more) {
        exporters.push(destination.clone().open(when_full)?);
    }
    Ok((to_stdout.unwrap_or(is_json), exporters))
}

/// Reads the file of a configuration again for a running probe, whose destinations stay as they are.
pub fn plan_reader(path: PathBuf, every: Option<Duration>, exports: Vec<ExportPlan>) -> PlanReader {
    Box::new(move || {
        let config = ProbeConfig::read(&path, every)?;
        let mut notes = Vec::new();
        if config.exports != exports {
            notes.push("export: unchanged: it changes with a restart of the probe".to_owned());
        }
        Ok((config.plan, notes))
    })
}
