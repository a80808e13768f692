// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the words of a flow rule.

use anyhow::{Context as _, Result};
use ringtap_device::cut_off;
use ringtap_filter::flow::{FlowAction, FlowId, FlowRule};

use crate::UsageError;
use crate::reading;

const EXPECTED: &str = "expected a flow and an action, like `tcp 10.0.0.1:80 10.0.0.2:5000 ignore`, or \
                        `… cutoff \"20 packets\" for 60s`";
const WITH_PORTS: [u8; 3] = [6, 17, 132];

fn usage(text: impl ToString) -> UsageError {
    UsageError(text.to_string())
}

/// Parses the words of a flow.
pub(super) fn flow(words: &[String]) -> Result<FlowId> {
    let flow: FlowId = words.join(" ").parse().map_err(usage)?;
    let lacks_port = flow.ends().iter().any(|(_, port)| *port == 0);
    if lacks_port && WITH_PORTS.contains(&flow.protocol()) {
        let text = format!(
            "{flow}: both ends of this protocol have ports: write 10.0.0.1:80 or [fe80::1]:80"
        );
        return Err(usage(text).into());
    }
    Ok(flow)
}

/// Parses the words of a rule.
pub(super) fn rule(words: &[String]) -> Result<FlowRule> {
    // A shell keeps quoted words together.
    let words: Vec<String> = words
        .iter()
        .flat_map(|word| word.split_whitespace().map(str::to_owned))
        .collect();
    let is_action = |word: &String| matches!(word.as_str(), "ignore" | "cutoff");
    let at = words.iter().position(is_action);
    let at = at.ok_or_else(|| usage(EXPECTED))?;
    let (named, action) = words.split_at(at);
    let time = action.iter().position(|word| word == "for");
    let (action, time) = action.split_at(time.unwrap_or(action.len()));
    let key = flow(named)?;
    let action = match action {
        [word] if word == "ignore" => FlowAction::Ignore,
        [word, limit @ ..] if word == "cutoff" => {
            FlowAction::CutOff(cut_off(&limit.join(" ")).map_err(usage)?)
        }
        _ => return Err(usage(EXPECTED).into()),
    };
    let lasts_ns = match time {
        [] => None,
        [_, time] => Some(nanoseconds(time)?),
        _ => return Err(usage("expected one time after `for`, like `for 60s`").into()),
    };
    Ok(FlowRule {
        key,
        action,
        lasts_ns,
    })
}

fn nanoseconds(text: &str) -> Result<u64> {
    let seconds = text.strip_suffix('s').unwrap_or(text);
    let time = reading::seconds(seconds)
        .map_err(|error| usage(format!("\"{text}\" after `for`: {error}, like 60s")))?;
    u64::try_from(time.as_nanos()).context("the time is too long")
}

#[cfg(test)]
mod tests {
    use ringtap_filter::flow::CutOff;

    use super::*;

    fn parsed(text: &str) -> Result<FlowRule> {
        rule(&text.split('|').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_rule_is_a_flow_an_action_and_a_time() {
        let ignored = parsed("tcp|10.0.0.1:80|10.0.0.2:5000|ignore").unwrap();
        assert_eq!(ignored.key.to_string(), "tcp 10.0.0.1:80 10.0.0.2:5000");
        assert_eq!(
            (ignored.action, ignored.lasts_ns),
            (FlowAction::Ignore, None)
        );
        let cut = parsed("udp|10.0.0.1:80|10.0.0.2:5000|vlan|7|cutoff|20 packets|for|60s").unwrap();
        assert_eq!(cut.key.vlans(), [7, 0]);
        let packets = CutOff {
            packets: Some(20),
            bytes: None,
        };
        assert_eq!(cut.action, FlowAction::CutOff(packets));
        assert_eq!(cut.lasts_ns, Some(60_000_000_000));
        let one = parsed("udp 10.0.0.1:80 10.0.0.2:5000 cutoff 20 packets for 60s").unwrap();
        assert_eq!(one.action, cut.action);
    }

    #[test]
    fn words_that_are_no_rule_are_refused_with_the_reason() {
        for (text, reason) in [
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000",
                "expected a flow and an action",
            ),
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000|ignore|now",
                "expected a flow and an action",
            ),
            ("tcp|10.0.0.1|10.0.0.2:5000|ignore", "have ports"),
            (
                "icmp|10.0.0.1:80|10.0.0.2|ignore",
                "protocol 1 has no ports",
            ),
            (
                "tcp|10.0.0.1:80|[fe80::1]:80|ignore",
                "different IP versions",
            ),
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000|cutoff|much",
                "\"much\" is no cut-off",
            ),
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000|ignore|for|0s",
                "\"0s\" after `for`",
            ),
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000|ignore|for",
                "one time after `for`",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.is::<UsageError>(), "{text}");
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }
}
