// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of results as a user names them: `KIND:PLACE?SETTING=VALUE&…`.

use std::fs::File;
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringtap_ipc::folder::link_flags;

use super::ipfix::{Collector, FlowExporter, FlowProtocol};
use super::json::JsonLines;
use super::{ExportError, Exporter, WhenFull};

/// The kinds of destinations, for messages.
const KINDS: &str = "ipfix:udp://ADDRESS:PORT, ipfix:tcp://ADDRESS:PORT, ipfix-uniflow:udp://ADDRESS:PORT, \
    netflow9:udp://ADDRESS:PORT, json:FILE, parquet:FOLDER, kafka:HOST:PORT/TOPIC";
/// Time between two transmissions of templates.
const TEMPLATES: Duration = Duration::from_secs(60);
/// Flows of a file that a collector of datagrams gets each second: most collectors have room for about 100 datagrams,
/// and on a busy machine do not run for a tenth of a second.
const FILE_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("not 0");
/// Time for which a Parquet file is written.
const ROTATE: Duration = Duration::from_secs(300);

/// A destination, checked but not opened.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// Flow records to a collector.
    Flows(FlowDestination),
    /// Lines of JSON at the end of a file.
    JsonFile(PathBuf),
    /// Parquet files in a folder, a new one after this time.
    Parquet(PathBuf, Duration),
    /// Records to a topic of these brokers, with settings of librdkafka.
    Kafka(String, String, Vec<(String, String)>),
}

/// A collector of flow records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowDestination {
    protocol: FlowProtocol,
    collector: Collector,
    /// Number of the observation domain.
    domain: u32,
    /// Time between two transmissions of templates.
    templates: Duration,
    /// Flows per second, 0 for no limit; `None`: as the packets' source needs it.
    rate: Option<u32>,
}

impl FlowDestination {
    /// A packet source that waits gives the flows of hours in a moment, and no datagram is sent again.
    fn rate(&self, when_full: WhenFull) -> Option<NonZeroU32> {
        match self.rate {
            Some(rate) => NonZeroU32::new(rate),
            None if self.collector.is_tcp() || when_full == WhenFull::Drop => None,
            None => Some(FILE_RATE),
        }
    }
}

type Parsed = Result<Destination, ExportError>;

impl FromStr for Destination {
    type Err = ExportError;

    fn from_str(destination: &str) -> Parsed {
        let wrong = |why: String| ExportError(format!("destination \"{destination}\": {why}"));
        let (place, settings) = match destination.split_once('?') {
            Some((place, settings)) => (place, settings),
            None => (destination, ""),
        };
        let settings = settings.split('&').filter(|setting| !setting.is_empty());
        let settings: Result<Vec<_>, _> = settings
            .map(|setting| {
                let why = || wrong(format!("\"{setting}\" is no SETTING=VALUE"));
                setting.split_once('=').ok_or_else(why)
            })
            .collect();
        let settings = settings?;
        let (kind, place) = place
            .split_once(':')
            .ok_or_else(|| wrong(format!("expected one of {KINDS}")))?;
        match kind {
            "ipfix" => flows(FlowProtocol::Ipfix, place, &settings),
            "ipfix-uniflow" => flows(FlowProtocol::IpfixUniflow, place, &settings),
            "netflow9" => flows(FlowProtocol::NetflowV9, place, &settings),
            "json" => json(place, &settings),
            "parquet" => parquet(place, &settings),
            "kafka" => kafka(place, &settings),
            _ => Err(ExportError(format!(
                "\"{kind}\" is no kind: expected one of {KINDS}"
            ))),
        }
        .map_err(|error| wrong(error.0))
    }
}

impl Destination {
    /// The exporter. With [`WhenFull::Wait`] a broker must answer now.
    ///
    /// # Errors
    ///
    /// The exporter cannot start.
    pub fn open(self, when_full: WhenFull) -> Result<Box<dyn Exporter>, ExportError> {
        Ok(match self {
            Destination::Flows(to) => {
                let exporter =
                    FlowExporter::new(to.protocol, to.collector, to.domain, to.templates)?;
                Box::new(exporter.at_rate(to.rate(when_full)))
            }
            Destination::JsonFile(path) => {
                let name = path.display().to_string();
                let flags = link_flags(&path);
                let mut options = File::options();
                let file = options
                    .append(true)
                    .create(true)
                    .custom_flags(flags)
                    .open(path);
                let file = file.map_err(|error| ExportError(format!("{name}: {error}")))?;
                Box::new(JsonLines::new(file, name))
            }
            #[cfg(feature = "parquet")]
            Destination::Parquet(folder, rotate) => {
                Box::new(super::parquet::ParquetExporter::new(folder, rotate)?)
            }
            #[cfg(feature = "kafka")]
            Destination::Kafka(brokers, topic, settings) => {
                let settings = settings.iter();
                let settings: Vec<_> = settings.map(|(name, value)| (&**name, &**value)).collect();
                let open = match when_full {
                    WhenFull::Drop => super::kafka::KafkaExporter::new,
                    WhenFull::Wait => super::kafka::KafkaExporter::for_file,
                };
                Box::new(open(&brokers, &topic, &settings)?)
            }
            #[cfg(not(all(feature = "parquet", feature = "kafka")))]
            _ => {
                return Err(ExportError(
                    "this program was built without this destination".into(),
                ));
            }
        })
    }
}

