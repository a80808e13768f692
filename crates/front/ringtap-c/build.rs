// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the name under which programs look for the shared library.

fn main() {
    // The number rises when a call or a structure changes or goes away.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libringtap.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
