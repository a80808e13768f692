// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library exports the calls that its header declares; it is installed where the caller says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{crate_folder, deps, installed, script};

type Names = BTreeSet<String>;

/// Names that are followed by `after` in a text.
fn names(text: &str, after: &str) -> Names {
    let words = text.match_indices("ringtap_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest.split_at(end.unwrap_or(rest.len()))
    });
    let followed = words.filter(|(_, rest)| rest.starts_with(after));
    followed.map(|(name, _)| name.to_owned()).collect()
}

/// The header without its comments, whose examples contain calls.
fn declarations() -> String {
    let header = fs::read_to_string(crate_folder().join("include/ringtap.h"));
    let header = header.expect("the header is there");
    let mut parts = header.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        code += part.split_once("*/").expect("a comment ends").1;
    }
    code
}

fn readelf(args: &[&str]) -> String {
    let output = Command::new("readelf")
        .args(args)
        .arg(installed().join("lib/libringtap.so"))
        .output()
        .expect("readelf comes with the C compiler");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("readelf prints text")
}

#[test]
fn header_and_library_have_the_same_calls() {
    let header = names(&declarations(), "(");
    assert!(header.len() >= 10, "{header:?}");
    let symbols = readelf(&["--dyn-syms", "--wide"]);
    let exported: Names = symbols
        .lines()
        .filter_map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            let [_, _, _, kind, bind, _, index, name] = columns[..] else {
                return None;
            };
            let defined = index != "UND" && index != "Ndx" && bind != "LOCAL";
            (defined && kind != "OBJECT").then(|| name.to_owned())
        })
        .collect();
    assert_eq!(exported, header);
}

#[test]
fn the_soname_is_the_one_of_this_abi_and_little_else_is_needed() {
    let dynamic = readelf(&["--dynamic", "--wide"]);
    assert!(dynamic.contains("soname: [libringtap.so.0]"), "{dynamic}");
    let needed: Vec<_> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    for library in ["libelf", "libbpf", "libz"] {
        let there = needed.iter().any(|line| line.contains(library));
        assert!(!there, "a reader needs no {library}: {needed:?}");
    }
}

#[test]
fn an_installation_has_its_own_folders_and_is_removed_whole() {
    let root = TempDir::new().expect("a folder");
    let [prefix, libdir] = ["/opt/r", "/opt/r/lib/x86"].map(Path::new);
    script(&[Path::new("install"), &deps(), prefix, libdir, root.path()]);
    let flags = fs::read_to_string(root.path().join("opt/r/lib/x86/pkgconfig/ringtap.pc"));
    let flags = flags.expect("pkg-config finds the library");
    assert!(flags.contains("\nprefix=/opt/r\n"), "{flags}");
    assert!(flags.contains("\nlibdir=/opt/r/lib/x86\n"), "{flags}");
    let library = root.path().join("opt/r/lib/x86/libringtap.so");
    fs::read(library).expect("a link to the library");
    script(&[Path::new("uninstall"), prefix, libdir, root.path()]);
    let mut find = Command::new("find");
    let files = find.arg(root.path()).args(["!", "-type", "d"]).output();
    let files = files.expect("find can be run");
    assert_eq!(String::from_utf8_lossy(&files.stdout), "");
}
