// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of readers that have left, by name.
//!
//! Invariants
//! - At most [`MOST`] names are kept, whatever users do. A new name replaces the oldest one of the user
//!   with the most names, so that no user can make the hub forget the readers of another.

use ringtap_ipc::protocol::{DepartedStatus, ReaderStatus};

/// Most names that the hub keeps.
const MOST: usize = 32;

/// Readers that have left; those of one user, group and name together.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// The one that left longest ago first.
    names: Vec<DepartedStatus>,
    /// Packets lost by all readers that have left.
    overrun: u64,
}

impl Departed {
    /// Adds the last counters of a reader that left at `time_ns`.
    pub(crate) fn add(&mut self, reader: ReaderStatus, time_ns: u64) {
        self.overrun = self.overrun.saturating_add(reader.counters.dropped.overrun);
        let is_same = |one: &DepartedStatus| {
            (one.uid, &one.group, &one.name) == (reader.uid, &reader.group, &reader.name)
        };
        let mut entry = match self.names.iter().position(is_same) {
            Some(at) => self.names.remove(at),
            None => DepartedStatus {
                name: reader.name,
                group: reader.group,
                uid: reader.uid,
                ..DepartedStatus::default()
            },
        };
        entry.readers += 1;
        entry.left_ns = time_ns;
        entry.counters += reader.counters;
        entry.unread = entry.unread.saturating_add(reader.unread);
        self.names.push(entry);
        if self.names.len() > MOST {
            let names_of = |uid| self.names.iter().filter(|one| one.uid == uid).count();
            let most = self.names.iter().map(|one| names_of(one.uid)).max();
            let oldest = self
                .names
                .iter()
                .position(|one| Some(names_of(one.uid)) == most);
            self.names.remove(oldest.unwrap_or(0));
        }
    }

    /// The names, and the packets lost by all readers that have left.
    pub(crate) fn status(&self) -> (Vec<DepartedStatus>, u64) {
        (self.names.clone(), self.overrun)
    }
}

#[cfg(test)]
mod tests {
    use ringtap_pool::counters::{Counters, Dropped};

    use super::*;

    fn reader(uid: u32, name: &str, overrun: u64) -> ReaderStatus {
        ReaderStatus {
            uid,
            name: name.to_owned(),
            counters: Counters {
                delivered: 10,
                dropped: Dropped {
                    overrun,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            unread: 4,
            ..ReaderStatus::default()
        }
    }

    #[test]
    fn readers_of_one_name_are_counted_together() {
        let mut departed = Departed::default();
        for time_ns in 1..=3 {
            departed.add(reader(7, "ids", 2), time_ns);
        }
        departed.add(reader(8, "ids", 1), 4);
        let (names, overrun) = departed.status();
        let first = &names[0];
        assert_eq!((names.len(), overrun), (2, 7));
        assert_eq!(
            (first.readers, first.counters.delivered, first.unread),
            (3, 30, 12)
        );
        assert_eq!((first.counters.dropped.overrun, first.left_ns), (6, 3));
    }

    #[test]
    fn a_user_with_many_names_replaces_only_its_own() {
        let mut departed = Departed::default();
        departed.add(reader(1, "ids", 5), 0);
        departed.add(reader(2, "recorder", 0), 0);
        for time_ns in 1..10_000 {
            departed.add(reader(66, &format!("x{time_ns}"), 1), time_ns);
        }
        let (names, overrun) = departed.status();
        assert_eq!((names.len(), overrun), (MOST, 5 + 9_999));
        for kept in ["ids", "recorder", "x9999"] {
            assert!(names.iter().any(|one| one.name == kept), "{kept}");
        }
    }
}
