// SPDX-License-Identifier: MIT OR Apache-2.0
//! Build script of the crates in this folder: compiles their eBPF programs with clang.
//!
//! `bpf/NAME.bpf.c` becomes `OUT_DIR/NAME.bpf.o`.

use std::{env, path::Path, process::Command};

/// The programs of each crate; some of those of ringtap-capture are for its tests and examples.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("ringtap-bpf", &["refusal"]),
    (
        "ringtap-capture",
        &["tap", "xsk", "meter", "floor", "tagging"],
    ),
    ("ringtap-send", &["send"]),
    ("ringtap-bridge", &["redirect"]),
];

fn main() {
    let crate_name = env::var("CARGO_PKG_NAME").expect("cargo sets CARGO_PKG_NAME");
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let root = Path::new(&here).join("../../../bpf");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo::rerun-if-changed={}", root.display());
    let programs = PROGRAMS.iter().find(|(name, _)| *name == crate_name);
    let (_, programs) = programs.expect("every crate with this build script is in the table");
    for name in *programs {
        let source = root.join(format!("{name}.bpf.c"));
        compile(&source, &Path::new(&out).join(format!("{name}.bpf.o")));
    }
}

fn compile(source: &Path, object: &Path) {
    let multiarch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let status = Command::new(env::var("CLANG").unwrap_or_else(|_| "clang".into()))
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_name(&multiarch)))
        .arg(format!("-I/usr/include/{multiarch}-linux-gnu"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .expect("clang is needed to build the eBPF programs: apt-get install clang");
    assert!(
        status.success(),
        "clang could not compile {}",
        source.display()
    );
}

/// The architecture as the kernel's sources call it.
fn kernel_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    }
}
