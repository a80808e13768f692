// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of results: from Parquet files, or from lines of JSON, whose names become those of the columns.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

use super::ReportError;
use crate::record::Details;

/// Longest line of JSON in bytes.
const LONGEST_LINE: u64 = 1 << 20;
/// Endings of files with lines of JSON.
const JSON_ENDINGS: [&str; 3] = ["json", "jsonl", "log"];

/// Which table a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportTableKind {
    Flows,
    Dns,
    Measurements,
}

const FOLDERS: [(&str, ReportTableKind); 3] = [
    ("flows", ReportTableKind::Flows),
    ("dns", ReportTableKind::Dns),
    ("measurements", ReportTableKind::Measurements),
];

/// Columns of flows and the names of the same values in JSON; those of [`Details::TEXTS`] too.
const OF_FLOWS: [(&str, &str); 12] = [
    ("source", "id.orig_h"),
    ("source_port", "id.orig_p"),
    ("forward_retransmissions", "orig_retransmissions"),
    ("backward_retransmissions", "resp_retransmissions"),
    ("destination", "id.resp_h"),
    ("destination_port", "id.resp_p"),
    ("protocol", "proto"),
    ("forward_packets", "orig_pkts"),
    ("backward_packets", "resp_pkts"),
    ("forward_bytes", "orig_ip_bytes"),
    ("backward_bytes", "resp_ip_bytes"),
    ("end_reason", "end"),
];
const OF_DNS: [(&str, &str); 8] = [
    ("source", "id.orig_h"),
    ("source_port", "id.orig_p"),
    ("destination_port", "id.resp_p"),
    ("protocol", "proto"),
    ("destination", "id.resp_h"),
    ("query", "query"),
    ("query_type", "qtype_name"),
    ("response", "rcode_name"),
];

/// A row of a table, by names of columns.
pub(super) struct ReportRow(HashMap<String, Field>);

impl ReportRow {
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Field::Long(value) | Field::TimestampMicros(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn fraction(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            Field::Double(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            Field::Str(value) => Some(value),
            _ => None,
        }
    }
}

impl From<Row> for ReportRow {
    fn from(row: Row) -> Self {
        ReportRow(row.into_columns().into_iter().collect())
    }
}

/// Calls `take` for each row of a folder's Parquet files; without any, of its files with lines of JSON; or
/// of one such file.
pub(super) fn rows(
    path: &Path,
    take: &mut impl FnMut(ReportTableKind, &ReportRow),
) -> Result<(), ReportError> {
    let mut is_empty = true;
    for (folder, kind) in FOLDERS {
        for file in files(&path.join(folder), &["parquet"])? {
            is_empty = false;
            parquet_rows(&file, kind, take)?;
        }
    }
    let lines = match path.is_dir() {
        // The same results are often written in both ways.
        true if is_empty => files(path, &JSON_ENDINGS)?,
        false if path.exists() => vec![path.to_owned()],
        _ => Vec::new(),
    };
    for file in lines {
        is_empty = false;
        json_rows(&file, take).map_err(ReportError::at(&file))?;
    }
    if is_empty {
        Err(ReportError(format!(
            "{}: no results: write them with `ringtap probe --export parquet:FOLDER`, or json:FILE.json",
            path.display()
        )))
    } else {
        Ok(())
    }
}

/// Complete files of a folder with one of these endings; none if there is no such folder.
fn files(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, ReportError> {
    let entries = match fs::read_dir(folder) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries.map_err(ReportError::at(folder))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(ReportError::at(folder))?.path();
        let name = path.file_name().unwrap_or_default();
        let has_ending = path
            .extension()
            .is_some_and(|ext| endings.iter().any(|end| ext == *end));
        if has_ending && !name.as_encoded_bytes().starts_with(b".") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn parquet_rows(
    path: &Path,
    kind: ReportTableKind,
    take: &mut impl FnMut(ReportTableKind, &ReportRow),
) -> Result<(), ReportError> {
    let file = File::open(path).map_err(ReportError::at(path))?;
    let wrong = ReportError::at(path);
    let reader = SerializedFileReader::new(file).map_err(&wrong)?;
    for row in reader.get_row_iter(None).map_err(&wrong)? {
        take(kind, &row.map_err(&wrong)?.into());
    }
    Ok(())
}

fn json_rows(path: &Path, take: &mut impl FnMut(ReportTableKind, &ReportRow)) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut file).take(LONGEST_LINE);
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let value: Value = match serde_json::from_slice(&line) {
            Ok(value) => value,
            // The last line of a probe that still writes, or was killed.
            Err(_) if !line.ends_with(b"\n") => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        json_row(&value, take);
    }
}

fn json_row(value: &Value, take: &mut impl FnMut(ReportTableKind, &ReportRow)) {
    let columns = |names: &[(&str, &str)]| {
        let fields = names.iter().filter_map(|(column, name)| {
            let field = match value.get(*name)? {
                Value::String(text) => Field::Str(text.clone()),
                other => Field::Long(other.as_i64()?),
            };
            Some(((*column).to_owned(), field))
        });
        fields.collect::<HashMap<_, _>>()
    };
    let time = |name: &str| Some(microseconds(value.get(name)?.as_f64()?));
    let put = |row: &mut HashMap<String, Field>, name: &str, time: Option<i64>| {
        row.extend(time.map(|time| (name.to_owned(), Field::TimestampMicros(time))));
    };
    match value["type"].as_str() {
        Some("flow") => {
            let texts = Details::TEXTS.map(|(column, name, _)| (column, name));
            let mut row = columns(&OF_FLOWS);
            row.extend(columns(&texts));
            let first = time("ts");
            put(&mut row, "first_time", first);
            let last = first
                .zip(time("duration"))
                .map(|(first, lasted)| first + lasted);
            put(&mut row, "last_time", last);
            let handshake = time("handshake_rtt").map(|rtt| Field::Long(rtt.saturating_mul(1000)));
            row.extend(handshake.map(|handshake| ("handshake_ns".to_owned(), handshake)));
            take(ReportTableKind::Flows, &ReportRow(row));
        }
        Some("dns") => {
            let mut row = columns(&OF_DNS);
            put(&mut row, "time", time("ts"));
            let latency = time("rtt").map(|rtt| Field::Long(rtt.saturating_mul(1000)));
            row.extend(latency.map(|latency| ("latency_ns".to_owned(), latency)));
            take(ReportTableKind::Dns, &ReportRow(row));
        }
        Some("measurement") => {
            for (name, number) in value["values"].as_object().into_iter().flatten() {
                let mut row =
                    columns(&[("analysis", "analysis"), ("name", "name"), ("key", "key")]);
                put(&mut row, "from_time", time("from"));
                put(&mut row, "to_time", time("to"));
                row.insert("value_name".into(), Field::Str(name.clone()));
                row.insert(
                    "value".into(),
                    Field::Double(number.as_f64().unwrap_or(0.0)),
                );
                take(ReportTableKind::Measurements, &ReportRow(row));
            }
        }
        // Counters, events and the ledger of the whole run.
        _ => {}
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a time that does not fit is the greatest one"
)]
fn microseconds(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}
