// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables `[[rule]]` of `hub.toml`: rules for single flows, for all readers of a group.

use ringtap_filter::flow::{FlowAction, FlowId, FlowRule};
use serde::Deserialize;
use toml::Spanned;

use super::Text;
use super::groups::{GroupText, Result, cutoff};

const NS_OF_SECOND: u64 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowRuleTable {
    group: Spanned<String>,
    flow: Spanned<String>,
    action: Option<Spanned<String>>,
    cutoff: Option<Spanned<String>>,
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
        if known.iter().any(|one| one.key == rule.key) {
            let again = format!("group {name} has a rule for this flow above");
            return Err(text.error("flow", &table.flow.span(), &again));
        }
        known.push(rule);
    }
    Ok(())
}

impl FlowRuleTable {
    fn rule(&self, text: &Text<'_>) -> Result<FlowRule> {
        let key = text.value("flow", &self.flow, str::parse::<FlowId>)?;
        let cut = text.option("cutoff", self.cutoff.as_ref(), cutoff)?;
        let word = self.action.as_ref().map(|word| word.get_ref().as_str());
        let action = match (word, cut) {
            (None | Some("cutoff"), Some(cut)) => FlowAction::CutOff(cut),
            (Some("ignore"), None) => FlowAction::Ignore,
            _ => {
                let span = self.action.as_ref().unwrap_or(&self.flow).span();
                let wrong = "expected action = \"ignore\", or cutoff = \"20 packets\"";
                return Err(text.error("action", &span, &wrong));
            }
        };
        let lasts_ns = self
            .seconds
            .map(|seconds| seconds.saturating_mul(NS_OF_SECOND));
        Ok(FlowRule {
            key,
            action,
            lasts_ns,
        })
    }
}
