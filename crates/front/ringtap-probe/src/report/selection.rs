// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which results a report has: a time range, and terms that all hold.

use std::net::IpAddr;
use std::str::FromStr;

use super::protocol_of;
use super::read::{ReportRow, ReportTableKind};

/// The names of terms, for messages.
const TERMS: &str = "host, source or destination = an address or a network like 10.0.0.0/8, port = a number, \
    protocol = a word like tcp, server = a name or its end, application = a word like tls";

/// Which results a report has; all by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportSelection {
    /// Results from this time on, in microseconds since 1970.
    pub from: Option<i64>,
    /// Results before this time.
    pub to: Option<i64>,
    /// Flows and DNS questions for which these terms hold.
    pub terms: ReportTerms,
}

/// Terms `NAME=VALUE` that all have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportTerms(Vec<ReportTerm>);

#[derive(Clone, Debug, PartialEq)]
enum ReportTerm {
    Source(Network),
    Destination(Network),
    Host(Network),
    Port(i64),
    Protocol(String),
    Server(String),
    Application(String),
}

/// An address, of which this many bits count.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Network(IpAddr, u32);

impl ReportSelection {
    /// Whether rows of this time are wanted.
    pub(super) fn has_time(&self, from: i64, to: i64) -> bool {
        self.from.is_none_or(|begin| to >= begin) && self.to.is_none_or(|end| from < end)
    }

    /// Whether all terms hold for a flow or a DNS question.
    pub(super) fn has(&self, kind: ReportTableKind, row: &ReportRow) -> bool {
        self.terms.0.iter().all(|term| term.holds(kind, row))
    }

    /// Whether all flows are wanted, so that counts of packets are theirs.
    pub(super) fn has_all_flows(&self) -> bool {
        self.terms.0.is_empty()
    }
}

/// Why a text selects no results.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// A word is no term.
    #[error("\"{0}\": expected {TERMS}")]
    Term(String),
    /// The text is no time.
    #[error("expected a time in UTC, like \"2026-01-31 14:00\"")]
    Time,
}

impl FromStr for ReportTerms {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let terms = text.split_whitespace().map(|word| {
            let wrong = || SelectionError::Term(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            let network = || value.parse().map_err(|()| wrong());
            let own = || value.to_ascii_lowercase();
            Ok(match name {
                "source" => ReportTerm::Source(network()?),
                "destination" => ReportTerm::Destination(network()?),
                "host" => ReportTerm::Host(network()?),
                "port" => ReportTerm::Port(value.parse::<u16>().map_err(|_| wrong())?.into()),
                "protocol" => ReportTerm::Protocol(own()),
                "server" => ReportTerm::Server(own()),
                "application" => ReportTerm::Application(own()),
                _ => return Err(wrong()),
            })
        });
        terms.collect::<Result<_, _>>().map(ReportTerms)
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| ())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Network(address, bits)).ok_or(())
    }
}

impl Network {
    fn has(self, text: Option<&str>) -> bool {
        let number = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = text.and_then(|text| text.parse::<IpAddr>().ok());
        let Some(address) = address.filter(|one| one.is_ipv4() == self.0.is_ipv4()) else {
            return false;
        };
        let differ = number(address) ^ number(self.0);
        self.1 == 0 || differ >> (128 - self.1) == 0
    }
}

impl ReportTerm {
    fn holds(&self, kind: ReportTableKind, row: &ReportRow) -> bool {
        let (source, destination) = (row.text("source"), row.text("destination"));
        let is_dns = kind == ReportTableKind::Dns;
        match self {
            ReportTerm::Source(network) => network.has(source),
            ReportTerm::Destination(network) => network.has(destination),
            ReportTerm::Host(network) => network.has(source) || network.has(destination),
            ReportTerm::Port(port) => ["source_port", "destination_port"]
                .iter()
                .any(|name| row.number(name) == Some(*port)),
            ReportTerm::Protocol(word) => protocol_of(row).as_ref() == Some(word),
            ReportTerm::Server(name) => {
                let own = row.text(if is_dns { "query" } else { "server_name" });
                own.is_some_and(|own| is_name_in(&own.to_ascii_lowercase(), name))
            }
            ReportTerm::Application(word) => {
                is_dns && word == "dns"
                    || ["application", "ndpi_application"].iter().any(|name| {
                        let own = row.text(name);
                        own.is_some_and(|own| own.eq_ignore_ascii_case(word))
                    })
            }
        }
    }
}

/// Whether a name is this domain, or in it.
fn is_name_in(name: &str, domain: &str) -> bool {
    let before = name.strip_suffix(domain);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Parses a time in UTC: `2026-01-31`, `2026-01-31 14:00`, `2026-01-31T14:00:00Z`; gives microseconds since 1970.
///
/// # Errors
///
/// [`SelectionError::Time`].
pub fn report_time(text: &str) -> Result<i64, SelectionError> {
    text.parse()
        .or_else(|_| {
            let civil = text.parse::<jiff::civil::DateTime>()?;
            jiff::tz::TimeZone::UTC.to_timestamp(civil)
        })
        .map(jiff::Timestamp::as_microsecond)
        .map_err(|_| SelectionError::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_are_wrong_are_refused_with_those_that_there_are() {
        for text in [
            "tcp",
            "host=x",
            "host=10.0.0.0/33",
            "port=70000",
            "colour=red",
        ] {
            let why = text.parse::<ReportTerms>().expect_err(text).to_string();
            assert!(why.contains(text) && why.contains("application"), "{why}");
        }
        let two = "host=10.0.0.0/8 port=443".parse::<ReportTerms>();
        assert_eq!(two.expect("terms").0.len(), 2);
    }

    #[test]
    fn networks_and_domains_hold_what_is_in_them() {
        let network = |text: &str| text.parse::<Network>().expect(text);
        for (text, address, is_in) in [
            ("10.0.0.0/8", "10.255.1.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("::/0", "1.2.3.4", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
        ] {
            assert_eq!(network(text).has(Some(address)), is_in, "{text} {address}");
        }
        assert!(is_name_in("www.example.org", "example.org"));
        assert!(!is_name_in("badexample.org", "example.org"));
    }

    #[test]
    fn times_are_in_utc() {
        let want = Ok(1_767_276_000_000_000);
        for text in [
            "2026-01-01 14:00",
            "2026-01-01T14:00:00Z",
            "2026-01-01T15:00:00+01:00",
        ] {
            assert_eq!(report_time(text), want, "{text}");
        }
        assert!(report_time("yesterday").is_err());
    }
}
