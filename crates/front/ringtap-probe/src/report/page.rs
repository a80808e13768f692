// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page and the CSV files.

use std::fmt::Write as _;

use super::{FlowReport, ReportError, TrafficSum};

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
        for (title, rows) in self.tops(TOP) {
            let _ = writeln!(
                page,
                "<section><h2>{title}</h2><table><tr><th></th><th>flows</th><th>packets</th><th>bytes</th></tr>"
            );
            for (
                key,
                TrafficSum {
                    flows,
                    packets,
                    bytes,
                    ..
                },
            ) in rows
            {
                let key = escaped(key);
                let _ = writeln!(
                    page,
                    "<tr><td>{key}</td><td>{flows}</td><td>{packets}</td><td>{bytes}</td></tr>"
                );
            }
            page.push_str("</table></section>\n");
        }
        for (title, rows) in self.dns.tops(TOP) {
            let _ = writeln!(
                page,
                "<section><h2>{title}</h2><table><tr><th></th><th>questions</th><th>no answer</th>\
                 <th>errors</th><th>mean ms</th></tr>"
            );
            for (key, sum) in rows {
                let latency = sum
                    .latency_ms()
                    .map(|ms| format!("{ms:.1}"))
                    .unwrap_or_default();
                let _ = writeln!(
                    page,
                    "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{latency}</td></tr>",
                    escaped(key),
                    sum.questions,
                    sum.unanswered,
                    sum.errors
                );
            }
            page.push_str("</table></section>\n");
        }
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
        let mut csv = String::from("table,key,flows,packets,bytes\n");
        for (title, rows) in self.tops(TOP_CSV) {
            for (
                key,
                TrafficSum {
                    flows,
                    packets,
                    bytes,
                    ..
                },
            ) in rows
            {
                let key = key.replace('"', "\"\"");
                let _ = writeln!(csv, "\"{title}\",\"{key}\",{flows},{packets},{bytes}");
            }
        }
        csv
    }

    pub(super) fn dns_csv(&self) -> String {
        let mut csv = String::from("table,key,questions,unanswered,errors,mean_latency_ms\n");
        for (title, rows) in self.dns.tops(TOP_CSV) {
            for (key, sum) in rows {
                let key = key.replace('"', "\"\"");
                let latency = sum
                    .latency_ms()
                    .map(|ms| ms.to_string())
                    .unwrap_or_default();
                let _ = writeln!(
                    csv,
                    "\"{title}\",\"{key}\",{},{},{},{latency}",
                    sum.questions, sum.unanswered, sum.errors
                );
            }
        }
        csv
    }
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