fn flows(protocol: FlowProtocol, collector: &str, settings: &[(&str, &str)]) -> Parsed {
    let (mut domain, mut templates, mut rate) = (0, TEMPLATES, None);
    for (name, value) in settings {
        match *name {
            "domain" => domain = number(name, value)?,
            "templates" => templates = Duration::from_secs(number(name, value)?.into()),
            "rate" => rate = Some(number(name, value)?),
            _ => {
                let known = "domain, templates (seconds), rate (flows per second)";
                return Err(unknown(name, known));
            }
        }
    }
    let collector: Collector = collector.parse()?;
    protocol.require_transport(collector)?;
    Ok(Destination::Flows(FlowDestination {
        protocol,
        collector,
        domain,
        templates,
        rate,
    }))
}

fn json(file: &str, settings: &[(&str, &str)]) -> Parsed {
    match settings.first() {
        Some((name, _)) => Err(unknown(name, "none")),
        None if file.is_empty() => Err(ExportError("expected json:FILE".into())),
        None => Ok(Destination::JsonFile(file.into())),
    }
}

fn parquet(folder: &str, settings: &[(&str, &str)]) -> Parsed {
    let mut rotate = ROTATE;
    for (name, value) in settings {
        match *name {
            "rotate" => rotate = Duration::from_secs(number(name, value)?.into()),
            _ => return Err(unknown(name, "rotate (seconds)")),
        }
    }
    if folder.is_empty() {
        Err(ExportError("expected parquet:FOLDER".into()))
    } else {
        Ok(Destination::Parquet(folder.into(), rotate))
    }
}

fn kafka(place: &str, settings: &[(&str, &str)]) -> Parsed {
    let (brokers, topic) = place
        .split_once('/')
        .ok_or_else(|| ExportError("expected kafka:HOST:PORT/TOPIC".into()))?;
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Ok(Destination::Kafka(
        brokers.to_owned(),
        topic.to_owned(),
        settings.collect(),
    ))
}

fn number(name: &str, value: &str) -> Result<u32, ExportError> {
    let wrong = |_| {
        ExportError(format!(
            "{name}={value}: expected a number up to {}",
            u32::MAX
        ))
    };
    value.parse().map_err(wrong)
}

fn unknown(name: &str, known: &str) -> ExportError {
    ExportError(format!("\"{name}\" is no setting: expected {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_destination_is_said() {
        let wrong = [
            ("nowhere", "expected one of ipfix:udp://"),
            ("carbon:127.0.0.1:1", "\"carbon\" is no kind"),
            ("ipfix:10.0.0.1:4739", "expected udp://ADDRESS:PORT"),
            ("ipfix:udp://collector:4739", "expected udp://ADDRESS:PORT"),
            ("netflow9:tcp://10.0.0.1:4739", "no TCP transport"),
            (
                "ipfix:udp://127.0.0.1:4739?domain=x",
                "domain=x: expected a number",
            ),
            ("parquet:/tmp/x?rotation=5", "\"rotation\" is no setting"),
            ("kafka:127.0.0.1:9092", "expected kafka:HOST:PORT/TOPIC"),
            ("ipfix:udp://127.0.0.1:4739?domain", "no SETTING=VALUE"),
        ];
        for (text, why) in wrong {
            let error = text.parse::<Destination>().expect_err(text).to_string();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_file_is_paced_over_datagrams_and_a_user_may_choose_another_rate() {
        use WhenFull::{Drop, Wait};
        let udp = "ipfix:udp://127.0.0.1:4739";
        for (text, when_full, want) in [
            (udp.to_owned(), Wait, Some(10_000)),
            (udp.to_owned(), Drop, None),
            (udp.replace("udp", "tcp"), Wait, None),
            (format!("{udp}?rate=5"), Wait, Some(5)),
            (format!("{udp}?rate=5"), Drop, Some(5)),
            (format!("{udp}?rate=0"), Wait, None),
        ] {
            let Ok(Destination::Flows(to)) = text.parse() else {
                panic!("{text}")
            };
            let rate = to.rate(when_full).map(NonZeroU32::get);
            assert_eq!(rate, want, "{text} {when_full:?}");
        }
    }

    #[test]
    fn an_exporter_has_the_name_of_its_destination() {
        for text in [
            "ipfix:udp://127.0.0.1:4739?domain=5",
            "netflow9:udp://[::1]:2055?templates=10",
        ] {
            let destination: Destination = text.parse().expect(text);
            let name = destination.open(WhenFull::Wait).expect(text).name();
            let place = text.split_once('?').expect("settings").0;
            assert_eq!(name.replacen(' ', ":", 1), place);
        }
    }
}
