// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS questions of a report, by name, type, server and response.

use std::collections::HashMap;

use super::read::ReportRow;
use super::{MAX_KEYS, as_f64};

/// Titles of the tables, and the column of their keys.
const TABLES: [(&str, &str); 4] = [
    ("DNS questions", "query"),
    ("DNS types", "query_type"),
    ("DNS servers", "destination"),
    ("DNS responses", "response"),
];

/// Questions by each key.
#[derive(Debug, Default)]
pub(super) struct DnsTables([HashMap<String, DnsSum>; TABLES.len()]);

/// Questions, and what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DnsSum {
    pub(super) questions: u64,
    pub(super) unanswered: u64,
    /// Answers with another code than NOERROR.
    pub(super) errors: u64,
    latency_ns: f64,
    timed: u64,
}

impl DnsSum {
    /// Mean time to an answer in milliseconds, if one was timed.
    pub(super) fn latency_ms(&self) -> Option<f64> {
        let timed = as_f64(i64::try_from(self.timed).unwrap_or(i64::MAX));
        (self.timed > 0).then(|| self.latency_ns / timed / 1e6)
    }
}

impl DnsTables {
    pub(super) fn add(&mut self, row: &ReportRow) {
        let response = row.text("response");
        let latency = row.number("latency_ns");
        for ((_, column), table) in TABLES.iter().zip(&mut self.0) {
            let mut key = row.text(column).unwrap_or("none").to_owned();
            if table.len() >= MAX_KEYS && !table.contains_key(&key) {
                key = "other".into();
            }
            let sum = table.entry(key).or_default();
            sum.questions += 1;
            sum.unanswered += u64::from(response.is_none());
            sum.errors += u64::from(response.is_some_and(|code| code != "NOERROR"));
            sum.latency_ns += latency.map_or(0.0, as_f64);
            sum.timed += u64::from(latency.is_some());
        }
    }

    /// The keys with most questions of each table that has any.
    pub(super) fn tops(
        &self,
        count: usize,
    ) -> impl Iterator<Item = (&'static str, Vec<(&str, DnsSum)>)> {
        let tables = TABLES.iter().zip(&self.0);
        tables
            .filter(|(_, table)| !table.is_empty())
            .map(move |((title, _), table)| {
                let mut rows: Vec<_> = table.iter().map(|(key, sum)| (&**key, *sum)).collect();
                rows.sort_by(|a, b| b.1.questions.cmp(&a.1.questions).then(a.0.cmp(b.0)));
                rows.truncate(count);
                (*title, rows)
            })
    }
}
