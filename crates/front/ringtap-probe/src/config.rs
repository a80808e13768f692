// SPDX-License-Identifier: MIT OR Apache-2.0
//! The *parser*: one TOML file with analyses and exports, checked whole before anything starts.
//!
//! Errors name the file, the line, the key, and what is possible.

mod actions;
mod library;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use ringtap::Congestion;
use ringtap_capture::meter::MOST_LOOPS;
use serde::Deserialize;
use toml::Spanned;

use crate::analysis::{AnalysisKind, AnalysisPlace, AnalysisPlan, GapScope, KeyPart};
use crate::application::require_ndpi;
use crate::export::destination::Destination;
use crate::flows::FlowOptions;
use crate::plan::ProbePlan;
use actions::ActionTable;

/// Shortest idle time-out of flows that the kernel counts.
const LEAST_KERNEL_IDLE: Duration = Duration::from_secs(2);
/// Most keys of a `top` result.
const MOST_KEYS: u32 = 10_000;
/// Most names of a `dns` result.
const MOST_NAMES: u32 = 1_000;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeConfig {
    /// What to measure.
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    analysis: Vec<AnalysisTable>,
    #[serde(default)]
    action: Vec<ActionTable>,
    #[serde(default)]
    export: Vec<ExportTable>,
    congestion: Option<Spanned<String>>,
    #[serde(default)]
    kernel: KernelTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelTable {
    flows: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnalysisTable {
    kind: Spanned<String>,
    name: Option<Spanned<String>>,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(rename = "where")]
    place: Option<Spanned<String>>,
    every: Option<Spanned<String>>,
    by: Option<Spanned<String>>,
    count: Option<Spanned<u32>>,
    idle: Option<Spanned<String>>,
    active: Option<Spanned<String>>,
    most_flows: Option<Spanned<u32>>,
    sampling: Option<Spanned<u32>>,
    payload_bytes: Option<Spanned<u32>>,
    payload_mib: Option<Spanned<u32>>,
    ndpi: Option<Spanned<bool>>,
    loops: Option<Spanned<u32>>,
    library: Option<Spanned<String>>,
    settings: Option<Spanned<String>>,
    processes: Option<Spanned<u32>>,
    timeout: Option<Spanned<String>>,
    pause: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportTable {
    to: Spanned<String>,
}

fn yes() -> bool {
    true
}

impl ProbeConfig {
    /// Reads and checks a file. Analyses without `every` have results after `every`; `None`: at the end.
    ///
    /// # Errors
    ///
    /// The first error, with its line and key.
    pub fn read(path: &Path, every: Option<Duration>) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| ConfigError(format!("{}: {error}", path.display())))?;
        ProbeConfig::parse(&path.display().to_string(), &text, every)
    }

    /// Checks the text of a file of this name.
    ///
    /// # Errors
    ///
    /// As for [`ProbeConfig::read`].
    pub fn parse(name: &str, text: &str, every: Option<Duration>) -> Result<Self, ConfigError> {
        let file: ConfigFile = toml::from_str(text)
            .map_err(|error| ConfigError(format!("{name}: {}", error.to_string().trim_end())))?;
        let place = ConfigText { name, text };
        let usual = ProbePlan::empty();
        let mut plan = ProbePlan {
            kernel_flows: place
                .number("flows", file.kernel.flows.as_ref(), 1 << 24)?
                .unwrap_or(usual.kernel_flows),
            congestion: match &file.congestion {
                Some(marks) => place.congestion(marks)?,
                None => usual.congestion,
            },
            ..usual
        };
        let mut names = Vec::new();
        for table in &file.analysis {
            let name = match table.kind.get_ref().as_str() {
                "library" => {
                    let library = place.library(table, every)?;
                    let name = library.name.clone();
                    // One that is off is checked, but has no processes.
                    plan.libraries.extend(table.enabled.then_some(library));
                    name
                }
                _ => {
                    plan.analyses.push(place.analysis(table, every)?);
                    place.refuse_loops(table, &plan)?;
                    plan.analyses
                        .last()
                        .map_or_else(String::new, |one| one.name.clone())
                }
            };
            if names.contains(&name) {
                let own = table.name.as_ref().unwrap_or(&table.kind);
                let why =
                    format!("there is \"{name}\" above: give each analysis a name of its own");
                return Err(place.error("name", own, &why));
            }
            names.push(name);
        }
        if names.is_empty() {
            plan.analyses = ProbePlan::standard(every).analyses;
        }
        let actions = file.action.iter();
        let actions = actions.map(|table| place.action(table, &plan));
        plan.actions = actions.collect::<Result<_, _>>()?;
        let exports = file.export.iter().map(|table| place.export(&table.to));
        let exports = exports.collect::<Result<_, _>>()?;
        Ok(ProbeConfig { plan, exports })
    }
}

/// A file's text, for the lines of errors.
struct ConfigText<'a> {
    name: &'a str,
    text: &'a str,
}

