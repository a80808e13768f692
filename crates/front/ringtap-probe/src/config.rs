// SPDX-License-Identifier: MIT OR Apache-2.0
//! The *parser*: one TOML file with analyses and exports, checked whole before anything starts.
//!
//! Errors name the file, the line, the key, and what is possible.

mod actions;
mod keys;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringtap_capture::meter::MAX_LOOPS;
use ringtap_ipc::trusted::read_trusted;
use toml::de::DeTable;

use crate::analysis::{AnalysisKind, AnalysisPlan, CountedIn, GapScope, KeyField};
use crate::application::require_ndpi;
use crate::export::ExportError;
use crate::export::destination::Destination;
use crate::flows::FlowOptions;
use crate::library::LibraryPlan;
use crate::plan::ProbePlan;
use keys::KeyTable;

/// Shortest idle time-out of flows that the kernel counts.
const MIN_KERNEL_IDLE: Duration = Duration::from_secs(2);
/// Most keys of a `top` result.
const MAX_KEYS: u32 = 10_000;
/// Most names of a `dns` result.
const MAX_NAMES: u32 = 1_000;
/// Most processes of one library.
const MAX_PROCESSES: u32 = 64;
/// Time after which a process that does not answer is killed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest timeout: processes send a message each 0.5 s.
const MIN_TIMEOUT: Duration = Duration::from_secs(2);
/// First pause before a process is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeConfig {
    /// The analyses to run.
    pub plan: ProbePlan,
    /// Where results go; empty: to standard output.
    pub exports: Vec<ExportPlan>,
}

/// Where results go.
#[derive(Clone, Debug, PartialEq)]
pub enum ExportPlan {
    /// Lines for people on standard output.
    Text,
    /// Lines of JSON on standard output.
    Json,
    /// Somewhere else.
    To(Destination),
}

/// Why a configuration is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A text is no time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", keys::TIME)]
pub struct TimeError;

impl ProbeConfig {
    /// Reads and checks a file. Analyses without `every` have results after `every`; `None`: at the end.
    ///
    /// # Errors
    ///
    /// The first error, with its line and key.
    pub fn read(path: &Path, every: Option<Duration>) -> Result<Self, ConfigError> {
        let text = read_trusted(path).map_err(|error| ConfigError(error.to_string()))?;
        ProbeConfig::parse(&path.display().to_string(), &text, every)
    }

    /// Checks the text of a file of this name.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringtap_probe::config::ProbeConfig;
    ///
    /// let text = "[[analysis]]\nkind = \"top\"\nby = \"source\"\nevery = \"10s\"\n";
    /// let config = ProbeConfig::parse("probe.toml", text, None)?;
    /// assert_eq!(config.plan.analyses[0].name, "top source");
    ///
    /// let error = ProbeConfig::parse("probe.toml", "[[analysis]]\nkind = \"tops\"\n", None);
    /// assert!(error.unwrap_err().to_string().starts_with("probe.toml, line 2, kind: expected"));
    /// # Ok::<(), ringtap_probe::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`ProbeConfig::read`].
    pub fn parse(name: &str, text: &str, every: Option<Duration>) -> Result<Self, ConfigError> {
        let document = DeTable::parse(text)
            .map_err(|error| ConfigError(format!("{name}: {}", error.to_string().trim_end())))?;
        let mut file = KeyTable::new(name, text, document.get_ref());
        let mut plan = ProbePlan::empty();
        let congestion = file.parsed("congestion", |marks| match marks {
            "off" => Ok(None),
            marks => marks
                .parse()
                .map(Some)
                .map_err(|why| format!("{why}, or off")),
        })?;
        plan.congestion = congestion.unwrap_or(plan.congestion);
        if let Some(mut kernel) = file.table("kernel")? {
            let flows = kernel.number("flows", 1..=1 << 24)?;
            plan.kernel_flows = flows.unwrap_or(plan.kernel_flows);
            kernel.finish("[kernel]")?;
        }
        let mut names = Vec::new();
        for mut table in file.tables("analysis")? {
            let name = analysis(&mut table, every, &mut plan)?;
            if names.contains(&name) {
                let why =
                    format!("there is \"{name}\" above: give each analysis a name of its own");
                return Err(table.error("name", why));
            }
            names.push(name);
        }
        if names.is_empty() {
            plan.analyses = ProbePlan::standard(every).analyses;
        }
        for mut table in file.tables("action")? {
            let action = actions::action(&mut table, &plan)?;
            plan.actions.push(action);
        }
        let mut exports = Vec::new();
        for mut table in file.tables("export")? {
            let to = table.parsed("to", export)?;
            table.finish("[[export]]")?;
            exports.push(to.ok_or_else(|| table.error("to", "needs a destination"))?);
        }
        file.finish("a probe")?;
        Ok(ProbeConfig { plan, exports })
    }
}

