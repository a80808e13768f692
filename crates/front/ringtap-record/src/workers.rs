// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that compress or write buffers, so that the recorder fills the next one meanwhile.
//!
//! Invariants
//! - Buffers come back in the order in which they were given.
//! - At most a fixed number of buffers is on its way.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The threads, and what is on its way through them: buffers with a `T` each, of which a thread makes an `R`.
pub(crate) struct Workers<T, R> {
    threads: Vec<ThreadEnds<T, R>>,
    /// Number of the next buffer; buffer n goes through thread n modulo their number.
    next: usize,
    /// Number of buffers on their way, and the most that may be.
    pending: usize,
    most: usize,
    /// Buffers to use again.
    pub(crate) spare: Vec<Vec<u8>>,
}

/// The ends of a thread's two channels.
struct ThreadEnds<T, R> {
    to_do: Sender<(Vec<u8>, T)>,
    done: Receiver<(Vec<u8>, Worked<T, R>)>,
}

/// The value that came with a buffer, and the thread's result for it.
type Worked<T, R> = io::Result<(T, R)>;

impl<T: Send + 'static, R: Send + 'static> Workers<T, R> {
    /// Starts a thread for each `work`, with at most `most` buffers of the thread on their way.
    pub(crate) fn start<W>(name: &str, most: usize, works: Vec<W>) -> io::Result<Self>
    where
        W: FnMut(&[u8], &T) -> io::Result<R> + Send + 'static,
    {
        let threads = works.into_iter().map(|work| start(name, work));
        let threads = threads.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            next: 0,
            pending: 0,
            most: threads.len() * most,
            threads,
            spare: Vec::new(),
        })
    }

    /// Whether a buffer has to be taken before the next one is given.
    pub(crate) fn is_full(&self) -> bool {
        self.pending >= self.most
    }

    /// Whether no buffer is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// An empty buffer, with room for this number of bytes if it is new.
    pub(crate) fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Gives a buffer to its thread.
    pub(crate) fn submit(&mut self, buffer: Vec<u8>, with: T) -> io::Result<()> {
        let thread = &self.threads[self.next % self.threads.len()];
        thread.to_do.send((buffer, with)).map_err(|_| ended())?;
        self.next += 1;
        self.pending += 1;
        Ok(())
    }

    /// Waits for the result of the oldest buffer; `None` if no buffer is on its way.
    pub(crate) fn take(&mut self) -> Option<Worked<T, R>> {
        let thread = self.next.wrapping_sub(self.pending) % self.threads.len();
        self.pending = self.pending.checked_sub(1)?;
        let Ok((mut buffer, result)) = self.threads[thread].done.recv() else {
            return Some(Err(ended()));
        };
        buffer.clear();
        self.spare.push(buffer);
        Some(result)
    }
}

fn start<T: Send + 'static, R: Send + 'static>(
    name: &str,
    mut work: impl FnMut(&[u8], &T) -> io::Result<R> + Send + 'static,
) -> io::Result<ThreadEnds<T, R>> {
    let (to_do, buffers) = channel::<(Vec<u8>, T)>();
    let (results, done) = channel();
    let run = move || {
        for (buffer, with) in buffers {
            let result = work(&buffer, &with).map(|made| (with, made));
            if results.send((buffer, result)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name(name.into()).spawn(run)?;
    Ok(ThreadEnds { to_do, done })
}

fn ended() -> io::Error {
    io::Error::other("a thread of the recorder has ended")
}
