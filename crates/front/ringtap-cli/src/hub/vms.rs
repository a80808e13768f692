// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[vm]]` in `hub.toml`: virtual machines that `ringtap vm attach -c FILE` serves.
//!
//! The hub only checks these tables: each machine has a process of its own.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use ringtap_device::Size;
use ringtap_vnplug::host::Monitor;
use serde::Deserialize;
use toml::Spanned;

use super::config;

/// A virtual machine of the file, or of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfiguredVm {
    pub(crate) name: String,
    pub(crate) monitor: Monitor,
    pub(crate) groups: Vec<String>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) in_place: bool,
}

/// `[[vm]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VmTable {
    pub(super) name: Spanned<String>,
    qmp: Option<PathBuf>,
    libvirt: Option<String>,
    groups: Vec<String>,
    memory: Option<String>,
    #[serde(default)]
    in_place: bool,
}

impl VmTable {
    pub(super) fn resolve(&self) -> Result<ConfiguredVm> {
        let monitor = match (&self.qmp, &self.libvirt) {
            (Some(socket), None) => Monitor::Qmp(socket.clone()),
            (None, Some(domain)) => Monitor::Libvirt(domain.clone()),
            _ => bail!("a VM has either qmp = \"SOCKET\" or libvirt = \"DOMAIN\""),
        };
        ensure!(!self.groups.is_empty(), "a VM without groups gets nothing");
        let memory = self.memory.as_ref().map(|text| text.parse::<Size>());
        Ok(ConfiguredVm {
            name: name(self.name.get_ref())?,
            monitor,
            groups: self.groups.clone(),
            memory_bytes: memory.transpose()?.map(|size| size.0),
            in_place: self.in_place,
        })
    }
}

/// The virtual machine of this name in a hub's file, and the hub's socket if the file names one.
pub(crate) fn find(file: &Path, name: &str) -> Result<(ConfiguredVm, Option<PathBuf>)> {
    let config = config::read(file)?;
    let found = config.vms.into_iter().find(|vm| vm.name == name);
    let found = found.ok_or_else(|| anyhow!("{}: no [[vm]] {name}", file.display()))?;
    Ok((found, config.socket))
}

/// Parses the name of a virtual machine, which is a part of a file's name.
pub(crate) fn name(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = (1..=32).contains(&text.len()) && text.chars().all(is_plain);
    ensure!(
        is_name && !text.starts_with('.'),
        "\"{text}\" is no name: use at most 32 letters, digits, '-', '_' and '.'"
    );
    Ok(text.to_owned())
}