/// Parses a time as in a file: `500ms`, `5s`, `10m`, `1h`.
///
/// # Errors
///
/// [`TimeError`].
pub fn time(text: &str) -> Result<Duration, TimeError> {
    keys::duration(text).ok_or(TimeError)
}

fn export(to: &str) -> Result<ExportPlan, ExportError> {
    match to {
        "text" => Ok(ExportPlan::Text),
        "json" => Ok(ExportPlan::Json),
        _ => match to.parse() {
            Ok(destination) => Ok(ExportPlan::To(destination)),
            Err(error) => Err(ExportError(format!("{error}, or text, or json"))),
        },
    }
}

/// Adds a table `[[analysis]]` to the plan, and returns its name.
fn analysis(
    table: &mut KeyTable<'_>,
    every: Option<Duration>,
    plan: &mut ProbePlan,
) -> Result<String, ConfigError> {
    let word = table.text("kind")?.unwrap_or_default();
    let name = table.text("name")?.map(str::to_owned);
    let enabled = table.flag("enabled")?.unwrap_or(true);
    let own = match word {
        // Flow records come as flows end.
        "flows" => None,
        _ => table.time("every")?,
    };
    let every = own.or(every);
    if word == "library" {
        let library = library(table, name, every)?;
        table.finish("kind \"library\"")?;
        let name = library.name.clone();
        // One that is off is checked, but has no processes.
        plan.libraries.extend(enabled.then_some(library));
        return Ok(name);
    }
    let (kind, usual) = kind(table, word)?;
    let name = name.unwrap_or(usual);
    let place = place(table, &kind)?;
    table.finish(&format!("kind \"{word}\""))?;
    plan.analyses.push(AnalysisPlan {
        name: name.clone(),
        kind,
        every,
        enabled,
        place,
    });
    let loops = plan.kernel_wants().map_or(0, |wants| wants.loops);
    if loops <= MAX_LOOPS {
        Ok(name)
    } else {
        Err(table.error(
            "loops",
            format!(
                "the kernel's analyses have {loops} loops for each packet so far: at most {MAX_LOOPS} together"
            ),
        ))
    }
}

/// The quantity that an analysis other than a library measures, and the usual name of the analysis.
fn kind(table: &mut KeyTable<'_>, word: &str) -> Result<(AnalysisKind, String), ConfigError> {
    let mut usual = word.to_owned();
    let kind = match word {
        "flows" => AnalysisKind::Flows(flows(table)?),
        "top" => {
            let (by, text) = key_field(table)?;
            usual = format!("top {text}");
            let count = table.number("count", 1..=MAX_KEYS)?.unwrap_or(10);
            AnalysisKind::Top { by, count }
        }
        "sizes" => AnalysisKind::Sizes,
        "cardinality" => {
            let (by, text) = key_field(table)?;
            usual = format!("distinct {text}");
            AnalysisKind::Cardinality { by }
        }
        "dns" => AnalysisKind::Dns {
            count: table.number("count", 1..=MAX_NAMES)?.unwrap_or(10),
        },
        "rtt" => AnalysisKind::RoundTrips,
        "gaps" => {
            let by = table.parsed("by", |by| match by {
                "flow" => Ok(GapScope::Flow),
                "capture" => Ok(GapScope::Capture),
                _ => Err("expected flow or capture"),
            })?;
            let by = by.unwrap_or(GapScope::Flow);
            AnalysisKind::Gaps { by }
        }
        "load" => AnalysisKind::Load {
            loops: table.number("loops", 1..=MAX_LOOPS)?.unwrap_or(1000),
        },
        _ => {
            let why = "expected flows, top, sizes, cardinality, dns, rtt, gaps, load or library";
            return Err(table.error("kind", why));
        }
    };
    Ok((kind, usual))
}

