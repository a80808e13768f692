// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables `[[rule]]` of `hub.toml`: rules for flows, for all readers of a group.

use ringtap_filter::flow::FlowAction;
use ringtap_filter::{FlowSelector, SelectorRule};
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
    seconds: Option<u64>,
}

/// Adds the rules to their groups.
pub(super) fn add(
    rules: Vec<FlowRuleTable>,
    groups: &mut [GroupText],
    text: &Text<'_>,
) -> Result<()> {
    for table in rules {
        let rule = table.rule(text)?;
        let name = table.group.get_ref();
        let mut named = groups.iter_mut().filter(|group| group.name() == name);
        let Some(group) = named.next() else {
            let missing = format!("there is no [[group]] \"{name}\" in this file");
            return Err(text.error("group", &table.group.span(), &missing));
        };
        let known = &mut group.group.rules;
        if known.iter().any(|one| one.flow == rule.flow) {
            let again = format!("group {name} has a rule for this flow above");
            return Err(text.error("flow", &table.flow.span(), &again));
        }
        known.push(rule);
        let rules = groups.iter().flat_map(|group| &group.group.rules);
        let patterns = rules.filter(|rule| rule.pattern_rule().is_some());
        if patterns.count() > MAX_PATTERN_RULES {
            let many = format!("the file has more than {MAX_PATTERN_RULES} rules for patterns");
            return Err(text.error("flow", &table.flow.span(), &many));
        }
    }
    Ok(())
}

impl FlowRuleTable {
    fn rule(&self, text: &Text<'_>) -> Result<SelectorRule> {
        let flow = text.value("flow", &self.flow, str::parse::<FlowSelector>)?;
        let cut = text.option("cutoff", self.cutoff.as_ref(), cutoff)?;
        let word = self.action.as_ref().map(|word| word.get_ref().as_str());
        let span = self.action.as_ref().unwrap_or(&self.flow).span();
        let action = match (word, cut, self.sample) {
            (None | Some("cutoff"), Some(cut), None) => FlowAction::CutOff(cut),
            (None | Some("sample"), None, Some(one_in)) => FlowAction::Sample(one_in),
            (Some("ignore"), None, None) => FlowAction::Ignore,
            _ => {
                let wrong = "expected action = \"ignore\", cutoff = \"20 packets\" or sample = 100";
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
        Ok(SelectorRule {
            flow,
            action,
            lasts_ns,
        })
    }
}
