// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a virtual machine, as `ringtap vm list` gets it from the machine's process.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::messages::GuestCounters;

/// A virtual machine as `ringtap vm list --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReport {
    /// Always `vm`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Process id of `ringtap vm attach`.
    pub pid: u32,
    /// QMP socket of the virtual machine; absent for a domain of libvirt.
    pub qmp: Option<PathBuf>,
    /// The hub.
    pub hub: PathBuf,
    /// Whether an agent in the guest is connected.
    pub agent: bool,
    /// The devices.
    pub devices: Vec<DeviceReport>,
    /// The groups that the guest may read.
    pub groups: Vec<GroupReport>,
    /// Messages of the guest that were damaged or of an unknown form.
    pub refused_messages: u64,
    /// Answers that the guest did not take.
    pub lost_answers: u64,
    /// What would be faster, or is missing.
    pub advice: Vec<String>,
}

/// A device of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// `pool` or `control`.
    pub device: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// How the guest maps it; absent: not mapped.
    pub mapping: Option<String>,
    /// Whether signals interrupt the guest.
    pub interrupts: bool,
}

/// A group that a guest may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub group: String,
    /// Name of the subscription at the hub; absent: the guest has not subscribed.
    pub reader: Option<String>,
    /// Why the filter does not run in the host's kernel; absent if it does.
    pub not_in_source: Option<String>,
    /// The counters of all subscriptions since the VM was attached.
    pub counters: GuestCounters,
    /// Packets of `counters.copied` that no agent took: it ended, or did not read them before the devices were
    /// unplugged.
    #[serde(default)]
    pub not_taken: u64,
}
