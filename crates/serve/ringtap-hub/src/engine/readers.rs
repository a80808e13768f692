// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers come and go on the hub's thread, and figures are read.

use std::collections::HashMap;
use std::time::Instant;

use ringtap_ipc::protocol::ReaderStatus;
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::{AddReaderError, Policy, ReaderOptions};
use ringtap_pool::ids::ReaderId;

use super::Engine;
use super::figures::{Figures, reader_figures, source_figures};
use super::links::{NewReader, ReaderLink, START_TRIES};
use crate::capture::{Beginning, SourceCapture};

impl Engine {
    /// Adds a reader at every source, or at none.
    pub(crate) fn link(&mut self, new: NewReader) -> Result<Vec<Beginning>, AddReaderError> {
        let id = new.id;
        let mut link = ReaderLink {
            new,
            readers: Vec::new(),
            baselines: Vec::new(),
            waits_since: None,
            lost: 0,
            last_loss_ns: 0,
        };
        let mut beginnings = Vec::new();
        for source in 0..self.captures.len().min(link.new.controls.len()) {
            match self.add_reader(source, &link.new) {
                Ok((reader, beginning)) => {
                    link.readers.push(reader);
                    link.baselines.push(beginning.counts.clone());
                    beginnings.push(beginning);
                }
                Err(error) => {
                    self.remove(&link);
                    return Err(error);
                }
            }
        }
        self.links.add(id, link);
        Ok(beginnings)
    }

    /// Adds a reader at a source.
    fn add_reader(
        &mut self,
        source: usize,
        new: &NewReader,
    ) -> Result<(ReaderId, Beginning), AddReaderError> {
        let capture = &self.captures[source];
        if let Some(share) = new.options.chunk_share {
            capture.buddies.set_threshold(share, new.offload_percent);
        }
        let options = ReaderOptions {
            // A source that cannot drop packets waits for its readers.
            policy: match capture.facts.policy {
                waits @ Policy::Block => waits,
                _ => new.options.policy,
            },
            ..new.options
        };
        let mut tries = 0;
        loop {
            // Other readers are woken meanwhile. The next step reports an error again.
            if !new.from_the_first {
                self.catch_up();
            }
            let capture = &mut self.captures[source];
            match capture.add_reader(&options, &new.controls[source], new.from_the_first) {
                Err(AddReaderError::Start { .. }) if tries < START_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    /// Removes a subscription's readers and takes back all chunks that they hold; returns their last
    /// numbers.
    pub(crate) fn unlink(&mut self, id: SubscriptionId) -> ReaderStatus {
        let Some(mut link) = self.links.remove(id) else {
            return ReaderStatus::default();
        };
        link.lost = link.lost(&self.captures);
        let mut last = reader_figures(&link, &self.captures, now_ns()).numbers;
        let counts: Vec<_> = self
            .captures
            .iter_mut()
            .map(SourceCapture::counts)
            .collect();
        link.complete(&mut last, &counts);
        self.remove(&link);
        last
    }

    fn remove(&mut self, link: &ReaderLink) {
        for (capture, reader) in self.captures.iter_mut().zip(&link.readers) {
            capture.distributor.remove_reader(*reader);
        }
    }

    /// Changes the mask bits of a subscription's readers, before the rules that give them other bits.
    pub(crate) fn set_mask(&mut self, id: SubscriptionId, mask: u64) {
        let readers = self.links.all.get(&id).map(|link| &link.readers);
        for (capture, reader) in self.captures.iter_mut().zip(readers.into_iter().flatten()) {
            capture.distributor.set_mask(*reader, mask);
        }
    }

    /// Changes how many chunks of a lane a subscription's readers may hold.
    pub(crate) fn set_credit(&mut self, id: SubscriptionId, chunks: u32) {
        let readers = self.links.all.get(&id).map(|link| &link.readers);
        for (capture, reader) in self.captures.iter_mut().zip(readers.into_iter().flatten()) {
            capture.distributor.set_credit(*reader, chunks);
        }
    }
}

impl Engine {
    /// The figures now, with those of this many buddy groups.
    pub(crate) fn figures(&mut self, groups: u32) -> Figures {
        let begun = Instant::now();
        // Take returned chunks first: they decide which packets count as missed.
        self.catch_up();
        let now = now_ns();
        self.links.note_losses(&self.captures, now);
        let links = self.links.all.iter();
        // Before the sources: what a reader counts, its sources have counted.
        let readers = links.map(|(id, link)| (*id, reader_figures(link, &self.captures, now)));
        let mut readers: HashMap<_, _> = readers.collect();
        let sources = self
            .captures
            .iter_mut()
            .map(|capture| source_figures(capture, groups));
        let sources: Vec<_> = sources.collect();
        let counts: Vec<_> = sources.iter().map(|one| one.status.counts()).collect();
        for (id, link) in &self.links.all {
            if let Some(reader) = readers.get_mut(id) {
                link.complete(&mut reader.numbers, &counts);
            }
        }
        Figures {
            time_ns: now,
            sources,
            readers,
            took: begun.elapsed(),
            longest_step: self.longest_step,
        }
    }
}
