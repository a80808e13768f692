// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables `[[action]]` of the configuration.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, ConfigText};
use crate::action::{ActionPlan, ActionTrigger};
use crate::analysis::{AnalysisKind, AnalysisPlan};
use crate::condition::{Condition, Subject};
use crate::control::ProbeCommand;
use crate::plan::ProbePlan;

/// Shortest period of an action: the probe looks at its counters once a second.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionTable {
    #[serde(rename = "do")]
    what: Spanned<String>,
    name: Option<String>,
    analysis: Option<Spanned<String>>,
    period: Option<Spanned<String>>,
    every: Option<Spanned<String>>,
    when: Option<Spanned<String>>,
    until: Option<Spanned<String>>,
    #[serde(rename = "for")]
    lasts: Option<Spanned<String>>,
}

impl ConfigText<'_> {
    pub(super) fn action(
        &self,
        table: &ActionTable,
        plan: &ProbePlan,
    ) -> Result<ActionPlan, ConfigError> {
        let what = &table.what;
        let word = what.get_ref().as_str();
        let wrong = |why: &str| self.error("do", what, why);
        let named = self.analysis_of(table, &plan.analyses)?;
        let needs = || wrong("needs analysis = the name of one");
        let period = self.time("period", table.period.as_ref())?;
        if let (Some(period), false) = (&table.period, word == "period") {
            return Err(self.error("period", period, "means nothing without do = \"period\""));
        }
        let command = match word {
            "enable" => Some(ProbeCommand::Enable(named.ok_or_else(needs)?)),
            "disable" => Some(ProbeCommand::Disable(named.ok_or_else(needs)?)),
            "period" => {
                let period = period.ok_or_else(|| wrong("needs period = a time, like 1s"))?;
                Some(ProbeCommand::Period(named.ok_or_else(needs)?, period))
            }
            "snapshot" => Some(ProbeCommand::Snapshot(named)),
            "alarm" => None,
            _ => return Err(wrong("expected enable, disable, period, snapshot or alarm")),
        };
        let trigger = self.trigger(table, plan)?;
        let is_periodic = matches!(trigger, ActionTrigger::Every(_));
        if command.is_none() && (is_periodic || table.lasts.is_some()) {
            return Err(wrong(
                "an alarm has when, and may have until: leave every and for out",
            ));
        }
        let analysis = table.analysis.as_ref().map(|name| name.get_ref().as_str());
        let usual = [word, analysis.unwrap_or_default()].join(" ");
        Ok(ActionPlan {
            name: table
                .name
                .clone()
                .unwrap_or_else(|| usual.trim_end().to_owned()),
            command,
            trigger,
            lasts: self.seconds("for", table.lasts.as_ref())?,
        })
    }

    fn trigger(&self, table: &ActionTable, plan: &ProbePlan) -> Result<ActionTrigger, ConfigError> {
        let condition = |key: &str, text: &Spanned<String>| {
            let condition: Result<Condition, _> = text.get_ref().parse();
            let condition = condition.map_err(|why| self.error(key, text, &why.to_string()))?;
            match check(&condition.subject, plan) {
                Ok(()) => Ok(condition),
                Err(why) => Err(self.error(key, text, &why)),
            }
        };
        let until = table.until.as_ref();
        match (self.seconds("every", table.every.as_ref())?, &table.when) {
            (Some(every), None) if until.is_none() => Ok(ActionTrigger::Every(every)),
            (None, Some(when)) => Ok(ActionTrigger::When {
                when: condition("when", when)?,
                until: until.map(|until| condition("until", until)).transpose()?,
            }),
            _ => {
                let why = "needs either every = a time, or when = a condition, perhaps with until";
                Err(self.error("do", &table.what, why))
            }
        }
    }

    fn seconds(
        &self,
        key: &str,
        value: Option<&Spanned<String>>,
    ) -> Result<Option<Duration>, ConfigError> {
        let time = self.time(key, value)?;
        match (time, value) {
            (Some(time), Some(value)) if time < SHORTEST => {
                Err(self.error(key, value, "expected 1s or longer"))
            }
            _ => Ok(time),
        }
    }

    fn analysis_of(
        &self,
        table: &ActionTable,
        analyses: &[AnalysisPlan],
    ) -> Result<Option<String>, ConfigError> {
        let Some(name) = &table.analysis else {
            return Ok(None);
        };
        match known(name.get_ref(), analyses) {
            Ok(found) if table.period.is_some() && matches!(found.kind, AnalysisKind::Flows(_)) => {
                let why = "flow records have no period: change idle and active of this analysis";
                Err(self.error("analysis", name, why))
            }
            Ok(_) => Ok(Some(name.get_ref().clone())),
            Err(why) => Err(self.error("analysis", name, &why)),
        }
    }
}

/// Refuses values that no result of the analysis has.
fn check(subject: &Subject, plan: &ProbePlan) -> Result<(), String> {
    let Subject::Value(analysis, value) = subject else {
        return Ok(());
    };
    let names = match plan.libraries.iter().any(|one| one.name == *analysis) {
        true => &["value"][..],
        false => known(analysis, &plan.analyses)?.kind.value_names(),
    };
    let is_rate = |source: &str| names.contains(&source);
    let is_known = match value.as_str() {
        "bps" => is_rate("bytes"),
        "pps" => is_rate("packets"),
        name => names.contains(&name),
    };
    match (is_known, names) {
        (true, _) => Ok(()),
        (false, []) => Err(format!("\"{analysis}\" has no values that can be compared")),
        (false, _) => Err(format!(
            "\"{analysis}\" has the values {}; bps and pps are computed from bytes and packets",
            names.join(", ")
        )),
    }
}

fn known<'a>(name: &str, analyses: &'a [AnalysisPlan]) -> Result<&'a AnalysisPlan, String> {
    let found = analyses.iter().find(|one| one.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = analyses.iter().map(|one| one.name.as_str()).collect();
        format!(
            "there is no analysis \"{name}\"; the analyses are: {}",
            names.join(", ")
        )
    })
}
