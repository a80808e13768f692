// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics for Shuttle: before each access, it may run another thread.
#![forbid(unsafe_code)]

use std::sync::atomic::{self, Ordering};

use shuttle::thread::yield_now;

macro_rules! scheduled {
    ($name:ident, $number:ty) => {
        /// A number in shared memory.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// A number with this value.
            pub const fn new(value: $number) -> Self {
                $name(atomic::$name::new(value))
            }

            /// Reads the number.
            pub fn load(&self, order: Ordering) -> $number {
                yield_now();
                self.0.load(order)
            }

            /// Writes the number.
            pub fn store(&self, value: $number, order: Ordering) {
                yield_now();
                self.0.store(value, order);
            }

            /// Writes the number, and returns the one before.
            pub fn swap(&self, value: $number, order: Ordering) -> $number {
                yield_now();
                self.0.swap(value, order)
            }

            /// Raises the number to at least `value`, and returns the one before.
            pub fn fetch_max(&self, value: $number, order: Ordering) -> $number {
                yield_now();
                self.0.fetch_max(value, order)
            }
        }
    };
}

scheduled!(AtomicU32, u32);
scheduled!(AtomicU64, u64);
