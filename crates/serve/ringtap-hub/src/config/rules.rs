// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables `[[rule]]` of `hub.toml`: rules for flows, for all readers of a group.

use ringtap_filter::flow::{FlowAction, FlowRule};
use ringtap_filter::{FlowSelector, GroupName};
use serde::Deserialize;
use toml::Spanned;

use super::Text;
use super::groups::{GroupText, Result, cutoff};
use crate::membership::MAX_PATTERN_RULES;

const NS_OF_SECOND: u64 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowRuleTable {
    group: Spanned<String>,
    flow: Spanned<String>,
    action: Option<Spanned<String>>,
    cutoff: Option<Spanned<String>>,
    sample: Option<u64>,
    to: Option<Spanned<String>>,
    seconds: Option<u64>,
}

/// Adds the rules to their groups.
pub(super) fn add(
    rules: Vec<FlowRuleTable>,
    groups: &mut [GroupText],
    text: &Text<'_>,
) -> Result<()> {
    let by_rule = groups.iter().filter(|group| group.group.by_rule);
    let by_rule: Vec<_> = by_rule.map(|group| group.name().to_owned()).collect();
    for table in rules {
        let rule = table.rule(text)?;
        if let (Some(to), Some(span)) = (rule.action.group(), &table.to)
            && !by_rule.iter().any(|name| name == to.as_str())
        {
            let wrong = format!("there is no [[group]] \"{to}\" with by_rule = true in this file");
            return Err(text.error("to", &span.span(), &wrong));
        }
        let name = table.group.get_ref();
        let mut named = groups.iter_mut().filter(|group| group.name() == name);
        let Some(group) = named.next() else {
            let missing = format!("there is no [[group]] \"{name}\" in this file");
            return Err(text.error("group", &table.group.span(), &missing));
        };
        if group.group.by_rule {
            let wrong = format!("rules of other groups choose the packets of {name}");
            return Err(text.error("group", &table.group.span(), &wrong));
        }
        let known = &mut group.group.rules;
        if known.iter().any(|one| one.flow == rule.flow) {
            let again = format!("group {name} has a rule for this flow above");
            return Err(text.error("flow", &table.flow.span(), &again));
        }
        known.push(rule);
        let rules = groups.iter().flat_map(|group| &group.group.rules);
        let patterns = rules.filter(|rule| rule.for_pattern().is_some());
        if patterns.count() > MAX_PATTERN_RULES {
            let many = format!("the file has more than {MAX_PATTERN_RULES} rules for patterns");
            return Err(text.error("flow", &table.flow.span(), &many));
        }
    }
    Ok(())
}

impl FlowRuleTable {
    fn rule(&self, text: &Text<'_>) -> Result<FlowRule<FlowSelector>> {
        let flow = text.value("flow", &self.flow, str::parse::<FlowSelector>)?;
        let cut = text.option("cutoff", self.cutoff.as_ref(), cutoff)?;
        let word = self.action.as_ref().map(|word| word.get_ref().as_str());
        let span = self.action.as_ref().unwrap_or(&self.flow).span();
        let to = text.option("to", self.to.as_ref(), str::parse::<GroupName>)?;
        let action = match (word, cut, self.sample, to) {
            (None | Some("cutoff"), Some(cut), None, None) => FlowAction::CutOff(cut),
            (None | Some("sample"), None, Some(one_in), None) => FlowAction::Sample { one_in },
            (Some("ignore"), None, None, None) => FlowAction::Ignore,
            (Some("mirror"), None, None, Some(group)) => FlowAction::Mirror { group },
            (Some("forward"), None, None, Some(group)) => FlowAction::Forward { group },
            _ => {
                let wrong = "expected action = \"ignore\", cutoff = \"20 packets\", sample = 100, or action = \
                             \"mirror\" or \"forward\" with to = \"GROUP\"";
                return Err(text.error("action", &span, &wrong));
            }
        };
        if let Err(error) = action.check() {
            return Err(text.error("action", &span, &error));
        }
        if self.seconds.is_some() && matches!(flow, FlowSelector::Pattern(_)) {
            let endless = "a rule of the file for a pattern has no end: leave `seconds` out";
            return Err(text.error("flow", &self.flow.span(), &endless));
        }
        let lasts_ns = self
            .seconds
            .map(|seconds| seconds.saturating_mul(NS_OF_SECOND));
        Ok(FlowRule {
            flow,
            action,
            lasts_ns,
        })
    }
}
