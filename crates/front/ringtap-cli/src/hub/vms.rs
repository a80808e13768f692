// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[vm]]` in `hub.toml`: virtual machines that `ringtap vm attach -c FILE` serves.
//!
//! The hub only checks these tables: each machine has a process of its own.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use ringtap_device::Size;
use ringtap_vm::host::GroupOptions;
use ringtap_vnplug::host::Monitor;
use serde::Deserialize;
use toml::Spanned;

use super::config;

/// Size of the memory that a guest can read, unless the user gives another one.
pub(crate) const MEMORY: Size = Size(64 << 20);

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
    /// The groups of the hub at this socket for the machine.
    pub(super) fn resolve(&self, socket: PathBuf) -> Result<GroupOptions> {
        let monitor = match (&self.qmp, &self.libvirt) {
            (Some(socket), None) => Monitor::Qmp(socket.clone()),
            (None, Some(domain)) => Monitor::Libvirt(domain.clone()),
            _ => bail!("a VM has either qmp = \"SOCKET\" or libvirt = \"DOMAIN\""),
        };
        ensure!(!self.groups.is_empty(), "a VM without groups gets nothing");
        let memory = self.memory.as_ref().map(|text| text.parse::<Size>());
        Ok(GroupOptions {
            vm: name(self.name.get_ref())?,
            monitor,
            socket,
            groups: self.groups.clone(),
            memory_bytes: memory.transpose()?.unwrap_or(MEMORY).0,
            in_place: self.in_place,
        })
    }
}

/// The virtual machine of this name in a hub's file.
pub(crate) fn find(file: &Path, name: &str) -> Result<GroupOptions> {
    let vms = config::read(file)?.vms;
    let found = vms.into_iter().find(|vm| vm.vm == name);
    found.ok_or_else(|| anyhow!("{}: no [[vm]] {name}", file.display()))
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
