// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the words of a flow rule.

use anyhow::{Context as _, Result};
use ringtap_device::cut_off;
use ringtap_filter::FlowSelector;
use ringtap_filter::flow::{FlowAction, FlowRule};

use crate::UsageError;
use crate::reading;

const EXPECTED: &str = "expected a flow or a pattern and an action, like `tcp 10.0.0.1:80 10.0.0.2:5000 ignore`, or \
                        `udp net 10.0.0.0/8 port 53 cutoff \"20 packets\" for 60s`";

/// First words of actions.
const ACTIONS: [&str; 5] = ["ignore", "cutoff", "sample", "mirror", "forward"];

fn usage(text: impl ToString) -> UsageError {
    UsageError(text.to_string())
}

/// Parses the words of a flow or a pattern.
pub(super) fn flow(words: &[String]) -> Result<FlowSelector> {
    let selector: FlowSelector = words.join(" ").parse().map_err(usage)?;
    if let FlowSelector::Flow(flow) = &selector
        && flow.lacks_port()
    {
        let text = format!(
            "{flow}: both ends of this protocol have ports: write 10.0.0.1:80 or [fe80::1]:80"
        );
        return Err(usage(text).into());
    }
    Ok(selector)
}

/// Parses the words of a rule.
pub(super) fn rule(words: &[String]) -> Result<FlowRule<FlowSelector>> {
    // A shell keeps quoted words together.
    let words: Vec<String> = words
        .iter()
        .flat_map(|word| word.split_whitespace().map(str::to_owned))
        .collect();
    let at = words
        .iter()
        .position(|word| ACTIONS.contains(&word.as_str()));
    let at = at.ok_or_else(|| usage(EXPECTED))?;
    let (named, action) = words.split_at(at);
    let time = action.iter().position(|word| word == "for");
    let (action, time) = action.split_at(time.unwrap_or(action.len()));
    let flow = flow(named)?;
    let action = match action {
        [word] if word == "ignore" => FlowAction::Ignore,
        [word, limit @ ..] if word == "cutoff" => {
            FlowAction::CutOff(cut_off(&limit.join(" ")).map_err(usage)?)
        }
        [word, one_in] if word == "sample" => {
            let wrong = |_| usage(format!("\"{one_in}\" after `sample` is no number"));
            FlowAction::Sample {
                one_in: one_in.parse().map_err(wrong)?,
            }
        }
        [word, group] if word == "mirror" => FlowAction::Mirror {
            group: group.parse().map_err(usage)?,
        },
        [word, group] if word == "forward" => FlowAction::Forward {
            group: group.parse().map_err(usage)?,
        },
        _ => return Err(usage(EXPECTED).into()),
    };
    action.check().map_err(usage)?;
    let lasts_ns = match time {
        [] => None,
        [_, time] => Some(nanoseconds(time)?),
        _ => return Err(usage("expected one time after `for`, like `for 60s`").into()),
    };
    Ok(FlowRule {
        flow,
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

    fn parsed(text: &str) -> Result<FlowRule<FlowSelector>> {
        rule(&text.split('|').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_rule_is_a_flow_an_action_and_a_time() {
        let ignored = parsed("tcp|10.0.0.1:80|10.0.0.2:5000|ignore").unwrap();
        assert_eq!(ignored.flow.to_string(), "tcp 10.0.0.1:80 10.0.0.2:5000");
        assert_eq!(
            (ignored.action, ignored.lasts_ns),
            (FlowAction::Ignore, None)
        );
        let cut = parsed("udp|10.0.0.1:80|10.0.0.2:5000|vlan|7|cutoff|20 packets|for|60s").unwrap();
        assert_eq!(cut.flow.to_string(), "udp 10.0.0.1:80 10.0.0.2:5000 vlan 7");
        let packets = CutOff {
            packets: Some(20),
            bytes: None,
        };
        assert_eq!(cut.action, FlowAction::CutOff(packets));
        assert_eq!(cut.lasts_ns, Some(60_000_000_000));
        let one = parsed("udp 10.0.0.1:80 10.0.0.2:5000 cutoff 20 packets for 60s").unwrap();
        assert_eq!(one.action, cut.action);
        let sampled = parsed("tcp net 10.0.0.0/8 port 8000-8999 sample 100").unwrap();
        let pattern = FlowSelector::Pattern("tcp net 10.0.0.0/8 port 8000-8999".parse().unwrap());
        assert_eq!(
            (sampled.flow, sampled.action),
            (pattern, FlowAction::Sample { one_in: 100 })
        );
        let mirrored = parsed("tcp|10.0.0.1:80|10.0.0.2:5000|mirror|suspects|for|1s").unwrap();
        let group = "suspects".parse().unwrap();
        assert_eq!(mirrored.action, FlowAction::Mirror { group });
        let forwarded = parsed("any vlan 7 forward suspects").unwrap();
        assert_eq!(forwarded.action, FlowAction::Forward { group });
    }

    #[test]
    fn words_that_are_no_rule_are_refused_with_the_reason() {
        for (text, reason) in [
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000",
                "expected a flow or a pattern and an action",
            ),
            (
                "tcp|10.0.0.1:80|10.0.0.2:5000|ignore|now",
                "expected a flow or a pattern and an action",
            ),
            ("tcp|10.0.0.1|10.0.0.2:5000|ignore", "have ports"),
            ("tcp|net|10.0.0.1/8|ignore", "the network is 10.0.0.0/8"),
            ("any|sample|1", "one packet in 2 to"),
            ("any|sample|x", "\"x\" after `sample` is no number"),
            ("any|sample", "expected a flow or a pattern and an action"),
            ("any|mirror", "expected a flow or a pattern and an action"),
            ("any|mirror|a:b", "\"a:b\" is no name for a group"),
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
