// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of threads.

use std::any::Any;
use std::panic::resume_unwind;
use std::thread::{JoinHandle, panicking};

/// Waits until a thread has ended; returns its result. If it panicked, this thread panics with the same message;
/// `None` if this thread is panicking already.
///
/// # Panics
///
/// If the thread panicked.
pub fn join<T>(thread: JoinHandle<T>) -> Option<T> {
    match thread.join() {
        Ok(result) => Some(result),
        Err(_) if panicking() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// The message of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let known = panic.downcast_ref::<&str>().copied();
    let known = known.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    known.unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn a_panic_of_a_thread_is_one_of_the_thread_that_waits_for_it() {
        assert_eq!(join(spawn(|| 7)), Some(7));
        let panic = catch_unwind(|| join(spawn(|| panic!("in the other thread")))).unwrap_err();
        assert_eq!(panic_text(&*panic), "in the other thread");
    }
}
