// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which crate may depend on which: arrows go down only.

use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata};

/// The layers from the lowest, each a folder below `crates/`, and the crates of each in order.
///
/// A crate may use crates of lower layers, and crates that its own layer lists before it.
const LAYERS: [(&str, &[&str]); 5] = [
    (
        "core",
        &["ringtap-filter", "ringtap-packet", "ringtap-pool"],
    ),
    (
        "host",
        &[
            "ringtap-ipc",
            "ringtap-net",
            "ringtap-device",
            "ringtap-file",
        ],
    ),
    (
        "capture",
        &[
            "ringtap-bpf",
            "ringtap-capture",
            "ringtap-send",
            "ringtap-bridge",
        ],
    ),
    (
        "serve",
        &[
            "ringtap-client",
            "ringtap-hub",
            "ringtap-vnplug",
            "ringtap-vm",
        ],
    ),
    (
        "front",
        &[
            "ringtap",
            "ringtap-index",
            "ringtap-columns",
            "ringtap-record",
            "ringtap-explain",
            "ringtap-probe",
            "ringtap-c",
            "ringtap-pcap",
            "ringtap-pfring",
            "ringtap-python",
            "ringtap-cli",
        ],
    ),
];

/// For tests only: any crate may have it as a dev-dependency, none otherwise.
const TEST_CRATE: &str = "ringtap-testkit";

/// The layer that may use nothing that touches files, sockets or clocks, and what it may use.
const PURE: (&str, &[&str]) = (
    "core",
    &[
        "thiserror",
        "serde",
        "loom",
        "shuttle",
        "etherparse",
        "base64",
        "sha1",
    ],
);

/// The crates outside `capture/` that need clang and libbpf, because they use a crate of `capture/`.
const NEED_CAPTURE: [&str; 6] = [
    "ringtap-vm",
    "ringtap",
    "ringtap-columns",
    "ringtap-probe",
    "ringtap-python",
    "ringtap-cli",
];

/// One crate of the workspace, as far as the rules need it.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    name: String,
    /// The folder below `crates/` in which its own folder lies.
    folder: String,
    uses: Vec<String>,
    dev_uses: Vec<String>,
    manifest: String,
}

pub(crate) fn crates(metadata: &Metadata) -> Vec<Crate> {
    let packages = metadata.workspace_packages().into_iter();
    packages
        .map(|package| {
            let (dev, normal): (Vec<_>, Vec<_>) = package
                .dependencies
                .iter()
                .partition(|dependency| dependency.kind == DependencyKind::Development);
            let names = |list: Vec<&cargo_metadata::Dependency>| {
                list.into_iter().map(|d| d.name.clone()).collect()
            };
            Crate {
                name: package.name.to_string(),
                folder: folder_of(package.manifest_path.as_std_path()),
                uses: names(normal),
                dev_uses: names(dev),
                manifest: std::fs::read_to_string(&package.manifest_path)
                    .expect("cargo just read it"),
            }
        })
        .collect()
}

