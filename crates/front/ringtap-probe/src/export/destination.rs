// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of results as a user names them: `KIND:PLACE?SETTING=VALUE&…`.

use std::path::PathBuf;
use std::time::Duration;

use super::ipfix::{FlowExporter, FlowProtocol};
use super::{ExportError, Exporter};

/// The kinds of destinations, for messages.
const KINDS: &str = "ipfix:udp://ADDRESS:PORT, ipfix:tcp://ADDRESS:PORT, ipfix-uniflow:udp://ADDRESS:PORT, \
    netflow9:udp://ADDRESS:PORT, parquet:FOLDER, kafka:HOST:PORT/TOPIC";
/// Time between two transmissions of templates.
const TEMPLATES: Duration = Duration::from_secs(60);
/// Time for which a Parquet file is written.
const ROTATE: Duration = Duration::from_secs(300);

/// Makes the exporter to a destination.
///
/// # Errors
///
/// The text names no destination, or its exporter cannot start.
pub fn open(destination: &str) -> Result<Box<dyn Exporter>, ExportError> {
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
        "parquet" => parquet(place, &settings),
        "kafka" => kafka(place, &settings),
        _ => Err(ExportError(format!(
            "\"{kind}\" is no kind: expected one of {KINDS}"
        ))),
    }
    .map_err(|error| wrong(error.0))
}

type Opened = Result<Box<dyn Exporter>, ExportError>;

fn flows(protocol: FlowProtocol, collector: &str, settings: &[(&str, &str)]) -> Opened {
    let (mut domain, mut templates) = (0, TEMPLATES);
    for (name, value) in settings {
        match *name {
            "domain" => domain = number(name, value)?,
            "templates" => templates = Duration::from_secs(number(name, value)?.into()),
            _ => return Err(unknown(name, "domain, templates (seconds)")),
        }
    }
    let exporter = FlowExporter::new(protocol, collector.parse()?, domain, templates)?;
    Ok(Box::new(exporter))
}

#[cfg(feature = "parquet")]
fn parquet(folder: &str, settings: &[(&str, &str)]) -> Opened {
    let mut rotate = ROTATE;
    for (name, value) in settings {
        match *name {
            "rotate" => rotate = Duration::from_secs(number(name, value)?.into()),
            _ => return Err(unknown(name, "rotate (seconds)")),
        }
    }
    let folder = PathBuf::from(folder);
    Ok(Box::new(super::parquet::ParquetExporter::new(
        folder, rotate,
    )?))
}

#[cfg(feature = "kafka")]
fn kafka(place: &str, settings: &[(&str, &str)]) -> Opened {
    let (brokers, topic) = place
        .split_once('/')
        .ok_or_else(|| ExportError("expected kafka:HOST:PORT/TOPIC".into()))?;
    Ok(Box::new(super::kafka::KafkaExporter::new(
        brokers, topic, settings,
    )?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &str, _: &[(&str, &str)]) -> Opened {
    Err(ExportError(
        "this program was built without the feature \"parquet\"".into(),
    ))
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &str, _: &[(&str, &str)]) -> Opened {
    Err(ExportError(
        "this program was built without the feature \"kafka\"".into(),
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
            let error = open(text).err().expect(text).to_string();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn an_exporter_has_the_name_of_its_destination() {
        for text in [
            "ipfix:udp://127.0.0.1:4739?domain=5",
            "netflow9:udp://[::1]:2055?templates=10",
        ] {
            let name = open(text).expect(text).name();
            let place = text.split_once('?').expect("settings").0;
            assert_eq!(name.replacen(' ', ":", 1), place);
        }
    }
}