impl ConfigText<'_> {
    fn error<T>(&self, key: &str, value: &Spanned<T>, why: &str) -> ConfigError {
        let before = self.text.get(..value.span().start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        ConfigError(format!("{}, line {line}, {key}: {why}", self.name))
    }

    fn congestion(&self, marks: &Spanned<String>) -> Result<Option<Congestion>, ConfigError> {
        match marks.get_ref().as_str() {
            "off" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|why| self.error("congestion", marks, &format!("{why}, or off"))),
        }
    }

    fn time(
        &self,
        key: &str,
        value: Option<&Spanned<String>>,
    ) -> Result<Option<Duration>, ConfigError> {
        let parse = |value: &Spanned<String>| {
            let wrong = "expected a time above 0, like 500ms, 5s, 10m or 1h";
            duration(value.get_ref()).ok_or_else(|| self.error(key, value, wrong))
        };
        value.map(parse).transpose()
    }

    fn number(
        &self,
        key: &str,
        value: Option<&Spanned<u32>>,
        most: u32,
    ) -> Result<Option<u32>, ConfigError> {
        match value {
            Some(value) if !(1..=most).contains(value.get_ref()) => {
                Err(self.error(key, value, &format!("expected a number from 1 to {most}")))
            }
            value => Ok(value.map(|value| *value.get_ref())),
        }
    }

    fn analysis(
        &self,
        table: &AnalysisTable,
        every: Option<Duration>,
    ) -> Result<AnalysisPlan, ConfigError> {
        let kind = match table.kind.get_ref().as_str() {
            "flows" => AnalysisKind::Flows(self.flows(table)?),
            "top" => AnalysisKind::Top {
                by: self.key_part(table)?,
                count: self
                    .number("count", table.count.as_ref(), MOST_KEYS)?
                    .unwrap_or(10),
            },
            "sizes" => AnalysisKind::Sizes,
            "cardinality" => AnalysisKind::Cardinality {
                by: self.key_part(table)?,
            },
            "dns" => AnalysisKind::Dns {
                count: self
                    .number("count", table.count.as_ref(), MOST_NAMES)?
                    .unwrap_or(10),
            },
            "rtt" => AnalysisKind::RoundTrips,
            "gaps" => AnalysisKind::Gaps {
                by: self.gap_scope(table)?,
            },
            "load" => AnalysisKind::Load {
                loops: self
                    .number("loops", table.loops.as_ref(), MOST_LOOPS)?
                    .unwrap_or(1000),
            },
            _ => {
                let why =
                    "expected flows, top, sizes, cardinality, dns, rtt, gaps, load or library";
                return Err(self.error("kind", &table.kind, why));
            }
        };
        self.refuse_unused(table)?;
        let name = table.name.as_ref().map(|name| name.get_ref().clone());
        let by = || table.by.as_ref().map_or("", |by| by.get_ref());
        Ok(AnalysisPlan {
            name: name.unwrap_or_else(|| match kind {
                AnalysisKind::Top { .. } => format!("top {}", by()),
                AnalysisKind::Cardinality { .. } => format!("distinct {}", by()),
                _ => table.kind.get_ref().clone(),
            }),
            every: self.time("every", table.every.as_ref())?.or(every),
            enabled: table.enabled,
            place: self.place(table, &kind)?,
            kind,
        })
    }

    fn place(
        &self,
        table: &AnalysisTable,
        kind: &AnalysisKind,
    ) -> Result<AnalysisPlace, ConfigError> {
        let Some(place) = &table.place else {
            return Ok(AnalysisPlace::Workers);
        };
        match (place.get_ref().as_str(), kind) {
            ("workers", _) => Ok(AnalysisPlace::Workers),
            ("kernel", AnalysisKind::Flows(FlowOptions { idle, .. }))
                if *idle < LEAST_KERNEL_IDLE =>
            {
                let why = "flows in the kernel need idle of at least 2s: their counts are taken each second";
                Err(self.error("where", place, why))
            }
            (
                "kernel",
                AnalysisKind::Dns { .. } | AnalysisKind::RoundTrips | AnalysisKind::Gaps { .. },
            ) => {
                let why = "the kernel has flows, top, sizes, cardinality and load: leave where out, or for round \
                           trips use flows with their handshake_rtt";
                Err(self.error("where", place, why))
            }
            ("kernel", _) => {
                let why =
                    "needs payload, which does not leave the kernel: leave this out, or where";
                let of_payload = [
                    ("payload_bytes", &table.payload_bytes),
                    ("payload_mib", &table.payload_mib),
                ];
                for (key, value) in of_payload {
                    if let Some(value) = value {
                        return Err(self.error(key, value, why));
                    }
                }
                match &table.ndpi {
                    Some(ndpi) => Err(self.error("ndpi", ndpi, why)),
                    None => Ok(AnalysisPlace::Kernel),
                }
            }
            _ => Err(self.error("where", place, "expected workers or kernel")),
        }
    }

    /// Refuses keys that mean nothing for this kind of analysis.
    fn refuse_unused(&self, table: &AnalysisTable) -> Result<(), ConfigError> {
        let kind = table.kind.get_ref().as_str();
        let (is_flows, is_library) = (kind == "flows", kind == "library");
        let texts = [
            ("every", &table.every, !is_flows),
            (
                "by",
                &table.by,
                matches!(kind, "top" | "cardinality" | "gaps"),
            ),
            ("idle", &table.idle, is_flows),
            ("active", &table.active, is_flows),
            ("where", &table.place, !is_library),
            ("library", &table.library, is_library),
            ("settings", &table.settings, is_library),
            ("timeout", &table.timeout, is_library),
            ("pause", &table.pause, is_library),
        ];
        let numbers = [
            ("count", &table.count, matches!(kind, "top" | "dns")),
            ("most_flows", &table.most_flows, is_flows),
            ("sampling", &table.sampling, is_flows),
            ("payload_bytes", &table.payload_bytes, is_flows),
            ("payload_mib", &table.payload_mib, is_flows),
            ("loops", &table.loops, kind == "load"),
            ("processes", &table.processes, is_library),
        ];
        let why = format!(
            "means nothing for kind \"{}\": leave it out",
            table.kind.get_ref()
        );
        if let (Some(ndpi), false) = (&table.ndpi, is_flows) {
            return Err(self.error("ndpi", ndpi, &why));
        }
        for (key, value, is_used) in texts {
            if let (Some(value), false) = (value, is_used) {
                return Err(self.error(key, value, &why));
            }
        }
        for (key, value, is_used) in numbers {
            if let (Some(value), false) = (value, is_used) {
                return Err(self.error(key, value, &why));
            }
        }
        Ok(())
    }

    /// Refuses more loops of all analyses in the kernel together than one packet may take.
    fn refuse_loops(&self, table: &AnalysisTable, plan: &ProbePlan) -> Result<(), ConfigError> {
        let loops = plan.kernel_wants().map_or(0, |wants| wants.loops);
        if loops <= MOST_LOOPS {
            return Ok(());
        }
        let why = format!(
            "the kernel's analyses have {loops} loops for each packet so far: at most {MOST_LOOPS} together"
        );
        Err(match &table.loops {
            Some(loops) => self.error("loops", loops, &why),
            None => self.error("kind", &table.kind, &why),
        })
    }

    fn key_part(&self, table: &AnalysisTable) -> Result<KeyPart, ConfigError> {
        let words = KeyPart::WORDS.map(KeyPart::word).join(", ");
        let words = format!("{words}, or a network like source/24 or destination/16");
        let Some(by) = &table.by else {
            let why = format!("needs by = one of {words}");
            return Err(self.error("kind", &table.kind, &why));
        };
        let found = KeyPart::of_text(by.get_ref());
        found.ok_or_else(|| self.error("by", by, &format!("expected one of {words}")))
    }

    fn gap_scope(&self, table: &AnalysisTable) -> Result<GapScope, ConfigError> {
        match table.by.as_ref().map(|by| (by, by.get_ref().as_str())) {
            None | Some((_, "flow")) => Ok(GapScope::Flow),
            Some((_, "capture")) => Ok(GapScope::Capture),
            Some((by, _)) => Err(self.error("by", by, "expected flow or capture")),
        }
    }

    fn flows(&self, table: &AnalysisTable) -> Result<FlowOptions, ConfigError> {
        let usual = FlowOptions::default();
        Ok(FlowOptions {
            most_flows: self
                .number("most_flows", table.most_flows.as_ref(), 1 << 28)?
                .unwrap_or(usual.most_flows),
            active: self
                .time("active", table.active.as_ref())?
                .unwrap_or(usual.active),
            idle: self
                .time("idle", table.idle.as_ref())?
                .unwrap_or(usual.idle),
            sampling: self
                .number("sampling", table.sampling.as_ref(), 1 << 20)?
                .unwrap_or(usual.sampling),
            payload_bytes: match &table.payload_bytes {
                Some(value) if *value.get_ref() == 0 => 0,
                value => self
                    .number("payload_bytes", value.as_ref(), 1 << 16)?
                    .unwrap_or(usual.payload_bytes),
            },
            payload_memory: self
                .number("payload_mib", table.payload_mib.as_ref(), 1 << 20)?
                .map_or(usual.payload_memory, |mib| u64::from(mib) << 20),
            ndpi: self.ndpi(table.ndpi.as_ref())?,
        })
    }

    fn ndpi(&self, wanted: Option<&Spanned<bool>>) -> Result<bool, ConfigError> {
        match wanted {
            Some(wanted) if *wanted.get_ref() => {
                let refused = |why: String| self.error("ndpi", wanted, &why);
                require_ndpi().map(|()| true).map_err(refused)
            }
            _ => Ok(false),
        }
    }

    fn export(&self, to: &Spanned<String>) -> Result<ExportPlan, ConfigError> {
        match to.get_ref().as_str() {
            "text" => Ok(ExportPlan::Text),
            "json" => Ok(ExportPlan::Json),
            place => match place.parse() {
                Ok(destination) => Ok(ExportPlan::To(destination)),
                Err(error) => Err(self.error("to", to, &format!("{error}, or text, or json"))),
            },
        }
    }
}

/// A number above 0 with `ms`, `s`, `m` or `h`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}
