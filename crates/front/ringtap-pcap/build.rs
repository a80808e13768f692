// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles `border.c`: the frames that may lie below a program's callback.

fn main() {
    println!("cargo::rerun-if-changed=src/border.c");
    println!("cargo::rerun-if-changed=src/forwards.h");
    cc::Build::new()
        .file("src/border.c")
        .std("gnu11")
        .flag("-fexceptions")
        .flag("-fvisibility=hidden")
        .pic(true)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile("ringtap_pcap_border");
}
