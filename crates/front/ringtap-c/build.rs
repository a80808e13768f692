// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the soname of the shared library, by which programs find it.

fn main() {
    // The number rises when a call or a structure changes or is removed.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libringtap.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
