// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page and the CSV files.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::axis::{grouped, lasting, short, utc};
use super::{FlowReport, PrintedTable, ReportError, TrafficSum};

/// Rows of each table on the page.
const TOP: usize = 15;
/// Rows of each table in the CSV file.
const TOP_CSV: usize = 1000;

type ColumnOf = fn(&TrafficSum) -> f64;

/// Columns of sums, in CSV files and JSON.
const COLUMNS: [(&str, ColumnOf); 7] = [
    ("flows", |sum| sum.flows),
    ("packets", |sum| sum.packets),
    ("bytes", |sum| sum.bytes),
    ("lost", |sum| sum.lost),
    ("retransmissions", |sum| sum.retransmissions),
    ("handshakes", |sum| sum.handshakes),
    ("handshake_ns", |sum| sum.handshake_ns),
];

const STYLE: &str = "body{font:14px sans-serif;margin:2em auto;max-width:60em;color:#222}\
    table{border-collapse:collapse;margin:0 2em 1em 0}td,th{padding:2px 10px;text-align:right;\
    border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left;font-family:monospace}\
    section{display:inline-block;vertical-align:top}svg{display:block;max-width:100%}\
    dl{display:flex;flex-wrap:wrap}dl div{margin:0 2em 1em 0}dt{color:#666}dd{margin:0;font-size:1.5em}";

impl FlowReport {
    /// The page; it needs no other file.
    pub(super) fn html(&self) -> Result<String, ReportError> {
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringtap report</title>\
             <style>{STYLE}</style><h1>Ringtap report</h1>\n<p>{}</p>\n<dl>",
            self.period(),
        );
        for (name, value) in self.summary() {
            let _ = write!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        page.push_str("</dl>\n");
        for plot in self.plots()? {
            page.push_str(&plot);
            page.push('\n');
        }
        let heads = ["flows", "packets", "IP bytes"];
        put_tables(&mut page, &heads, self.traffic_tables(TOP, grouped));
        let heads = ["questions", "no answer", "errors", "mean ms"];
        put_tables(
            &mut page,
            &heads,
            self.dns_tables(TOP, grouped, |ms| format!("{ms:.1}")),
        );
        page.push_str("</html>\n");
        Ok(page)
    }

    /// The time of the results.
    fn period(&self) -> String {
        let Some((first, last)) = self.ends() else {
            return "No flows in this time.".to_owned();
        };
        let (lasted, seconds) = (
            last.saturating_sub(first).saturating_add(1),
            self.seconds.len(),
        );
        let quiet = match i64::try_from(seconds) {
            Ok(seconds) if seconds < lasted => format!(", with packets in {}", lasting(seconds)),
            _ => String::new(),
        };
        format!(
            "{} to {} UTC ({}{quiet})",
            utc(first),
            utc(last),
            lasting(lasted)
        )
    }

    /// Names and values of the totals.
    fn summary(&self) -> [(&'static str, String); 6] {
        let sum = &self.total;
        let handshake = if sum.handshakes > 0.0 {
            format!("{:.1} ms", sum.handshake_ns / sum.handshakes / 1e6)
        } else {
            "none".to_owned()
        };
        [
            ("flow records", grouped(sum.flows)),
            ("packets", grouped(sum.packets)),
            ("IP data", format!("{}B", short(sum.bytes))),
            ("packets lost", grouped(sum.lost)),
            ("TCP sent again", grouped(sum.retransmissions)),
            ("TCP handshake", handshake),
        ]
    }

    pub(super) fn rates_csv(&self) -> String {
        let mut csv = String::from("time_s");
        for (name, _) in COLUMNS {
            csv.push_str(&format!(",{name}"));
        }
        csv.push('\n');
        for (second, sum) in &self.seconds {
            csv.push_str(&second.to_string());
            for (_, value) in COLUMNS {
                let _ = write!(csv, ",{}", value(sum));
            }
            csv.push('\n');
        }
        csv
    }

    pub(super) fn tables_csv(&self) -> String {
        let plain = |number: f64| number.to_string();
        csv("flows,packets,bytes", self.traffic_tables(TOP_CSV, plain))
    }

    pub(super) fn dns_csv(&self) -> String {
        let heads = "questions,unanswered,errors,mean_latency_ms";
        let plain = |number: f64| number.to_string();
        csv(heads, self.dns_tables(TOP_CSV, plain, plain))
    }

    /// The numbers of the page and the CSV files.
    pub fn json(&self) -> Value {
        let columns = |sum: &TrafficSum| -> Map<String, Value> {
            let columns = COLUMNS.iter();
            columns
                .map(|(name, value)| ((*name).to_owned(), value(sum).into()))
                .collect()
        };
        let seconds = self.seconds.iter().map(|(second, sum)| {
            let mut row = columns(sum);
            row.insert("time_s".to_owned(), (*second).into());
            Value::Object(row)
        });
        let plain = |number: f64| number.to_string();
        let heads = ["flows", "packets", "bytes"];
        let traffic = json_tables(&heads, self.traffic_tables(TOP_CSV, plain));
        let heads = ["questions", "unanswered", "errors", "mean_latency_ms"];
        let dns = json_tables(&heads, self.dns_tables(TOP_CSV, plain, plain));
        json!({
            "type": "report",
            "from_s": self.ends().map(|ends| ends.0),
            "to_s": self.ends().map(|ends| ends.1),
            "total": columns(&self.total),
            "seconds": seconds.collect::<Vec<_>>(),
            "sizes": self.sizes.iter().map(|(power, flows)| json!({"from_bytes": 1_u64 << power, "flows": flows})).collect::<Vec<_>>(),
            "tables": traffic,
            "dns": dns,
        })
    }
}

fn json_tables<'a>(
    heads: &[&str],
    tables: impl Iterator<Item = PrintedTable<'a>>,
) -> Map<String, Value> {
    let row = |(key, values): (&str, Vec<String>)| {
        let mut row = Map::new();
        row.insert("key".to_owned(), key.into());
        for (head, value) in heads.iter().zip(values) {
            row.insert((*head).to_owned(), value.parse::<f64>().ok().into());
        }
        Value::Object(row)
    };
    tables
        .map(|(title, rows)| (title.to_owned(), rows.into_iter().map(row).collect()))
        .collect()
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
