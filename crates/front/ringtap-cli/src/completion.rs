// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that shells offer for arguments: interfaces and groups of this machine.
//!
//! Invariants
//! - Completion changes nothing, and without a hub offers interfaces only.

use std::ffi::OsStr;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use ringtap_client::{Connection, default_socket};
use ringtap_device::DeviceSpec;
use ringtap_net::interface::Interface;

/// Interfaces, also behind a kind (`tap:eth0`), and groups of the machine's hub (`hub:all`).
pub(crate) fn devices() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let interfaces = interface_names();
        let names = match DeviceSpec::kind_of(&typed) {
            Some(kind) if kind.names_an_interface() => prefixed(&format!("{kind}:"), interfaces),
            _ => interfaces.into_iter().chain(group_devices()).collect(),
        };
        candidates(names, &typed)
    })
}

/// Interfaces.
pub(crate) fn interfaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(interface_names(), &typed.to_string_lossy()))
}

fn candidates(names: Vec<String>, typed: &str) -> Vec<CompletionCandidate> {
    let fitting = names.into_iter().filter(|name| name.starts_with(typed));
    fitting.map(CompletionCandidate::new).collect()
}

fn prefixed(kind: &str, names: Vec<String>) -> Vec<String> {
    names.iter().map(|name| format!("{kind}{name}")).collect()
}

fn interface_names() -> Vec<String> {
    let all = Interface::list().unwrap_or_default();
    all.into_iter().map(|interface| interface.name).collect()
}

fn group_devices() -> Vec<String> {
    let hub = Connection::open(&default_socket(), "completion").ok();
    let status = hub.and_then(|hub| hub.status().ok());
    let groups = status.map(|status| status.groups).unwrap_or_default();
    let names = groups.into_iter().map(|group| group.name).collect();
    prefixed("hub:", names)
}
