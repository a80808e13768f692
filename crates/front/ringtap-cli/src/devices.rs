// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap devices`: what can stand after `-i` here.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ringtap_net::interface::{Interface, NicStamps};
use ringtap_net::netlink::xdp_features;
use serde::Serialize;

use crate::print;
use crate::seeing::HubSocketArgs;

/// Lists interfaces with driver, queues and XDP, and the groups of a running hub.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArgs {
    #[command(flatten)]
    hub: HubSocketArgs,

    /// One JSON object per device instead of a table.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap devices
  ringtap devices --json | jq -r 'select(.state == \"up\") | .device'";

/// One device.
#[derive(Debug, Serialize)]
struct DeviceLine {
    #[serde(rename = "type")]
    kind: &'static str,
    device: String,
    driver: String,
    state: String,
    queues: Option<u32>,
    xdp: String,
    /// Time stamp types, for -j.
    stamps: Vec<&'static str>,
}

impl DeviceLine {
    fn from_interface(interface: &Interface) -> Self {
        let kind = interface.kind.as_deref();
        let driver = interface.driver.as_deref().or(kind).unwrap_or("-");
        let state = match (interface.is_up, interface.has_carrier) {
            (false, _) => "down",
            (true, false) => "no carrier",
            (true, true) => "up",
        };
        let xdp = match xdp_features(interface.index) {
            None => "unknown",
            Some(it) if it.zero_copy() => "native, zero-copy",
            Some(it) if it.native() => "native",
            Some(_) => "generic",
        };
        Self {
            kind: "device",
            device: interface.name.clone(),
            driver: driver.to_owned(),
            state: state.to_owned(),
            queues: Some(interface.rx_queue_count),
            xdp: xdp.to_owned(),
            stamps: match interface.nic_stamps() {
                NicStamps::All => vec!["host", "adapter_unsynced"],
                _ => vec!["host"],
            },
        }
    }

    fn from_group(name: &str) -> Self {
        Self {
            kind: "device",
            device: format!("hub:{name}"),
            driver: "hub".to_owned(),
            state: "running".to_owned(),
            queues: None,
            xdp: "-".to_owned(),
            stamps: Vec::new(),
        }
    }
}

pub(crate) fn run(args: &DevicesArgs) -> Result<ExitCode> {
    let interfaces = Interface::list()?;
    let mut all: Vec<_> = interfaces.iter().map(DeviceLine::from_interface).collect();
    // Without a hub there are no groups to list.
    let status = args.hub.connect("devices").ok();
    let status = status.and_then(|hub| hub.status().ok());
    let groups = status.iter().flat_map(|status| &status.groups);
    all.extend(groups.map(|group| DeviceLine::from_group(&group.name)));
    if args.json {
        for one in &all {
            print::line(serde_json::to_string(one)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let widest = all
        .iter()
        .map(|one| one.device.len())
        .max()
        .unwrap_or(0)
        .max(6);
    let row = |[device, driver, state, queues, xdp, stamps]: [&str; 6]| {
        print::line(format!(
            "{device:widest$}  {driver:12}  {state:10}  {queues:>6}  {xdp:17}  {stamps}"
        ))
    };
    row(["device", "driver", "state", "queues", "XDP", "time stamps"])?;
    for one in &all {
        let queues = one
            .queues
            .map_or_else(|| "-".to_owned(), |count| count.to_string());
        let stamps = if one.stamps.is_empty() {
            "-".to_owned()
        } else {
            one.stamps.join(", ")
        };
        row([
            &one.device,
            &one.driver,
            &one.state,
            &queues,
            &one.xdp,
            &stamps,
        ])?;
    }
    Ok(ExitCode::SUCCESS)
}
