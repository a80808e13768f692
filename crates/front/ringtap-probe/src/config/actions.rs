// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables `[[action]]` of the configuration.

use std::time::Duration;

use super::ConfigError;
use super::keys::KeyTable;
use crate::action::{ActionPlan, ActionTrigger, ProbeCommand};
use crate::analysis::AnalysisKind;
use crate::condition::{Condition, ConditionError, Subject};
use crate::plan::{PlanError, ProbePlan};

/// Shortest period of an action: the probe looks at its counters once a second.
const SHORTEST: Duration = Duration::from_secs(1);

/// Reason why a key of an action has a value that does not suit the plan.
#[derive(Debug, thiserror::Error)]
enum ActionError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Condition(#[from] ConditionError),
    #[error("flow records have no period: change idle and active of this analysis")]
    NoPeriod,
    #[error("\"{0}\" has no values that can be compared")]
    NoValues(String),
    #[error(
        "\"{analysis}\" has the values {names}; bps and pps are computed from bytes and packets"
    )]
    OtherValues { analysis: String, names: String },
}

/// The action of a table, for a plan with all its analyses.
pub(super) fn action(
    table: &mut KeyTable<'_>,
    plan: &ProbePlan,
) -> Result<ActionPlan, ConfigError> {
    let word = table.text("do")?.unwrap_or_default();
    let name = table.text("name")?;
    let analysis = table.parsed("analysis", |name| match plan.analysis(name) {
        Ok(one) if word == "period" && matches!(one.kind, AnalysisKind::Flows(_)) => {
            Err(ActionError::NoPeriod)
        }
        Ok(_) => Ok(name),
        Err(why) => Err(why.into()),
    })?;
    let period = table.time("period")?;
    if period.is_some() && word != "period" {
        return Err(table.error("period", "means nothing without do = \"period\""));
    }
    let trigger = trigger(table, plan)?;
    let lasts = table.long_time("for", SHORTEST)?;
    table.finish("[[action]]")?;
    let wrong = |why: &str| table.error("do", why);
    let needs = || wrong("needs analysis = the name of one");
    let named = analysis.map(str::to_owned);
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
    let is_periodic = matches!(trigger, ActionTrigger::Every(_));
    if command.is_none() && (is_periodic || lasts.is_some()) {
        return Err(wrong(
            "an alarm has when, and may have until: leave every and for out",
        ));
    }
    let usual = [word, analysis.unwrap_or_default()].join(" ");
    Ok(ActionPlan {
        name: name.unwrap_or(usual.trim_end()).to_owned(),
        command,
        trigger,
        lasts,
    })
}

fn trigger(table: &mut KeyTable<'_>, plan: &ProbePlan) -> Result<ActionTrigger, ConfigError> {
    let condition = |text: &str| {
        let condition: Condition = text.parse()?;
        check(&condition.subject, plan)?;
        Ok::<_, ActionError>(condition)
    };
    let every = table.long_time("every", SHORTEST)?;
    let when = table.parsed("when", condition)?;
    let until = table.parsed("until", condition)?;
    match (every, when, until) {
        (Some(every), None, None) => Ok(ActionTrigger::Every(every)),
        (None, Some(when), until) => Ok(ActionTrigger::When { when, until }),
        _ => {
            let why = "needs either every = a time, or when = a condition, perhaps with until";
            Err(table.error("do", why))
        }
    }
}

/// Refuses values that no result of the analysis has.
fn check(subject: &Subject, plan: &ProbePlan) -> Result<(), ActionError> {
    let Subject::Value(analysis, value) = subject else {
        return Ok(());
    };
    let names = if plan.libraries.iter().any(|one| one.name == *analysis) {
        &["value"][..]
    } else {
        plan.analysis(analysis)?.kind.value_names()
    };
    let is_rate = |source: &str| names.contains(&source);
    let is_known = match value.as_str() {
        "bps" => is_rate("bytes"),
        "pps" => is_rate("packets"),
        name => names.contains(&name),
    };
    match (is_known, names) {
        (true, _) => Ok(()),
        (false, []) => Err(ActionError::NoValues(analysis.clone())),
        (false, _) => Err(ActionError::OtherValues {
            analysis: analysis.clone(),
            names: names.join(", "),
        }),
    }
}
