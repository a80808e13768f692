// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page and the CSV files.

use std::fmt::Write as _;

use super::{FlowReport, PrintedTable, ReportError, TrafficSum};

/// Rows of each table on the page.
const TOP: usize = 15;
/// Rows of each table in the CSV file.
const TOP_CSV: usize = 1000;

const STYLE: &str = "body{font:14px sans-serif;margin:2em auto;max-width:60em;color:#222}\
    table{border-collapse:collapse;margin:0 2em 1em 0}td,th{padding:2px 10px;text-align:right;\
    border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left;font-family:monospace}\
    section{display:inline-block;vertical-align:top}svg{display:block;max-width:100%}";

impl FlowReport {
    /// The page; it needs no other file.
    pub(super) fn html(&self) -> Result<String, ReportError> {
        let TrafficSum {
            packets,
            bytes,
            lost,
            ..
        } = self.total;
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringtap report</title>\
             <style>{STYLE}</style><h1>Ringtap report</h1>\
             <p>{} flow records, {packets} packets, {bytes} IP bytes, {lost} packets lost, {} s from {}.</p>\n",
            self.flows,
            self.seconds.len(),
            self.seconds
                .first_key_value()
                .map_or_else(String::new, |(second, _)| utc(*second)),
        );
        for plot in self.plots()? {
            page.push_str(&plot);
            page.push('\n');
        }
        let heads = ["flows", "packets", "bytes"];
        put_tables(&mut page, &heads, self.traffic_tables(TOP));
        let heads = ["questions", "no answer", "errors", "mean ms"];
        let short = |ms| format!("{ms:.1}");
        put_tables(&mut page, &heads, self.dns_tables(TOP, short));
        page.push_str("</html>\n");
        Ok(page)
    }

    pub(super) fn rates_csv(&self) -> String {
        let mut csv = String::from("time_s,flows,packets,bytes,lost\n");
        for (
            second,
            TrafficSum {
                flows,
                packets,
                bytes,
                lost,
            },
        ) in &self.seconds
        {
            let _ = writeln!(csv, "{second},{flows},{packets},{bytes},{lost}");
        }
        csv
    }

    pub(super) fn tables_csv(&self) -> String {
        csv("flows,packets,bytes", self.traffic_tables(TOP_CSV))
    }

    pub(super) fn dns_csv(&self) -> String {
        let heads = "questions,unanswered,errors,mean_latency_ms";
        csv(heads, self.dns_tables(TOP_CSV, |ms| ms.to_string()))
    }
}

/// Appends the tables that have rows.
fn put_tables<'a>(
    page: &mut String,
    heads: &[&str],
    tables: impl Iterator<Item = PrintedTable<'a>>,
) {
    let heads = heads.join("</th><th>");
    for (title, rows) in tables.filter(|(_, rows)| !rows.is_empty()) {
        let _ = writeln!(
            page,
            "<section><h2>{title}</h2><table><tr><th></th><th>{heads}</th></tr>"
        );
        for (key, values) in rows {
            let (key, values) = (escaped(key), values.join("</td><td>"));
            let _ = writeln!(page, "<tr><td>{key}</td><td>{values}</td></tr>");
        }
        page.push_str("</table></section>\n");
    }
}

fn csv<'a>(heads: &str, tables: impl Iterator<Item = PrintedTable<'a>>) -> String {
    let mut csv = format!("table,key,{heads}\n");
    for (title, rows) in tables {
        for (key, values) in rows {
            let (key, values) = (key.replace('"', "\"\""), values.join(","));
            let _ = writeln!(csv, "\"{title}\",\"{key}\",{values}");
        }
    }
    csv
}

/// Text that came from packets, so that it cannot be HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A second since 1970 as a date and time in UTC.
fn utc(second: i64) -> String {
    let time = jiff::Timestamp::from_second(second);
    time.map_or_else(|_| second.to_string(), |time| time.to_string())
}
