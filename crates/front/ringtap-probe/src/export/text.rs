// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as lines for people.

use std::fmt::Write as _;
use std::io::Write;
use std::net::IpAddr;

use super::lines::LineOutput;
use super::{ExportError, Exporter};
use crate::analysis::protocol_word;
use crate::record::{DnsRecord, FlowRecord, Measurement, Record, as_value};

/// Writes records as text.
pub struct TextLines<W> {
    output: LineOutput<W>,
    /// Title of the measurements that were written last.
    title: String,
}

impl<W: Write + Send> TextLines<W> {
    /// Writes to `output`.
    pub fn new(output: W) -> Self {
        let (title, output) = (String::new(), LineOutput::new(output));
        TextLines { output, title }
    }
}

impl<W: Write + Send> Exporter for TextLines<W> {
    fn name(&self) -> String {
        "text".into()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut lines = String::new();
        for record in records {
            match record {
                Record::Flow(flow) => {
                    self.title.clear();
                    lines.push_str(&flow_line(flow));
                }
                Record::Dns(dns) => {
                    self.title.clear();
                    lines.push_str(&dns_line(dns));
                }
                Record::Measurement(measurement) => {
                    let seconds = (measurement.to_ns - measurement.from_ns.min(measurement.to_ns))
                        / 1_000_000;
                    let seconds = as_value(seconds) / 1000.0;
                    let title = format!("{} ({seconds:.1} s):", measurement.analysis);
                    if title != self.title {
                        let _infallible = writeln!(lines, "{title}");
                        self.title = title;
                    }
                    lines.push_str(&measurement_line(measurement));
                }
            }
            lines.push('\n');
        }
        self.output.write(lines.as_bytes())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    fn is_unread(&self) -> bool {
        self.output.is_unread()
    }
}

/// A flow on one line: `tcp 10.0.0.1:40000 > 10.0.0.2:443  6 > 3 packets, 440 > 1120 bytes, 0.090 s, rtt 30.0 ms, SF`.
pub fn flow_line(flow: &FlowRecord) -> String {
    let key = &flow.key;
    let end = |address: IpAddr, port: u16| match (key.protocol, address) {
        (1 | 58, _) => address.to_string(),
        (_, IpAddr::V4(_)) => format!("{address}:{port}"),
        (_, IpAddr::V6(_)) => format!("[{address}]:{port}"),
    };
    let lasted_ms = flow.last_ns().saturating_sub(flow.first_ns()) / 1_000_000;
    let mut line = format!(
        "{} {} > {}  {} > {} packets, {} > {} bytes, {:.3} s",
        protocol_word(key.protocol),
        end(key.source, key.source_port),
        end(key.destination, key.destination_port),
        flow.forward.packets,
        flow.backward.packets,
        flow.forward.bytes,
        flow.backward.bytes,
        as_value(lasted_ms) / 1000.0,
    );
    if let Some(handshake_ns) = flow.handshake_ns {
        let _infallible = write!(
            line,
            ", rtt {:.1} ms",
            as_value(handshake_ns / 1000) / 1000.0
        );
    }
    let directions = [flow.forward, flow.backward];
    let again: u32 = directions
        .iter()
        .filter_map(|direction| direction.retransmissions.count())
        .sum();
    if again > 0 {
        let _infallible = write!(line, ", {again} retransmitted");
    }
    if let Some(details) = &flow.details {
        let words = [
            &details.application,
            &details.ndpi_application,
            &details.server_name,
            &details.dns_query,
            &details.dns_response,
        ];
        for word in words.into_iter().flatten() {
            // Names come from packets: no control character reaches the terminal.
            let _infallible = write!(line, ", {}", word.escape_default());
        }
    }
    let _infallible = write!(line, ", {}", flow.end.word());
    line
}

/// A question with its answer on one line: `dns 10.0.0.1 > 10.0.0.53  example.org A: NOERROR 192.0.2.1, 0.8 ms`.
fn dns_line(dns: &DnsRecord) -> String {
    let mut line = format!(
        "dns {} > {}  {} {}: {}",
        dns.key.source,
        dns.key.destination,
        dns.query.escape_default(),
        dns.query_type,
        dns.response.as_deref().unwrap_or("no answer")
    );
    for answer in &dns.answers {
        let _infallible = write!(line, " {}", answer.escape_default());
    }
    if let Some(rtt_ns) = dns.rtt_ns {
        let _infallible = write!(line, ", {:.1} ms", as_value(rtt_ns / 1000) / 1000.0);
    }
    line
}

fn measurement_line(measurement: &Measurement) -> String {
    let mut line = format!(
        "  {:<48}",
        measurement.key.as_deref().unwrap_or(&measurement.name)
    );
    let seen = measurement.values.iter();
    for (name, value) in seen.filter(|(name, value)| *value > 0.0 || !name.starts_with("error")) {
        let _infallible = write!(line, " {value:>14} {name}");
    }
    line
}
