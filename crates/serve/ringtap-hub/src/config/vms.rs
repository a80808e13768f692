// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[vm]]` in `hub.toml`: virtual machines that `ringtap vm attach -c FILE` serves.
//!
//! The hub only checks these tables: each machine has a process of its own.

use std::path::PathBuf;

use ringtap_device::Size;
use serde::Deserialize;
use toml::Spanned;

use super::groups::{HubConfigError, require};

/// Size of the memory that a guest can read, unless the user gives another one.
pub const MEMORY: Size = Size(64 << 20);

/// A virtual machine, and the groups of the hub that it may read.
#[derive(Clone, Debug, PartialEq)]
pub struct VmConfig {
    /// Its name.
    pub name: String,
    /// How it takes commands.
    pub machine: VmMachine,
    /// Groups that the guest may read.
    pub groups: Vec<String>,
    /// Size of the memory that the guest can read.
    pub memory: Size,
}

/// How a virtual machine takes commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmMachine {
    /// By QEMU's QMP socket.
    Qmp(PathBuf),
    /// As a domain of libvirt.
    Libvirt(String),
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
}

impl VmTable {
    /// Checks the table.
    pub(super) fn resolve(&self) -> Result<VmConfig, HubConfigError> {
        let machine = match (&self.qmp, &self.libvirt) {
            (Some(socket), None) => VmMachine::Qmp(socket.clone()),
            (None, Some(domain)) => VmMachine::Libvirt(domain.clone()),
            _ => {
                let text = "a VM has either qmp = \"SOCKET\" or libvirt = \"DOMAIN\"";
                return Err(HubConfigError::Invalid(text.to_owned()));
            }
        };
        require(!self.groups.is_empty(), || {
            "a VM without groups gets nothing".to_owned()
        })?;
        let memory = self.memory.as_ref().map(|text| text.parse::<Size>());
        let memory = memory
            .transpose()
            .map_err(|error| HubConfigError::Invalid(error.to_string()))?;
        Ok(VmConfig {
            name: vm_name(self.name.get_ref())?,
            machine,
            groups: self.groups.clone(),
            memory: memory.unwrap_or(MEMORY),
        })
    }
}

/// Parses the name of a virtual machine, which is a part of a file's name.
///
/// # Errors
///
/// Names the form of a name.
pub fn vm_name(text: &str) -> Result<String, HubConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = (1..=32).contains(&text.len()) && text.chars().all(is_plain);
    require(is_name && !text.starts_with('.'), || {
        format!("\"{text}\" is no name: use at most 32 letters, digits, '-', '_' and '.'")
    })?;
    Ok(text.to_owned())
}
