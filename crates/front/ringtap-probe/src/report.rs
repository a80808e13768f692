// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports from Parquet files or lines of JSON: one page of HTML with plots, and its numbers as CSV.
//!
//! Invariant: memory is bounded by the seconds of the flows and [`MAX_KEYS`] keys of each table.

mod axis;
mod page;
mod plots;
mod read;
mod selection;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringtap_ipc::folder::link_flags;

use crate::analysis::protocol_word;
use read::{ReportRow, ReportTableKind};
pub use selection::{ReportSelection, ReportTerms, report_time};

/// Most keys of each table; further ones are added to the key `other`.
const MAX_KEYS: usize = 200_000;
/// Longest interval of counts from which rates are made, in microseconds: longer ones show less than flows.
const LONGEST_COUNT: i64 = 60_000_000;
/// Protocols that the report states even if no flow has them.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "icmp"];
/// Most seconds over which a flow's bytes are spread.
const LONGEST_S: i64 = 3600;

/// Sums over all flows of a folder.
#[derive(Debug, Default)]
pub struct FlowReport {
    /// Flow records in the report.
    pub flows: u64,
    selection: ReportSelection,
    total: TrafficSum,
    /// Second since 1970 → what began or passed in it.
    seconds: BTreeMap<i64, TrafficSum>,
    /// Flows by the power of two that their bytes reach.
    sizes: BTreeMap<u32, f64>,
    tables: [KeySums<TrafficSum>; TABLES.len()],
    dns: [KeySums<DnsSum>; DNS_TABLES.len()],
}

/// Flows, packets and bytes; fractions, because a flow is spread over seconds.
#[derive(Clone, Copy, Debug, Default)]
struct TrafficSum {
    flows: f64,
    packets: f64,
    bytes: f64,
    /// Packets that the capture lost.
    lost: f64,
    /// TCP segments that were sent again.
    retransmissions: f64,
    /// TCP handshakes, and their time together.
    handshakes: f64,
    handshake_ns: f64,
    /// Frames that the analysis `sizes` counted, and their bytes.
    counted_packets: f64,
    counted_bytes: f64,
}

/// DNS questions, and what became of them.
#[derive(Clone, Copy, Debug, Default)]
struct DnsSum {
    questions: f64,
    unanswered: f64,
    /// Answers with another code than NOERROR.
    errors: f64,
    latency_ns: f64,
    timed: f64,
}

/// Sums by key: of [`MAX_KEYS`] keys, and of all others together.
#[derive(Debug, Default)]
struct KeySums<S>(HashMap<String, S>);

