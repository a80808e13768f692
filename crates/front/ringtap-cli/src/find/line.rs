// SPDX-License-Identifier: MIT OR Apache-2.0
//! A found packet as a line of text and as a JSON object.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ringtap_filter::hash::{self, Ip, Link, Tunnels};
use ringtap_index::FoundRecord;
use serde_json::json;

/// Names of protocols in lines of text.
const NAMES: [(u8, &str); 6] = [
    (1, "icmp"),
    (6, "tcp"),
    (17, "udp"),
    (47, "gre"),
    (58, "icmp6"),
    (132, "sctp"),
];

fn headers<'a>(packet: &FoundRecord<'a>) -> Option<Ip<'a>> {
    hash::ip(
        packet.data,
        Link::from_link_type(packet.interface.link_type)?,
        Tunnels::None,
    )
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// The packet as a JSON object, with the names of the columns of `ringtap packets`.
pub(super) fn object(packet: &FoundRecord<'_>) -> serde_json::Value {
    let ip = headers(packet);
    let ports = ip.as_ref().and_then(Ip::first_ports);
    json!({
        "type": "packet",
        "time_ns": packet.time_ns,
        "file": packet.file.to_string_lossy(),
        "interface": packet.interface.name,
        "wire_length": packet.wire_length,
        "captured": packet.data.len(),
        "src": ip.as_ref().and_then(|ip| address(ip.source)),
        "dst": ip.as_ref().and_then(|ip| address(ip.destination)),
        "protocol": ip.as_ref().map(|ip| ip.protocol),
        "src_port": ports.map(|(source, _)| source),
        "dst_port": ports.map(|(_, destination)| destination),
    })
}

/// The packet as a line: time, ends, protocol, bytes, file.
pub(super) fn text(packet: &FoundRecord<'_>) -> String {
    let ip = headers(packet);
    let ends = match &ip {
        None => "no IP".to_owned(),
        Some(ip) => {
            let ports = ip.first_ports();
            let source = end(ip.source, ports.map(|ports| ports.0));
            let destination = end(ip.destination, ports.map(|ports| ports.1));
            let known = NAMES.iter().find(|(number, _)| *number == ip.protocol);
            let protocol = match known {
                Some((_, name)) => (*name).to_owned(),
                None => format!("protocol {}", ip.protocol),
            };
            format!("{source} > {destination} {protocol}")
        }
    };
    let time = Timestamp::from_nanosecond(packet.time_ns.into()).unwrap_or(Timestamp::MAX);
    let time = time.to_zoned(TimeZone::system());
    format!(
        "{} {ends}, {} bytes, {}",
        time.strftime("%Y-%m-%d %H:%M:%S%.9f"),
        packet.wire_length,
        packet.file.display()
    )
}

fn end(bytes: &[u8], port: Option<u16>) -> String {
    match (address(bytes), port) {
        (None, _) => String::new(),
        (Some(address), None) => address.to_string(),
        (Some(IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
        (Some(address), Some(port)) => format!("{address}:{port}"),
    }
}
