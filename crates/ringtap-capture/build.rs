// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles each `bpf/*.bpf.c` with clang into `OUT_DIR/NAME.bpf.o`.

use std::{env, fs, path::Path, process::Command};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut programs: Vec<_> = fs::read_dir(&root)
        .expect("the repository has a bpf folder")
        .map(|entry| entry.expect("bpf folder can be listed").path())
        .collect();
    programs.sort();
    for path in programs {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if let Some(stem) = name.strip_suffix(".c").filter(|s| s.ends_with(".bpf")) {
            compile(&path, &Path::new(&out).join(format!("{stem}.o")));
        }
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