/// A table to print: title, and rows of a key with its values.
type PrintedTable<'a> = (&'static str, Vec<(&'a str, Vec<String>)>);

/// Titles of the tables, and the key of a flow, which may have none.
const TABLES: [(&str, KeyOf); 11] = [
    ("Protocols", protocol_of),
    ("Sources", |flow| text(flow, "source")),
    ("Destinations", |flow| text(flow, "destination")),
    ("Pairs", |flow| {
        Some(format!(
            "{} → {}",
            flow.text("source")?,
            flow.text("destination")?
        ))
    }),
    ("Services", |flow| {
        let protocol = protocol_of(flow)?;
        Some(match protocol.as_str() {
            "icmp" => protocol,
            word if word.parse::<u8>().is_ok() => format!("protocol {word}"),
            word => format!("{word}/{}", flow.number("destination_port")?),
        })
    }),
    ("Applications", |flow| {
        text(flow, "ndpi_application").or_else(|| text(flow, "application"))
    }),
    ("Servers (TLS, HTTP)", |flow| text(flow, "server_name")),
    ("TLS versions", |flow| text(flow, "tls_version")),
    ("TLS ciphers", |flow| text(flow, "tls_cipher")),
    ("TLS clients (JA4)", |flow| text(flow, "ja4")),
    ("Ends of flows", |flow| text(flow, "end_reason")),
];
type KeyOf = fn(&ReportRow) -> Option<String>;

/// Titles of the tables of DNS questions, and the column of their keys.
const DNS_TABLES: [(&str, &str); 4] = [
    ("DNS questions", "query"),
    ("DNS types", "query_type"),
    ("DNS servers", "destination"),
    ("DNS responses", "response"),
];

/// Word of a flow's protocol: a word in JSON, a number in Parquet files.
fn protocol_of(flow: &ReportRow) -> Option<String> {
    let number = || u8::try_from(flow.number("protocol")?).ok();
    text(flow, "protocol").or_else(|| number().map(protocol_word))
}

fn text(row: &ReportRow, name: &str) -> Option<String> {
    row.text(name).map(str::to_owned)
}

/// Why a report cannot be made; the message names the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReportError(String);

impl ReportError {
    fn at<E: Display>(path: &Path) -> impl Fn(E) -> ReportError {
        move |reason| ReportError(format!("{}: {reason}", path.display()))
    }
}

impl FlowReport {
    /// Reads what is selected of the Parquet files or the lines of JSON that a probe wrote: a folder, or one file of
    /// JSON.
    ///
    /// # Errors
    ///
    /// There is no file, or one cannot be read.
    pub fn read(path: &Path, selection: ReportSelection) -> Result<Self, ReportError> {
        let mut report = FlowReport {
            selection,
            ..FlowReport::default()
        };
        let [protocols, ..] = &mut report.tables;
        for word in PROTOCOLS {
            protocols.entry(word.to_owned());
        }
        read::rows(path, &mut |kind, row| {
            if report.is_selected(kind, row) {
                match kind {
                    ReportTableKind::Flows => report.add(row),
                    ReportTableKind::Dns => report.add_dns(row),
                    ReportTableKind::Measurements => report.add_measurement(row),
                }
            }
        })?;
        Ok(report)
    }

    fn is_selected(&self, kind: ReportTableKind, row: &ReportRow) -> bool {
        let (from, to) = match kind {
            ReportTableKind::Flows => ("first_time", "last_time"),
            ReportTableKind::Dns => ("time", "time"),
            ReportTableKind::Measurements => ("from_time", "to_time"),
        };
        let time = |name| row.number(name).unwrap_or(0);
        let is_fitting = kind == ReportTableKind::Measurements || self.selection.has(kind, row);
        is_fitting && self.selection.has_time(time(from), time(to))
    }

    fn add(&mut self, flow: &ReportRow) {
        let both = |name: &str| {
            let direction =
                |direction: &str| flow.number(&format!("{direction}_{name}")).unwrap_or(0);
            as_f64(direction("forward").saturating_add(direction("backward")))
        };
        let sum = TrafficSum {
            flows: 1.0,
            packets: both("packets"),
            bytes: both("bytes"),
            retransmissions: both("retransmissions"),
            handshakes: f64::from(u8::from(flow.number("handshake_ns").is_some())),
            handshake_ns: as_f64(flow.number("handshake_ns").unwrap_or(0)),
            ..TrafficSum::default()
        };
        self.flows += 1;
        self.total.add(sum, 1.0);
        *self.sizes.entry(power(sum.bytes)).or_default() += 1.0;
        let time = |name| flow.number(name).unwrap_or(0);
        self.spread(time("first_time"), time("last_time"), sum);
        for ((_, key), table) in TABLES.iter().zip(&mut self.tables) {
            if let Some(key) = key(flow) {
                table.entry(key).add(sum, 1.0);
            }
        }
    }

    fn add_dns(&mut self, row: &ReportRow) {
        let (response, latency_ns) = (row.text("response"), row.number("latency_ns"));
        let one_if = |holds: bool| f64::from(u8::from(holds));
        for ((_, column), table) in DNS_TABLES.iter().zip(&mut self.dns) {
            let sum = table.entry(row.text(column).unwrap_or("none").to_owned());
            sum.questions += 1.0;
            sum.unanswered += one_if(response.is_none());
            sum.errors += one_if(response.is_some_and(|code| code != "NOERROR"));
            sum.latency_ns += latency_ns.map_or(0.0, as_f64);
            sum.timed += one_if(latency_ns.is_some());
        }
    }

    /// Adds packets that the capture lost, which the probe's ledger states for each interval, and counts of frames.
    fn add_measurement(&mut self, row: &ReportRow) {
        let to = row.number("to_time").unwrap_or(0);
        let from = row.number("from_time").unwrap_or(to);
        let Some(value) = row.fraction("value") else {
            return;
        };
        let mut sum = TrafficSum::default();
        match (row.text("analysis"), row.text("value_name")) {
            (Some("ledger"), Some("dropped")) => sum.lost = value,
            (Some("sizes"), Some(of))
                if to.saturating_sub(from) <= LONGEST_COUNT && self.selection.has_all_flows() =>
            {
                match of {
                    "packets" => sum.counted_packets = value,
                    "bytes" => sum.counted_bytes = value,
                    _ => return,
                }
            }
            _ => return,
        }
        self.total.add(sum, 1.0);
        self.spread(from, to.saturating_sub(1), sum);
    }

    /// Spreads a sum over the seconds between two times in microseconds.
    fn spread(&mut self, from: i64, to: i64, sum: TrafficSum) {
        let first = from.div_euclid(1_000_000);
        let last = to
            .div_euclid(1_000_000)
            .clamp(first, first.saturating_add(LONGEST_S - 1));
        let share = 1.0 / as_f64(last - first + 1);
        for second in first..=last {
            let (from, to) = (
                second.saturating_mul(1_000_000),
                second.saturating_add(1).saturating_mul(1_000_000),
            );
            if !self.selection.has_time(from, to - 1) {
                continue;
            }
            self.seconds.entry(second).or_default().add(sum, share);
        }
    }

    /// Writes the page, and beside it `NAME-rates.csv`, `NAME-tables.csv` and `NAME-dns.csv`; returns
    /// their paths.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, page: &Path) -> Result<[PathBuf; 4], ReportError> {
        let beside = |what: &str| {
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            page.with_file_name(format!("{stem}-{what}.csv"))
        };
        let written = [
            (page.to_owned(), self.html()?),
            (beside("rates"), self.rates_csv()),
            (beside("tables"), self.tables_csv()),
            (beside("dns"), self.dns_csv()),
        ];
        for (path, text) in &written {
            write(path, text).map_err(ReportError::at(path))?;
        }
        Ok(written.map(|(path, _)| path))
    }

    /// The keys with most bytes of each table, with flows, packets and bytes.
    fn traffic_tables(
        &self,
        count: usize,
        number: fn(f64) -> String,
    ) -> impl Iterator<Item = PrintedTable<'_>> {
        let tables = TABLES.iter().zip(&self.tables);
        tables.map(move |((title, _), table)| {
            let rows = table.largest(count, |sum| sum.bytes).into_iter();
            let values = |sum: TrafficSum| [sum.flows, sum.packets, sum.bytes];
            let texts = |sum| values(sum).map(number).into();
            (*title, rows.map(|(key, sum)| (key, texts(sum))).collect())
        })
    }

    /// The keys with most questions of each table, with questions, those without an answer, errors, and the mean
    /// time to an answer in milliseconds if one was timed.
    fn dns_tables(
        &self,
        count: usize,
        number: fn(f64) -> String,
        latency: fn(f64) -> String,
    ) -> impl Iterator<Item = PrintedTable<'_>> {
        let tables = DNS_TABLES.iter().zip(&self.dns);
        tables.map(move |((title, _), table)| {
            let rows = table.largest(count, |sum| sum.questions).into_iter();
            let texts = |sum: DnsSum| {
                let counts = [sum.questions, sum.unanswered, sum.errors];
                let mut texts = counts.map(number).to_vec();
                let mean = (sum.timed > 0.0).then(|| latency(sum.latency_ns / sum.timed / 1e6));
                texts.push(mean.unwrap_or_default());
                texts
            };
            (*title, rows.map(|(key, sum)| (key, texts(sum))).collect())
        })
    }
}

