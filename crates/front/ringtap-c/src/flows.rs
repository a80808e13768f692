// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a session, in the structures of `include/ringtap.h`.

use std::collections::VecDeque;
use std::ffi::CString;
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Deadline, ReaderRules};
use ringtap_filter::flow::{CutOff, FlowAction, FlowPacket, FlowRule};
use ringtap_filter::hash::Link;
use ringtap_filter::{FlowSelector, GroupName, GroupNameError, LinkType};
use ringtap_ipc::protocol::{FlowDirectionCounts, FlowEndReason, FlowEvent};

use crate::error::CallError;
use crate::session::c_text;
use crate::types::{self, CFlowDirection, CFlowEvent, CFlowRule};

const NS_OF_MS: u64 = 1_000_000;
/// Longest time of one question for events.
const LONG: Duration = Duration::from_secs(3600);

/// Ends of flows that the hub told and the program has not taken.
#[derive(Default)]
pub(crate) struct FlowSession {
    waiting: VecDeque<FlowEvent>,
    lost: u64,
    /// Text of the last event.
    flow: CString,
}

/// Parses the flow or pattern of a rule.
pub(crate) fn flow(text: &str) -> Result<FlowSelector, CallError> {
    text.parse::<FlowSelector>()
        .map_err(|error| CallError::argument(error.to_string()))
}

/// Parses the name of a group.
pub(crate) fn group(name: &str) -> Result<GroupName, CallError> {
    name.parse()
        .map_err(|error: GroupNameError| CallError::argument(error.to_string()))
}

/// Checks a rule of the program, with the texts of its flow and group.
pub(crate) fn rule(
    text: &str,
    name: Option<&str>,
    given: &CFlowRule,
) -> Result<FlowRule<FlowSelector>, CallError> {
    let limit = |number: u64| (number > 0).then_some(number);
    let cut = CutOff {
        packets: limit(given.packets),
        bytes: limit(given.bytes),
    };
    let action = match given.action {
        types::IGNORE if cut == CutOff::default() => FlowAction::Ignore,
        types::CUTOFF => FlowAction::CutOff(cut),
        types::SAMPLE if cut.bytes.is_none() => FlowAction::Sample {
            one_in: given.packets,
        },
        types::MIRROR | types::FORWARD => {
            let group = self::group(name.ok_or_else(|| CallError::null("group"))?)?;
            if given.action == types::MIRROR {
                FlowAction::Mirror { group }
            } else {
                FlowAction::Forward { group }
            }
        }
        types::SAMPLE => {
            let text = "RINGTAP_SAMPLE is one packet in `packets`: `bytes` is 0";
            return Err(CallError::argument(text));
        }
        types::IGNORE => {
            let text = "RINGTAP_IGNORE has no limits: use RINGTAP_CUTOFF with packets or bytes";
            return Err(CallError::argument(text));
        }
        other => {
            let known = "RINGTAP_IGNORE, _CUTOFF, _SAMPLE, _MIRROR or _FORWARD";
            let text = format!("action {other} is invalid: expected {known}");
            return Err(CallError::argument(text));
        }
    };
    Ok(FlowRule {
        flow: flow(text)?,
        action,
        lasts_ns: limit(given.lasts_ms.saturating_mul(NS_OF_MS)),
    })
}

/// The rule that ignores a packet's flow; `None` if the packet belongs to none.
pub(crate) fn ignoring(data: &[u8], wire_bytes: u32, link_type: LinkType) -> Option<FlowRule> {
    let link = Link::from_link_type(link_type)?;
    let packet = FlowPacket::from_bytes(data, wire_bytes, link)?;
    Some(FlowRule {
        flow: packet.key,
        action: FlowAction::Ignore,
        lasts_ns: None,
    })
}

impl FlowSession {
    /// The next event; its text is valid until the next call.
    pub(crate) fn next(
        &mut self,
        connection: &Connection,
        deadline: Deadline,
        size: usize,
    ) -> Result<Option<CFlowEvent>, CallError> {
        if self.waiting.is_empty() {
            let timeout = match deadline {
                Deadline::Now => Duration::ZERO,
                Deadline::At(at) => at.saturating_duration_since(Instant::now()),
                Deadline::Never => LONG,
            };
            let told = ReaderRules::new(connection).events(timeout)?;
            self.waiting.extend(told.events);
            self.lost += told.lost;
        }
        let Some(event) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.flow = c_text(&event.flow.to_string());
        Ok(Some(CFlowEvent {
            size,
            flow: self.flow.as_ptr(),
            why: number(event.why),
            counted: event.directions.is_some().into(),
            lost_before: std::mem::take(&mut self.lost),
            directions: event.directions.unwrap_or_default().map(direction),
        }))
    }
}

fn number(why: FlowEndReason) -> u32 {
    match why {
        FlowEndReason::Ended => types::FLOW_ENDED,
        FlowEndReason::Idle => types::FLOW_IDLE,
        FlowEndReason::Restarted => types::FLOW_RESTARTED,
        FlowEndReason::Evicted => types::FLOW_EVICTED,
        FlowEndReason::Removed => types::FLOW_REMOVED,
    }
}

fn direction(counts: FlowDirectionCounts) -> CFlowDirection {
    CFlowDirection {
        packets: counts.packets,
        bytes: counts.bytes,
        first_ns: counts.first_ns,
        last_ns: counts.last_ns,
        tcp_flags: counts.tcp_flags.into(),
        reserved: 0,
    }
}
