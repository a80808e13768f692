// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which crate may depend on which: arrows go down only.

use cargo_metadata::{DependencyKind, Metadata};

/// Where a crate stands; a crate may use only what stands lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// The waist: pure, no input or output.
    Bottom,
    /// What processes share: memory, events, messages. Stands on the bottom.
    Shared,
    /// No arrows between these.
    Middle,
    /// Wires the middle together.
    Top,
    /// For tests only: anybody may have it as a dev-dependency, nobody otherwise.
    Test,
}

/// Every crate of the workspace.
const CRATES: [(&str, Layer); 12] = [
    ("ringtap-pool", Layer::Bottom),
    ("ringtap-filter", Layer::Bottom),
    ("ringtap-shared", Layer::Shared),
    ("ringtap-capture", Layer::Middle),
    ("ringtap-hub", Layer::Middle),
    ("ringtap-client", Layer::Middle),
    ("ringtap-probe", Layer::Middle),
    ("ringtap", Layer::Top),
    ("ringtap-c", Layer::Top),
    ("ringtap-pcap", Layer::Top),
    ("ringtap-python", Layer::Top),
    ("ringtap-testkit", Layer::Test),
];

/// What a crate at the bottom may use from outside: nothing that touches files, sockets or clocks.
const BOTTOM_MAY_USE: [&str; 2] = ["thiserror", "loom"];

/// One crate of the workspace, as far as the rules need it.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    name: String,
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
                uses: names(normal),
                dev_uses: names(dev),
                manifest: std::fs::read_to_string(&package.manifest_path)
                    .expect("cargo just read it"),
            }
        })
        .collect()
}

pub(crate) fn faults(crates: &[Crate]) -> Vec<String> {
    crates.iter().flat_map(faults_of).collect()
}

fn faults_of(one: &Crate) -> Vec<String> {
    let Some(layer) = layer_of(&one.name) else {
        return vec![format!("{}: not in the table of crates", one.name)];
    };
    let mut faults = Vec::new();
    for used in &one.uses {
        match layer_of(used) {
            Some(lower) if lower < layer => {}
            Some(lower) => faults.push(format!(
                "{} ({layer:?}) may not use {used} ({lower:?})",
                one.name
            )),
            None if layer == Layer::Bottom && !BOTTOM_MAY_USE.contains(&used.as_str()) => {
                faults.push(format!("{} stands at the bottom: not {used}", one.name));
            }
            None => {}
        }
    }
    for used in &one.dev_uses {
        // `lower == layer` holds for a crate that tests itself, too.
        if layer_of(used).is_some_and(|lower| lower >= layer && lower != Layer::Test) {
            faults.push(format!("{}: its tests may not use {used}", one.name));
        }
    }
    if !has_workspace_lints(&one.manifest) {
        faults.push(format!(
            "{}: `[lints] workspace = true` is missing",
            one.name
        ));
    }
    faults
}

fn layer_of(name: &str) -> Option<Layer> {
    let (_, layer) = CRATES.iter().find(|(known, _)| *known == name)?;
    Some(*layer)
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
        let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        faults(&[Crate {
            name: name.to_owned(),
            uses: owned(uses),
            dev_uses: owned(dev_uses),
            manifest: "[lints]\nworkspace = true\n".to_owned(),
        }])
    }

    #[test]
    fn the_agreed_arrows_are_allowed() {
        assert!(one("ringtap", &["ringtap-capture", "ringtap-pool", "clap"], &[]).is_empty());
        assert!(
            one(
                "ringtap-capture",
                &["ringtap-pool", "libbpf-rs"],
                &["ringtap-testkit"]
            )
            .is_empty()
        );
        assert!(one("ringtap-pool", &["thiserror", "loom"], &["proptest"]).is_empty());
    }

    #[test]
    fn an_arrow_between_middle_crates_is_a_fault() {
        assert_eq!(one("ringtap-hub", &["ringtap-capture"], &[]).len(), 1);
        assert_eq!(one("ringtap-hub", &[], &["ringtap-capture"]).len(), 1);
    }

    #[test]
    fn an_arrow_upwards_is_a_fault() {
        assert_eq!(one("ringtap-pool", &["ringtap-capture"], &[]).len(), 1);
        assert_eq!(one("ringtap-capture", &["ringtap"], &[]).len(), 1);
        assert_eq!(one("ringtap-pool", &["ringtap-filter"], &[]).len(), 1);
    }

    #[test]
    fn input_and_output_at_the_bottom_is_a_fault() {
        assert_eq!(one("ringtap-pool", &["rustix"], &[]).len(), 1);
        assert_eq!(one("ringtap-filter", &["libc"], &[]).len(), 1);
    }

    #[test]
    fn the_testkit_outside_tests_is_a_fault() {
        assert_eq!(one("ringtap", &["ringtap-testkit"], &[]).len(), 1);
    }

    #[test]
    fn an_unknown_crate_is_a_fault() {
        assert_eq!(one("ringtap-surprise", &[], &[]).len(), 1);
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