/// The layer of a crate whose manifest lies at `crates/LAYER/CRATE/Cargo.toml`.
fn folder_of(manifest: &Path) -> String {
    let layer = manifest.ancestors().nth(2).and_then(Path::file_name);
    layer.unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn faults(crates: &[Crate]) -> Vec<String> {
    crates.iter().flat_map(faults_of).collect()
}

fn faults_of(one: &Crate) -> Vec<String> {
    let mut faults = Vec::new();
    if !has_workspace_lints(&one.manifest) {
        faults.push(format!(
            "{}: `[lints] workspace = true` is missing",
            one.name
        ));
    }
    let Some((place, layer)) = place_of(&one.name) else {
        if one.name != TEST_CRATE {
            faults.push(format!("{}: not in the table of crates", one.name));
        }
        return faults;
    };
    if one.folder != layer {
        faults.push(format!(
            "{}: belongs into crates/{layer}/, not {}",
            one.name, one.folder
        ));
    }
    for used in &one.uses {
        match place_of(used) {
            Some((_, "capture"))
                if layer != "capture" && !NEED_CAPTURE.contains(&one.name.as_str()) =>
            {
                faults.push(format!(
                    "{}: must build without clang: not {used}",
                    one.name
                ));
            }
            Some((lower, _)) if lower < place => {}
            Some(_) => faults.push(format!("{} stands below {used}, or beside it", one.name)),
            None if used == TEST_CRATE => {
                faults.push(format!("{}: {used} is for tests only", one.name));
            }
            None if layer == PURE.0 && !PURE.1.contains(&used.as_str()) => {
                faults.push(format!(
                    "{}: crates/{layer}/ does no input or output: not {used}",
                    one.name
                ));
            }
            None => {}
        }
    }
    for used in &one.dev_uses {
        // Tests may drive another crate of the same layer, and the crate itself with other features.
        if place_of(used).is_some_and(|(higher, of)| higher > place && of != layer) {
            faults.push(format!("{}: its tests may not use {used}", one.name));
        }
    }
    faults
}

/// The place of a crate in the order from the lowest layer, and its layer.
fn place_of(name: &str) -> Option<(usize, &'static str)> {
    let all = LAYERS
        .iter()
        .flat_map(|(layer, crates)| crates.iter().map(move |one| (*one, *layer)));
    let found = all.enumerate().find(|(_, (one, _))| *one == name);
    found.map(|(place, (_, layer))| (place, layer))
}

fn has_workspace_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.by_ref().any(|line| line == "[lints]")
        && lines
            .take_while(|line| !line.starts_with('['))
            .any(|line| line.replace(' ', "") == "workspace=true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, uses: &[&str], dev_uses: &[&str]) -> Vec<String> {
        let layer = place_of(name).map_or("test", |(_, layer)| layer);
        in_folder(layer, name, uses, dev_uses)
    }

    fn in_folder(folder: &str, name: &str, uses: &[&str], dev_uses: &[&str]) -> Vec<String> {
        let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        faults(&[Crate {
            name: name.to_owned(),
            folder: folder.to_owned(),
            uses: owned(uses),
            dev_uses: owned(dev_uses),
            manifest: "[lints]\nworkspace = true\n".to_owned(),
        }])
    }

    #[test]
    fn the_agreed_arrows_are_allowed() {
        assert!(one("ringtap-cli", &["ringtap-capture", "ringtap", "clap"], &[]).is_empty());
        let uses = ["ringtap-pool", "ringtap-device", "libbpf-rs"];
        assert!(one("ringtap-capture", &uses, &["ringtap-testkit"]).is_empty());
        assert!(
            one(
                "ringtap-pool",
                &["ringtap-filter", "thiserror"],
                &["proptest"]
            )
            .is_empty()
        );
    }

    #[test]
    fn an_arrow_upwards_or_against_the_order_of_a_layer_is_a_fault() {
        assert_eq!(one("ringtap-pool", &["ringtap-capture"], &[]).len(), 1);
        assert_eq!(one("ringtap-filter", &["ringtap-pool"], &[]).len(), 1);
        assert_eq!(one("ringtap-capture", &["ringtap-bridge"], &[]).len(), 1);
        assert_eq!(one("ringtap-client", &[], &["ringtap"]).len(), 1);
    }

    #[test]
    fn a_library_that_would_need_clang_is_a_fault() {
        assert_eq!(one("ringtap-c", &["ringtap-capture"], &[]).len(), 1);
        assert_eq!(one("ringtap-hub", &["ringtap-send"], &[]).len(), 1);
        assert!(one("ringtap", &["ringtap-capture"], &[]).is_empty());
    }

    #[test]
    fn input_and_output_in_the_core_is_a_fault() {
        assert_eq!(one("ringtap-pool", &["rustix"], &[]).len(), 1);
        assert_eq!(one("ringtap-filter", &["libc"], &[]).len(), 1);
    }

    #[test]
    fn the_testkit_outside_tests_is_a_fault() {
        assert_eq!(one("ringtap", &["ringtap-testkit"], &[]).len(), 1);
    }

    #[test]
    fn a_crate_that_is_unknown_or_in_another_layers_folder_is_a_fault() {
        assert_eq!(one("ringtap-surprise", &[], &[]).len(), 1);
        assert_eq!(in_folder("host", "ringtap-pool", &[], &[]).len(), 1);
    }

    #[test]
    fn a_crate_without_the_workspace_lints_is_a_fault() {
        assert!(!has_workspace_lints("[package]\nname = \"x\"\n"));
        assert!(!has_workspace_lints(
            "[lints]\n[dependencies]\nworkspace = true\n"
        ));
        assert!(has_workspace_lints(
            "[lints]\nworkspace = true\n[dependencies]\n"
        ));
    }
}
