// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes files while a recorder writes them, on a thread of its own.
//!
//! Invariants
//! - The recorder never waits for the thread: a file for which there is no room in the queue gets no index.
//! - A file that is deleted leaves no index behind.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringtap_pool::number::to_u64;

use crate::beside::remove_index;
use crate::data::CaptureFile;
use crate::indexing::{IndexError, Indexing, Publish};
use crate::segment::IndexSizes;

/// Most files that wait for the thread.
const MAX_WAITING: usize = 256;
/// Time between two looks at a file that does not grow.
const PAUSE: Duration = Duration::from_millis(50);

/// Writes the indexes of files that a recorder writes.
pub struct IndexFollower {
    files: SyncSender<FollowedFile>,
    thread: JoinHandle<Option<IndexError>>,
    /// The file that is being written.
    current: Option<Arc<AtomicBool>>,
    skipped: u64,
}

/// Result of following.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FollowOutcome {
    /// Why a file has no index: the last reason.
    pub error: Option<IndexError>,
    /// Files without index because the thread was too far behind.
    pub skipped: u64,
}

struct FollowedFile {
    path: PathBuf,
    is_closed: Arc<AtomicBool>,
}

impl IndexFollower {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system starts no thread.
    pub fn start() -> io::Result<Self> {
        let (files, waiting) = sync_channel(MAX_WAITING);
        let thread = thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || follow_all(&waiting))?;
        Ok(IndexFollower {
            files,
            thread,
            current: None,
            skipped: 0,
        })
    }

    /// The recorder has begun this file: its header can be read. The file before is closed.
    pub fn begin(&mut self, path: &Path) {
        self.close();
        let is_closed = Arc::new(AtomicBool::new(false));
        let file = FollowedFile {
            path: path.to_owned(),
            is_closed: Arc::clone(&is_closed),
        };
        self.current = Some(is_closed);
        self.skipped += u64::from(self.files.try_send(file).is_err());
    }

    /// The recorder has written all of its file.
    pub fn close(&mut self) {
        if let Some(is_closed) = self.current.take() {
            // Pairs with the load in `GrowingFile::read`: the thread then sees the whole file.
            is_closed.store(true, Ordering::Release);
        }
    }

    /// Waits until all indexes are written.
    pub fn finish(mut self) -> FollowOutcome {
        self.close();
        drop(self.files);
        let error = self.thread.join();
        FollowOutcome {
            error: error.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            skipped: self.skipped,
        }
    }
}

fn follow_all(files: &Receiver<FollowedFile>) -> Option<IndexError> {
    let mut last = None;
    for file in files {
        // The recorder deletes the index that is being written with its file.
        if let Err(error) = follow(&file)
            && file.path.exists()
        {
            last = Some(error);
        }
    }
    last
}

fn follow(file: &FollowedFile) -> Result<(), IndexError> {
    let mut data = match CaptureFile::open(&file.path) {
        Ok(data) => data,
        // The ring has deleted it already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => {
            let file = file.path.display().to_string();
            return Err(IndexError::Open { file, cause });
        }
    };
    let Some(mut new) = Indexing::create(&file.path, &data, IndexSizes::USUAL)? else {
        return Ok(());
    };
    let stream = GrowingFile {
        file: Arc::clone(&data.file),
        at: 0,
        is_closed: Arc::clone(&file.is_closed),
    };
    let totals = new.read(&data, Box::new(stream), Publish::AtFirstSegment)?;
    if let Ok(state) = data.state_now() {
        data.state = state;
    }
    new.finish(&data, totals)?;
    let now = CaptureFile::open(&file.path);
    if now.map_or(true, |now| now.identity != data.identity) {
        // The file was deleted or replaced meanwhile.
        let _gone = remove_index(&file.path);
    }
    Ok(())
}

/// A file that ends when its writer has closed it.
struct GrowingFile {
    file: Arc<File>,
    at: u64,
    is_closed: Arc<AtomicBool>,
}

impl Read for GrowingFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Pairs with the store in `IndexFollower::close`; loaded before the read that may find the end.
            let is_closed = self.is_closed.load(Ordering::Acquire);
            let count = self.file.read_at(into, self.at)?;
            if count > 0 || is_closed || into.is_empty() {
                self.at += to_u64(count);
                return Ok(count);
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::stored::StoredIndex;
    use crate::tests::made::{self, Random};

    #[test]
    fn a_file_that_grows_has_a_complete_index_once_it_is_closed() {
        let folder = tempfile::TempDir::new().unwrap();
        let (bytes, is_pcap, ends) = made::content(&mut Random(7), 300);
        let name = if is_pcap { "a.pcap" } else { "a.pcapng" };
        let path = folder.path().join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes[..ends[10]]).unwrap();
        let mut follower = IndexFollower::start().unwrap();
        follower.begin(&path);
        for cut in [ends[50] - 3, ends[200], bytes.len()] {
            let written = usize::try_from(file.metadata().unwrap().len()).unwrap();
            thread::sleep(Duration::from_millis(60));
            file.write_all(&bytes[written..cut]).unwrap();
        }
        let outcome = follower.finish();
        assert!(outcome.error.is_none(), "{outcome:?}");
        let data = CaptureFile::open(&path).unwrap();
        let index = StoredIndex::open(&path).unwrap();
        let coverage = index.coverage(&data).unwrap();
        assert!(coverage.is_whole);
        assert_eq!(
            coverage.segments.last().unwrap().1.to,
            to_u64(*ends.last().unwrap())
        );
    }

    #[test]
    fn a_file_that_is_deleted_leaves_no_index() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a.pcap");
        let (bytes, ..) = made::content(&mut Random(7), 30);
        std::fs::write(&path, &bytes).unwrap();
        let mut follower = IndexFollower::start().unwrap();
        follower.begin(&path);
        thread::sleep(Duration::from_millis(100));
        std::fs::remove_file(&path).unwrap();
        follower.finish();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
