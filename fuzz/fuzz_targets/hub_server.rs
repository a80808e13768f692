// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any messages at the hub's server: each gets an answer or the server, and others are served on.
//!
//! The body is that of a property test in `crates/serve/ringtap-hub/tests/hostile/`.

#![no_main]

#[path = "../../crates/serve/ringtap-hub/tests/shared/fed.rs"]
mod fed;
#[path = "../../crates/serve/ringtap-hub/tests/hostile/server.rs"]
mod server;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    server::run(input);
});
