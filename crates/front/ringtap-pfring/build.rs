// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the soname that programs linked with ntop's library of version 8 look for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpfring.so.8");
    println!("cargo::rerun-if-changed=build.rs");
}
