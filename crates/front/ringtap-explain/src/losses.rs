// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines when a source or a reader begins to lose packets, and when it stops.
//!
//! Invariants
//! - A place that loses packets all the time causes two lines, however long that is.

use std::collections::HashMap;

use ringtap_ipc::protocol::HubStatus;

use crate::change::account;
use crate::text::{as_f64, grouped};

/// Time without a loss after which losing has stopped.
const QUIET_NS: u64 = 5_000_000_000;

/// Where packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LossSite {
    /// A source, by position.
    Source(usize),
    /// A reader, by number.
    Reader(u64),
}

/// A loss counter as last seen.
#[derive(Clone, Copy, Debug, Default)]
struct LossSeen {
    packets: u64,
    losing: Option<Losing>,
}

/// A time of losses that has not ended.
#[derive(Clone, Copy, Debug)]
struct Losing {
    since_ns: u64,
    last_ns: u64,
    /// The counter before it.
    before: u64,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub struct LossLine {
    /// The reader's user, whose lines are limited.
    pub uid: Option<u32>,
    /// The line.
    pub text: String,
}

/// Compares the hub's counters with those of the last look.
#[derive(Default)]
pub struct LossWatch {
    seen: HashMap<LossSite, LossSeen>,
}

impl LossWatch {
    /// Losses that began or stopped since the last call.
    pub fn look(&mut self, hub: &HubStatus) -> Vec<LossLine> {
        let mut seen = HashMap::new();
        let mut lines = Vec::new();
        let sources = hub.sources.iter().enumerate().map(|(at, source)| {
            let name = source.device.clone();
            (
                LossSite::Source(at),
                None,
                name,
                account(source).dropped.total(),
            )
        });
        let readers = hub.readers.iter().map(|reader| {
            let name = format!(
                "reader {} \"{}\" (group {}, process {})",
                reader.reader, reader.name, reader.group, reader.pid
            );
            let site = LossSite::Reader(reader.reader);
            (
                site,
                Some(reader.uid),
                name,
                reader.counters.dropped.overrun,
            )
        });
        for (site, uid, name, packets) in sources.chain(readers) {
            let (now, text) = self.compare(site, packets, hub.time_ns, &name);
            seen.insert(site, now);
            lines.extend(text.map(|text| LossLine { uid, text }));
        }
        self.seen = seen;
        lines
    }

    fn compare(
        &self,
        site: LossSite,
        packets: u64,
        now_ns: u64,
        name: &str,
    ) -> (LossSeen, Option<String>) {
        let before = self.seen.get(&site).copied().unwrap_or_default();
        let lost = grouped(packets.saturating_sub(before.packets));
        let (losing, text) = match before.losing {
            None if packets > before.packets => {
                let losing = Losing {
                    since_ns: now_ns,
                    last_ns: now_ns,
                    before: before.packets,
                };
                let text = format!("{name} loses packets: {lost} in the last second");
                (Some(losing), Some(text))
            }
            Some(losing) if packets > before.packets => {
                let last_ns = now_ns;
                (Some(Losing { last_ns, ..losing }), None)
            }
            Some(losing) if now_ns.saturating_sub(losing.last_ns) >= QUIET_NS => {
                let lost = grouped(packets.saturating_sub(losing.before));
                let seconds = as_f64(losing.last_ns.saturating_sub(losing.since_ns)) / 1e9 + 1.0;
                let text = format!(
                    "{name} has stopped losing packets: {lost} in {seconds:.0} s, {} in all",
                    grouped(packets)
                );
                (None, Some(text))
            }
            unchanged => (unchanged, None),
        };
        (LossSeen { packets, losing }, text)
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::{ReaderStatus, SourceStatus};

    use ringtap_pool::counters::{Counters, Dropped};

    use super::*;

    fn hub(second: u64, nic: u64, overrun: u64) -> HubStatus {
        HubStatus {
            time_ns: second * 1_000_000_000,
            sources: vec![SourceStatus {
                device: "tap:eth0".into(),
                dropped: Dropped {
                    nic,
                    ..Dropped::default()
                },
                ..SourceStatus::default()
            }],
            readers: vec![ReaderStatus {
                counters: Counters {
                    dropped: Dropped {
                        overrun,
                        ..Dropped::default()
                    },
                    ..Counters::default()
                },
                reader: 3,
                name: "ids".into(),
                uid: 1000,
                ..ReaderStatus::default()
            }],
            ..HubStatus::default()
        }
    }

    #[test]
    fn a_loss_is_logged_when_it_begins_and_when_it_stops() {
        let mut watch = LossWatch::default();
        let mut texts = Vec::new();
        for second in 0..100 {
            // The reader loses 10 packets a second from 20 s to 39 s, with a pause of four seconds.
            let overrun = (second.clamp(19, 39) - 19) * 10;
            let overrun = if (25..29).contains(&second) {
                60
            } else {
                overrun
            };
            for line in watch.look(&hub(second, 0, overrun)) {
                texts.push((second, line.uid, line.text));
            }
        }
        let [(20, Some(1000), began), (44, Some(1000), stopped)] = &texts[..] else {
            panic!("{texts:?}")
        };
        assert!(
            began.contains("loses packets: 10 in the last second"),
            "{began}"
        );
        assert!(stopped.contains("200 in 20 s, 200 in all"), "{stopped}");
    }

    #[test]
    fn a_source_is_logged_too_and_a_reader_that_left_is_forgotten() {
        let mut watch = LossWatch::default();
        assert_eq!(watch.look(&hub(0, 0, 5)).len(), 1);
        let without = HubStatus {
            readers: Vec::new(),
            ..hub(1, 7, 0)
        };
        let lines = watch.look(&without);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].text.starts_with("tap:eth0 loses packets: 7"));
        assert_eq!(watch.seen.len(), 1);
    }
}
