// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports from Parquet files or lines of JSON: one page of HTML with plots, and its numbers as CSV.
//!
//! Invariant: memory is bounded by the seconds of the flows and [`MAX_KEYS`] keys of each table.

mod dns;
mod page;
mod plots;
mod read;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dns::DnsTables;
use parquet::errors::ParquetError;
use read::{ReportRow, ReportTableKind};

/// Most keys of each table; further ones are added to the key `other`.
const MAX_KEYS: usize = 200_000;
/// Most seconds over which a flow's bytes are spread.
const LONGEST_S: i64 = 3600;

/// Sums over all flows of a folder.
#[derive(Debug, Default)]
pub struct FlowReport {
    /// Flow records read.
    pub flows: u64,
    total: TrafficSum,
    /// Second since 1970 → what began or passed in it.
    seconds: BTreeMap<i64, TrafficSum>,
    /// Flows by the power of two that their bytes reach.
    sizes: BTreeMap<u32, f64>,
    tables: [ReportTable; TABLES.len()],
    dns: DnsTables,
    has_losses: bool,
}

/// Flows, packets and bytes; fractions, because a flow is spread over seconds.
#[derive(Clone, Copy, Debug, Default)]
struct TrafficSum {
    flows: f64,
    packets: f64,
    bytes: f64,
    /// Packets that the capture lost.
    lost: f64,
}

type ReportTable = HashMap<String, TrafficSum>;

/// Titles of the tables, and the key of a flow, which may have none.
const TABLES: [(&str, KeyOf); 10] = [
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
        let protocol = match flow.number("protocol")? {
            1 | 58 => return Some("icmp".into()),
            6 => "tcp",
            17 => "udp",
            other => return Some(format!("protocol {other}")),
        };
        Some(format!("{protocol}/{}", flow.number("destination_port")?))
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

fn text(row: &ReportRow, name: &str) -> Option<String> {
    row.text(name).map(str::to_owned)
}

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder has no results.
    #[error(
        "{0}: no results: write them with `ringtap probe --export parquet:FOLDER`, or json:FILE.json"
    )]
    Empty(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file is not one of ours.
    #[error("{path}: {reason}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        reason: ParquetError,
    },
    /// A plot cannot be drawn.
    #[error("a plot cannot be drawn: {0}")]
    Plot(String),
}

impl FlowReport {
    /// Reads the Parquet files or the lines of JSON that a probe wrote: a folder, or one file of JSON.
    ///
    /// # Errors
    ///
    /// There is no file, or one cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let mut report = FlowReport::default();
        read::rows(path, &mut |kind, row| match kind {
            ReportTableKind::Flows => report.add(row),
            ReportTableKind::Dns => report.dns.add(row),
            ReportTableKind::Measurements => report.add_loss(row),
        })?;
        Ok(report)
    }

    fn add(&mut self, flow: &ReportRow) {
        let both = |name: &str| {
            let way = |way: &str| flow.number(&format!("{way}_{name}")).unwrap_or(0);
            as_f64(way("forward").saturating_add(way("backward")))
        };
        let sum = TrafficSum {
            flows: 1.0,
            packets: both("packets"),
            bytes: both("bytes"),
            lost: 0.0,
        };
        self.flows += 1;
        self.total.add(sum, 1.0);
        *self.sizes.entry(power(sum.bytes)).or_default() += 1.0;
        let time = |name| flow.number(name).unwrap_or(0);
        self.spread(time("first_time"), time("last_time"), sum);
        for ((_, key), table) in TABLES.iter().zip(&mut self.tables) {
            let Some(mut key) = key(flow) else { continue };
            if table.len() >= MAX_KEYS && !table.contains_key(&key) {
                key = "other".into();
            }
            table.entry(key).or_default().add(sum, 1.0);
        }
    }

    /// Adds packets that the capture lost, which the probe's ledger states for each interval.
    fn add_loss(&mut self, row: &ReportRow) {
        let is_loss =
            (row.text("analysis"), row.text("value_name")) == (Some("ledger"), Some("dropped"));
        if let (true, Some(lost)) = (is_loss, row.fraction("value")) {
            let sum = TrafficSum {
                lost,
                ..TrafficSum::default()
            };
            let to = row.number("to_time").unwrap_or(0);
            self.total.add(sum, 1.0);
            self.has_losses = true;
            self.spread(row.number("from_time").unwrap_or(to), to - 1, sum);
        }
    }

    /// Spreads a sum over the seconds between two times in microseconds.
    fn spread(&mut self, from: i64, to: i64, sum: TrafficSum) {
        let first = from.div_euclid(1_000_000);
        let last = to
            .div_euclid(1_000_000)
            .clamp(first, first.saturating_add(LONGEST_S - 1));
        let share = 1.0 / as_f64(last - first + 1);
        for second in first..=last {
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
            fs::write(path, text).map_err(|reason| ReportError::Io {
                path: path.clone(),
                reason,
            })?;
        }
        Ok(written.map(|(path, _)| path))
    }

    /// The keys with most bytes of each table that has any.
    fn tops(&self, count: usize) -> impl Iterator<Item = (&'static str, Vec<(&str, TrafficSum)>)> {
        let tables = TABLES.iter().zip(&self.tables);
        tables
            .filter(|(_, table)| !table.is_empty())
            .map(move |((title, _), table)| {
                let mut rows: Vec<_> = table
                    .iter()
                    .map(|(key, sum)| (key.as_str(), *sum))
                    .collect();
                rows.sort_by(|a, b| b.1.bytes.total_cmp(&a.1.bytes).then(a.0.cmp(b.0)));
                rows.truncate(count);
                (*title, rows)
            })
    }
}

impl TrafficSum {
    fn add(&mut self, other: TrafficSum, share: f64) {
        self.flows += other.flows * share;
        self.packets += other.packets * share;
        self.bytes += other.bytes * share;
        self.lost += other.lost * share;
    }
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
