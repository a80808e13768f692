// SPDX-License-Identifier: MIT OR Apache-2.0
//! The *parser*: one TOML file with analyses and exports, checked whole before anything starts.
//!
//! Errors name the file, the line, the key, and what is possible.

use std::path::Path;
use std::time::Duration;

use ringtap::Headers;
use serde::Deserialize;
use toml::Spanned;

use crate::analysis::{AnalysisKind, AnalysisPlace, AnalysisPlan, KeyPart};
use crate::application::require_ndpi;
use crate::export::destination::Destination;
use crate::flows::FlowOptions;
use crate::plan::{ProbePlan, USUAL_KERNEL_FLOWS};

/// Shortest idle time-out of flows that the kernel counts.
const LEAST_KERNEL_IDLE: Duration = Duration::from_secs(2);
/// Most keys of a `top` result.
const MOST_KEYS: u32 = 10_000;

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
    export: Vec<ExportTable>,
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
        let mut plan = ProbePlan {
            headers: Headers::Inner,
            analyses: Vec::with_capacity(file.analysis.len()),
            kernel_flows: place
                .number("flows", file.kernel.flows.as_ref(), 1 << 24)?
                .unwrap_or(USUAL_KERNEL_FLOWS),
        };
        for table in &file.analysis {
            let analysis = place.analysis(table, every)?;
            if plan
                .analyses
                .iter()
                .any(|other| other.name == analysis.name)
            {
                let own = table.name.as_ref().unwrap_or(&table.kind);
                let why = format!(
                    "there is \"{}\" above: give each analysis a name of its own",
                    analysis.name
                );
                return Err(place.error("name", own, &why));
            }
            plan.analyses.push(analysis);
        }
        if plan.analyses.is_empty() {
            plan = ProbePlan::standard(every);
        }
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
            _ => {
                let why = "expected flows, top, sizes or cardinality";
                return Err(self.error("kind", &table.kind, why));
            }
        };
        self.refuse_unused(table, &kind)?;
        let name = table.name.as_ref().map(|name| name.get_ref().clone());
        Ok(AnalysisPlan {
            name: name.unwrap_or_else(|| match kind {
                AnalysisKind::Top { by, .. } => format!("top {}", by.word()),
                AnalysisKind::Cardinality { by } => format!("distinct {}", by.word()),
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
            ("kernel", _) => Ok(AnalysisPlace::Kernel),
            _ => Err(self.error("where", place, "expected workers or kernel")),
        }
    }

    /// Refuses keys that mean nothing for this kind of analysis.
    fn refuse_unused(&self, table: &AnalysisTable, kind: &AnalysisKind) -> Result<(), ConfigError> {
        let is_flows = matches!(kind, AnalysisKind::Flows(_));
        let has_key = matches!(
            kind,
            AnalysisKind::Top { .. } | AnalysisKind::Cardinality { .. }
        );
        let is_top = matches!(kind, AnalysisKind::Top { .. });
        let texts = [
            ("every", &table.every, !is_flows),
            ("by", &table.by, has_key),
            ("idle", &table.idle, is_flows),
            ("active", &table.active, is_flows),
        ];
        let numbers = [
            ("count", &table.count, is_top),
            ("most_flows", &table.most_flows, is_flows),
            ("sampling", &table.sampling, is_flows),
            ("payload_bytes", &table.payload_bytes, is_flows),
            ("payload_mib", &table.payload_mib, is_flows),
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

    fn key_part(&self, table: &AnalysisTable) -> Result<KeyPart, ConfigError> {
        let words = KeyPart::WORDS.map(|(word, _)| word).join(", ");
        let Some(by) = &table.by else {
            let why = format!("needs by = one of {words}");
            return Err(self.error("kind", &table.kind, &why));
        };
        let found = KeyPart::WORDS.iter().find(|(word, _)| word == by.get_ref());
        let found = found.map(|(_, part)| *part);
        found.ok_or_else(|| self.error("by", by, &format!("expected one of {words}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let parsed = ProbeConfig::parse("probe.toml", text, None);
        parsed.expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_whole_file_is_understood() {
        let text = r#"
            [[analysis]]
            kind = "flows"
            idle = "30s"
            most_flows = 5000
            [[analysis]]
            kind = "top"
            where = "kernel"
            by = "pair"
            count = 20
            every = "1m"
            enabled = false
            [[export]]
            to = "ipfix:udp://10.0.0.1:4739"
            [[export]]
            to = "json:/tmp/flows.json"
        "#;
        let config = ProbeConfig::parse("probe.toml", text, None).expect("it is right");
        let [flows, top] = &config.plan.analyses[..] else {
            panic!("{config:?}")
        };
        let AnalysisKind::Flows(options) = flows.kind else {
            panic!("{flows:?}")
        };
        assert_eq!(
            (options.idle, options.most_flows),
            (Duration::from_secs(30), 5000)
        );
        let kind = AnalysisKind::Top {
            by: KeyPart::Pair,
            count: 20,
        };
        assert_eq!(
            (&*top.name, top.kind, top.enabled),
            ("top pair", kind, false)
        );
        assert_eq!(top.every, Some(Duration::from_secs(60)));
        let wants = config.plan.kernel_wants().expect("one is in the kernel");
        assert!(wants.parts.source && wants.parts.destination && !wants.parts.ports);
        assert!(config.plan.needs_packets());
        assert_eq!(config.exports.len(), 2);
        assert_eq!(
            config.exports[1],
            ExportPlan::To(Destination::JsonFile("/tmp/flows.json".into()))
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_key_and_what_is_possible() {
        for (text, told) in [
            (
                "[[analysis]]\nkind = \"flow\"",
                "probe.toml, line 2, kind: expected flows, top",
            ),
            (
                "[[analysis]]\nkind = \"top\"",
                "line 2, kind: needs by = one of source",
            ),
            (
                "[[analysis]]\nkind = \"top\"\nby = \"mac\"",
                "line 3, by: expected one of source",
            ),
            (
                "[[analysis]]\nkind = \"sizes\"\nidle = \"5s\"",
                "line 3, idle: means nothing for",
            ),
            (
                "[[analysis]]\nkind = \"flows\"\nidle = \"5\"",
                "line 3, idle: expected a time",
            ),
            (
                "[[analysis]]\nkind = \"flows\"\nsampling = 0",
                "line 3, sampling: expected a number",
            ),
            (
                "[[analysis]]\nkind = \"sizes\"\nwhere = \"nic\"",
                "line 3, where: expected workers or kernel",
            ),
            (
                "[[analysis]]\nkind = \"flows\"\nwhere = \"kernel\"\nidle = \"1s\"",
                "line 3, where: flows in the kernel need idle of at least 2s",
            ),
            (
                "[[analysis]]\nkind = \"sizes\"\n[[analysis]]\nkind = \"sizes\"",
                "line 4, name: there is",
            ),
            ("[[analysis]]\nkind = \"sizes\"\nevry = \"5s\"", "line 3"),
            (
                "[[export]]\nto = \"ipfix:10.0.0.1\"",
                "line 2, to: destination \"ipfix:10.0.0.1\": ",
            ),
            (
                "[[export]]\nto = \"kafka\"",
                "line 2, to: destination \"kafka\": expected one of ipfix:udp://",
            ),
            (
                "[[export]]\nto = \"json:/tmp/x?rotate=5\"",
                "line 2, to: destination \"json:/tmp/x?rotate=5\": \"rotate\" is no setting",
            ),
        ] {
            assert!(error(text).contains(told), "{text}: {}", error(text));
        }
    }
}
