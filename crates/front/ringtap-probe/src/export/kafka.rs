// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in a topic of Apache Kafka, as JSON, by librdkafka, at least once.
//!
//! Invariants
//! - librdkafka holds at most [`BACKLOG_KB`] of messages. While that is full, the exporter's thread
//!   waits, and the queue in front of the exporter counts what it drops.
//! - A message that no broker acknowledged within `message.timeout.ms` is counted as lost. From then until the next
//!   acknowledgement nothing waits for room.

#[expect(unsafe_code, reason = "functions of the C library librdkafka")]
mod library;

use super::{ExportError, Exporter, json};
use crate::record::{FlowKey, Record};
use library::{KafkaProducer, Produced};

/// Most memory for messages that wait for a broker, in units of 1,024 bytes.
const BACKLOG_KB: &str = "16384";
/// Longest wait for a broker at the start of a file, in milliseconds.
const START_MS: i32 = 5_000;
/// Longest wait for the acknowledgement of a file's message, in milliseconds.
const FILE_TIMEOUT_MS: &str = "10000";
/// Longest wait for acknowledgements in milliseconds; at the end, the exporter's queue has a limit of its own.
const FLUSH_MS: i32 = 300_000;

/// Sends records to a topic; the key of a flow's message is the same in both directions.
pub struct KafkaExporter {
    name: String,
    producer: KafkaProducer,
}

impl KafkaExporter {
    /// An exporter to a topic of the brokers `HOST:PORT,…`, with settings of librdkafka.
    ///
    /// Does not wait for a broker.
    ///
    /// # Errors
    ///
    /// librdkafka is not installed, or does not know a setting.
    pub fn new(brokers: &str, topic: &str, settings: &[(&str, &str)]) -> Result<Self, ExportError> {
        let usual = [
            ("client.id", "ringtap"),
            ("bootstrap.servers", brokers),
            ("acks", "all"),
            ("linger.ms", "50"),
            ("queue.buffering.max.kbytes", BACKLOG_KB),
            // The exporter reports failures itself.
            ("log_level", "0"),
        ];
        let settings: Vec<_> = usual.iter().chain(settings).copied().collect();
        Ok(KafkaExporter {
            name: format!("kafka {brokers}/{topic}"),
            producer: KafkaProducer::new(topic, &settings)?,
        })
    }

    /// An exporter of a file's records: a broker must answer now, and has to acknowledge messages within seconds.
    ///
    /// # Errors
    ///
    /// As for [`KafkaExporter::new`]; no broker answers.
    pub fn for_file(
        brokers: &str,
        topic: &str,
        settings: &[(&str, &str)],
    ) -> Result<Self, ExportError> {
        let timeout = [("message.timeout.ms", FILE_TIMEOUT_MS)];
        let exporter = KafkaExporter::new(brokers, topic, &[&timeout, settings].concat())?;
        match exporter.producer.find_broker(START_MS) {
            Ok(()) => Ok(exporter),
            Err(reason) => Err(ExportError(format!("{}: {reason}", exporter.name))),
        }
    }
}

impl Exporter for KafkaExporter {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        for record in records {
            let value = json::object(record).to_string();
            let key = key_of(record);
            while self.producer.produce(&key, &value) == Produced::Full {
                if self.producer.is_down() {
                    self.producer.give_up();
                    break;
                }
                // Ends, because a message leaves the backlog after `message.timeout.ms`.
                self.producer.poll(100);
            }
        }
        self.producer.poll(0);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        self.producer.poll(0);
        self.producer.failure().map_or(Ok(()), |reason| {
            Err(ExportError(format!("{}: {reason}", self.name)))
        })
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        match self.producer.flush(FLUSH_MS) {
            0 => Ok(()),
            left => Err(ExportError(format!(
                "{}: {left} records were not acknowledged",
                self.name
            ))),
        }
        .and(self.tick())
    }

    fn lost(&self) -> u64 {
        self.producer.lost()
    }
}

/// Addresses and ports of a flow, the smaller ones first; the name of another analysis.
fn key_of(record: &Record) -> String {
    match record {
        Record::Measurement(measurement) => measurement.analysis.clone(),
        Record::Flow(flow) => key_of_flow(&flow.key),
        Record::Dns(dns) => key_of_flow(&dns.key),
    }
}

fn key_of_flow(key: &FlowKey) -> String {
    let mut ends = [
        (key.source, key.source_port),
        (key.destination, key.destination_port),
    ];
    ends.sort_unstable();
    let [(low, low_port), (high, high_port)] = ends;
    format!("{} {low} {low_port} {high} {high_port}", key.protocol)
}
