// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line about a flow that the inline reader of a bridge decided.

use anyhow::Result;
use ringtap_bridge::{DecidedFlow, FlowFate};
use ringtap_explain::text;
use serde_json::json;

/// Describes a decided flow, with its counts.
pub(super) fn line(flow: &DecidedFlow, is_json: bool) -> Result<String> {
    let fate = match flow.fate {
        Some(FlowFate::Pass) => "pass",
        Some(FlowFate::Drop) => "drop",
        None => "ended",
    };
    let [first, second] = flow.directions;
    if !is_json {
        let [first, second] = [first, second].map(|it| text::packets(it.packets));
        return Ok(format!(
            "flow {} ({fate}): {first}, back {second}",
            flow.key
        ));
    }
    let directions = [first, second]
        .map(|it| json!({ "packets": it.packets, "bytes": it.bytes, "tcp_flags": it.flags }));
    let ends = flow
        .key
        .ends()
        .map(|(address, port)| json!({ "address": address, "port": port }));
    let line = json!({
        "type": "flow",
        "verdict": fate,
        "protocol": flow.key.protocol(),
        "vlans": flow.key.vlans(),
        "ends": ends,
        "directions": directions,
    });
    Ok(serde_json::to_string(&line)?)
}