fn place(table: &mut KeyTable<'_>, kind: &AnalysisKind) -> Result<CountedIn, ConfigError> {
    match (table.text("where")?, kind) {
        (None | Some("workers"), _) => Ok(CountedIn::Workers),
        (Some("kernel"), AnalysisKind::Flows(FlowOptions { idle, .. }))
            if *idle < MIN_KERNEL_IDLE =>
        {
            let why =
                "flows in the kernel need idle of at least 2s: their counts are taken each second";
            Err(table.error("where", why))
        }
        (Some("kernel"), kind) if !kind.fits_kernel() => {
            let why = "the kernel has flows, top, sizes, cardinality and load: leave where out, or for round \
                       trips use flows with their handshake_rtt";
            Err(table.error("where", why))
        }
        (Some("kernel"), _) => {
            let mut of_payload = ["payload_bytes", "payload_mib", "ndpi"].into_iter();
            let why = "needs payload, which does not leave the kernel: leave this out, or where";
            match of_payload.find(|key| table.has(key)) {
                Some(key) => Err(table.error(key, why)),
                None => Ok(CountedIn::Kernel),
            }
        }
        _ => Err(table.error("where", "expected workers or kernel")),
    }
}

/// The part of a key that `by` names, and its text.
fn key_field<'a>(table: &mut KeyTable<'a>) -> Result<(KeyField, &'a str), ConfigError> {
    let words = KeyField::WORDS.map(KeyField::word).join(", ");
    let words = format!("one of {words}, or a network like source/24 or destination/16");
    let wrong = format!("expected {words}");
    let part = table.parsed("by", |by| match KeyField::from_text(by) {
        Some(part) => Ok((part, by)),
        None => Err(wrong),
    })?;
    part.ok_or_else(|| table.error("kind", format!("needs by = {words}")))
}

fn flows(table: &mut KeyTable<'_>) -> Result<FlowOptions, ConfigError> {
    let usual = FlowOptions::default();
    let flows = FlowOptions {
        max_flows: table
            .number("max_flows", 1..=1 << 28)?
            .unwrap_or(usual.max_flows),
        active: table.time("active")?.unwrap_or(usual.active),
        idle: table.time("idle")?.unwrap_or(usual.idle),
        sampling: table
            .number("sampling", 1..=1 << 20)?
            .unwrap_or(usual.sampling),
        community_id_seed: table
            .number("community_id_seed", 0..=u16::MAX.into())?
            .and_then(|seed| u16::try_from(seed).ok())
            .unwrap_or(usual.community_id_seed),
        payload_bytes: table
            .number("payload_bytes", 0..=1 << 16)?
            .unwrap_or(usual.payload_bytes),
        payload_memory: table
            .number("payload_mib", 1..=1 << 20)?
            .map_or(usual.payload_memory, |mib| u64::from(mib) << 20),
        ndpi: table.flag("ndpi")?.unwrap_or(usual.ndpi),
    };
    if flows.ndpi {
        require_ndpi().map_err(|why| table.error("ndpi", why))?;
    }
    Ok(flows)
}

fn library(
    table: &mut KeyTable<'_>,
    name: Option<String>,
    every: Option<Duration>,
) -> Result<LibraryPlan, ConfigError> {
    let library = table.parsed("library", |path| match PathBuf::from(path) {
        path if path.is_absolute() && path.is_file() => Ok(path),
        _ => Err("expected the absolute path of a shared library that exists"),
    })?;
    let timeout = table.long_time("timeout", MIN_TIMEOUT)?;
    Ok(LibraryPlan {
        name: name.unwrap_or_else(|| "library".to_owned()),
        library: library
            .ok_or_else(|| table.error("kind", "needs library = the path of a shared library"))?,
        reads: table.paths("reads")?.unwrap_or_default(),
        settings: table.text("settings")?.unwrap_or_default().to_owned(),
        processes: table.number("processes", 1..=MAX_PROCESSES)?,
        every,
        timeout: timeout.unwrap_or(TIMEOUT),
        pause: table.time("pause")?.unwrap_or(PAUSE),
    })
}