impl<S: Copy + Default> KeySums<S> {
    /// The sum of a key.
    fn entry(&mut self, mut key: String) -> &mut S {
        if self.0.len() >= MAX_KEYS && !self.0.contains_key(&key) {
            key = "other".into();
        }
        self.0.entry(key).or_default()
    }

    /// The keys with most weight, the heaviest first.
    fn largest(&self, count: usize, weight: fn(&S) -> f64) -> Vec<(&str, S)> {
        let mut rows: Vec<_> = self
            .0
            .iter()
            .map(|(key, sum)| (key.as_str(), *sum))
            .collect();
        rows.sort_by(|(key, sum), (other_key, other)| {
            let heavier = weight(other).total_cmp(&weight(sum));
            heavier.then(key.cmp(other_key))
        });
        rows.truncate(count);
        rows
    }
}

impl TrafficSum {
    fn add(&mut self, other: TrafficSum, share: f64) {
        self.flows += other.flows * share;
        self.packets += other.packets * share;
        self.bytes += other.bytes * share;
        self.lost += other.lost * share;
        self.retransmissions += other.retransmissions * share;
        self.handshakes += other.handshakes * share;
        self.handshake_ns += other.handshake_ns * share;
        self.counted_packets += other.counted_packets * share;
        self.counted_bytes += other.counted_bytes * share;
    }
}

/// Writes a file, which replaces an older one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = options.custom_flags(link_flags(path)).open(path)?;
    file.write_all(text.as_bytes())
}

/// The greatest power of two that is not above the number.
fn power(number: f64) -> u32 {
    (0..63)
        .rev()
        .find(|power| as_f64(1_i64 << power) <= number)
        .unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a report shows three digits")]
fn as_f64(number: i64) -> f64 {
    number as f64
}
