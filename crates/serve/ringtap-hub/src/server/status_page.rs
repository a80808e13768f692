// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides the hub's status into messages: a reader asks for one page after the other.
//!
//! Invariants
//! - A page fits into a message, and the server keeps nothing between two pages.

use ringtap_ipc::protocol::{HubStatus, Refusal, Refused, Reply, encode};
use ringtap_ipc::transport::MAX_BYTES;

/// Error text: sources and groups alone exceed a message.
const TOO_LONG: &str = "the hub has too many sources, lanes and groups for its status to fit into a message: \
                        use --metrics";

/// The part of the status that follows the reader `after` and fits into a message. The first page
/// (`after` is 0) has the sources and groups.
pub(super) fn status_page(status: HubStatus, after: u64) -> Reply {
    let mut page = status;
    if after > 0 {
        page.sources.clear();
        page.groups.clear();
        page.departed.clear();
        page.bridges.clear();
        page.readers.retain(|reader| reader.reader > after);
    }
    let mut readers = std::mem::take(&mut page.readers);
    loop {
        let reply = Reply::Status(Box::new(HubStatus {
            readers: readers.clone(),
            ..page.clone()
        }));
        if encode(&reply).len() <= MAX_BYTES {
            return reply;
        }
        readers.truncate(readers.len() / 2);
        page.readers_after = match readers.last() {
            Some(last) => Some(last.reader),
            None => {
                return Reply::Refused(Refused::new(Refusal::Failed, TOO_LONG));
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::{
        BridgeStatus, DepartedStatus, GroupStatus, ReaderStatus, SourceStatus,
    };

    use super::*;

    fn status(readers: u64) -> HubStatus {
        let reader = |number| ReaderStatus {
            reader: number,
            name: "x".repeat(64),
            not_in_source: Some("a long reason ".repeat(10)),
            ..ReaderStatus::default()
        };
        HubStatus {
            sources: vec![SourceStatus::default()],
            groups: vec![GroupStatus::default()],
            bridges: vec![BridgeStatus::default()],
            departed: vec![DepartedStatus::default()],
            readers: (1..=readers).map(reader).collect(),
            ..HubStatus::default()
        }
    }

    #[test]
    fn the_pages_together_have_each_reader_once() {
        let all = status(1000);
        let (mut after, mut pages, mut seen) = (0, 0, Vec::new());
        loop {
            let reply = status_page(all.clone(), after);
            assert!(encode(&reply).len() <= MAX_BYTES);
            let Reply::Status(page) = reply else {
                panic!("a page")
            };
            let once = [
                page.sources.len(),
                page.groups.len(),
                page.bridges.len(),
                page.departed.len(),
            ];
            assert_eq!(once, [usize::from(after == 0); 4]);
            seen.extend(page.readers);
            pages += 1;
            match page.readers_after {
                Some(next) => after = next,
                None => break,
            }
        }
        assert!(pages > 2, "{pages}");
        assert_eq!(seen, all.readers);
    }

    #[test]
    fn a_status_that_cannot_be_divided_is_refused() {
        let mut all = status(1);
        all.groups[0].filter = "x".repeat(MAX_BYTES);
        assert!(matches!(status_page(all, 0), Reply::Refused(_)));
    }
}
