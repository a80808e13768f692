// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of threads.

use std::panic::resume_unwind;
use std::thread::{JoinHandle, panicking};

/// Waits until a thread has ended. If it panicked, this thread panics with the same message, unless it is panicking
/// already.
///
/// # Panics
///
/// If the thread panicked.
pub fn join<T>(thread: JoinHandle<T>) {
    if let Err(panic) = thread.join()
        && !panicking()
    {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn a_panic_of_a_thread_is_one_of_the_thread_that_waits_for_it() {
        join(spawn(|| 7));
        let panic = catch_unwind(|| join(spawn(|| panic!("in the other thread")))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"in the other thread"));
    }
}
