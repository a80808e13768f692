// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes files while a recorder writes them, on a thread of its own.
//!
//! Invariants
//! - The recorder never waits for the thread: a file for which there is no room in the queue gets no index.
//! - A file that is deleted leaves no index behind.
//! - The thread ends soon after the [`IndexFollower`], also if that is dropped without [`finish`](IndexFollower::finish).

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
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
    /// The file that is being written; dropping it closes the file.
    current: Option<Sender<Infallible>>,
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
    /// Disconnected once the recorder has written all of the file, or is gone.
    writer: Receiver<Infallible>,
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
        let (current, writer) = channel();
        let file = FollowedFile {
            path: path.to_owned(),
            writer,
        };
        self.current = Some(current);
        self.skipped += u64::from(self.files.try_send(file).is_err());
    }

    /// The recorder has written all of its file.
    pub fn close(&mut self) {
        self.current = None;
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
    for FollowedFile { path, writer } in files {
        // The recorder deletes the index that is being written with its file.
        if let Err(error) = follow(&path, writer)
            && path.exists()
        {
            last = Some(error);
        }
    }
    last
}

fn follow(path: &Path, writer: Receiver<Infallible>) -> Result<(), IndexError> {
    let mut data = match CaptureFile::open(path) {
        Ok(data) => data,
        // The ring has deleted it already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => {
            let file = path.display().to_string();
            return Err(IndexError::Open { file, cause });
        }
    };
    let Some(mut new) = Indexing::create(path, &data, IndexSizes::USUAL)? else {
        return Ok(());
    };
    let stream = GrowingFile {
        file: Arc::clone(&data.file),
        at: 0,
        writer,
        is_closed: false,
    };
    let totals = new.read(&data, Box::new(stream), Publish::AtFirstSegment)?;
    if let Ok(state) = data.state_now() {
        data.state = state;
    }
    new.finish(&data, totals)?;
    let now = CaptureFile::open(path);
    if now.map_or(true, |now| now.identity != data.identity) {
        // The file was deleted or replaced meanwhile.
        let _gone = remove_index(path);
    }
    Ok(())
}

/// A file that ends when its writer has closed it, or is gone.
struct GrowingFile {
    file: Arc<File>,
    at: u64,
    writer: Receiver<Infallible>,
    is_closed: bool,
}

impl Read for GrowingFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read_at(into, self.at)?;
            if count > 0 || self.is_closed || into.is_empty() {
                self.at += to_u64(count);
                return Ok(count);
            }
            // What the writer wrote before it closed the file is read after that.
            let waited = self.writer.recv_timeout(PAUSE);
            self.is_closed = waited == Err(RecvTimeoutError::Disconnected);
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

    #[test]
    fn the_thread_of_a_follower_that_is_dropped_ends() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a.pcap");
        let (bytes, ..) = made::content(&mut Random(7), 30);
        std::fs::write(&path, &bytes).unwrap();
        let drop_follower = || {
            let mut follower = IndexFollower::start().unwrap();
            follower.begin(&path);
            follower.thread
        };
        let thread = drop_follower();
        let start = std::time::Instant::now();
        while !thread.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(60), "polls for ever");
            thread::sleep(PAUSE);
        }
        assert!(thread.join().unwrap().is_none());
        let data = CaptureFile::open(&path).unwrap();
        assert!(StoredIndex::open(&path).unwrap().is_complete_for(&data));
    }
}
