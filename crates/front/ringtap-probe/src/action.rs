// SPDX-License-Identifier: MIT OR Apache-2.0
//! The *periodic action manager*: changes a running probe by time and by condition.
//!
//! Invariants
//! - A condition acts once when it begins to hold, and not again before it has ended.
//! - Time is that of the machine's clock, not of packets.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// A command to a running probe: of an action, or of `ringtap probe ctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeCommand {
    /// Switch the analysis of this name on.
    Enable(String),
    /// Switch the analysis of this name off; its results so far appear.
    Disable(String),
    /// Change the time between the results of this analysis.
    Period(String, Duration),
    /// Give the results of this analysis now, or of all, without those of flows.
    Snapshot(Option<String>),
    /// Read the configuration again.
    Reload,
    /// Give the ledger and the analyses as JSON.
    Status,
}

/// An action as the user asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionPlan {
    /// Name in messages, and of an alarm in results.
    pub name: String,
    /// The command; `None`: the action only raises the alarm.
    pub command: Option<ProbeCommand>,
    /// When to do it.
    pub trigger: ActionTrigger,
    /// Undo it after this time.
    pub lasts: Option<Duration>,
}

/// When an action acts.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionTrigger {
    /// Again and again after this time.
    Every(Duration),
    /// When a condition begins to hold.
    When {
        /// The condition.
        when: Condition,
        /// The end of the condition; by default when it holds no more.
        until: Option<Condition>,
    },
}

/// Work that an action requests now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionEvent {
    /// Carry out the command of this action.
    Do(ProbeCommand),
    /// Undo the command.
    Undo(ProbeCommand),
    /// An alarm begins or ends, with the value that was compared.
    Alarm { raised: bool, value: f64 },
}

/// All actions and their states.
#[derive(Default)]
pub(crate) struct ActionManager {
    actions: Vec<ActionState>,
}

struct ActionState {
    plan: ActionPlan,
    due: Instant,
    is_raised: bool,
    undo_at: Option<Instant>,
}

impl ActionManager {
    /// Changes to other actions; those that stay the same keep their states.
    pub(crate) fn replace(&mut self, plans: &[ActionPlan], now: Instant) {
        let mut old = std::mem::take(&mut self.actions);
        self.actions = plans
            .iter()
            .map(|plan| match old.iter().position(|one| one.plan == *plan) {
                Some(at) => old.swap_remove(at),
                None => ActionState {
                    due: match plan.trigger {
                        ActionTrigger::Every(period) => now + period,
                        ActionTrigger::When { .. } => now,
                    },
                    plan: plan.clone(),
                    is_raised: false,
                    undo_at: None,
                },
            })
            .collect();
    }

    /// Looks at the clock, and at the conditions whose values are known now.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        value: impl Fn(&Condition) -> Option<f64>,
    ) -> Vec<(String, ActionEvent)> {
        let mut events = Vec::new();
        for action in &mut self.actions {
            if action.undo_at.is_some_and(|at| now >= at) {
                action.undo_at = None;
                action.undo(&mut events);
            }
            match &action.plan.trigger {
                ActionTrigger::Every(period) if now >= action.due => {
                    action.due = (action.due + *period).max(now);
                    action.act(now, 0.0, &mut events);
                }
                ActionTrigger::Every(_) => {}
                ActionTrigger::When { .. } => action.compare(now, &value, &mut events),
            }
        }
        events
    }
}

impl ActionState {
    /// Acts when the condition begins or ends; `value` is the condition's, if known now.
    fn compare(
        &mut self,
        now: Instant,
        value: &impl Fn(&Condition) -> Option<f64>,
        events: &mut Vec<(String, ActionEvent)>,
    ) {
        let ActionTrigger::When { when, until } = &self.plan.trigger else {
            return;
        };
        if !self.is_raised {
            if let Some(value) = value(when).filter(|value| when.holds(*value)) {
                self.is_raised = true;
                self.act(now, value, events);
            }
            return;
        }
        let (ended, undoes) = match until {
            Some(until) => (value(until).filter(|value| until.holds(*value)), true),
            None => (value(when).filter(|value| !when.holds(*value)), false),
        };
        let Some(value) = ended else {
            return;
        };
        self.is_raised = false;
        if self.plan.command.is_none() {
            let raised = false;
            events.push((self.plan.name.clone(), ActionEvent::Alarm { raised, value }));
        } else if undoes {
            self.undo(events);
        }
    }

    fn act(&mut self, now: Instant, value: f64, events: &mut Vec<(String, ActionEvent)>) {
        self.undo_at = self.plan.lasts.map(|lasts| now + lasts);
        let event = match &self.plan.command {
            Some(command) => ActionEvent::Do(command.clone()),
            None => ActionEvent::Alarm {
                raised: true,
                value,
            },
        };
        events.push((self.plan.name.clone(), event));
    }

    fn undo(&self, events: &mut Vec<(String, ActionEvent)>) {
        if let Some(command) = &self.plan.command {
            events.push((self.plan.name.clone(), ActionEvent::Undo(command.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(command: Option<ProbeCommand>, trigger: ActionTrigger) -> ActionPlan {
        ActionPlan {
            name: "a".into(),
            command,
            trigger,
            lasts: None,
        }
    }

    fn when(when: &str, until: Option<&str>) -> ActionTrigger {
        ActionTrigger::When {
            when: when.parse().expect("a condition"),
            until: until.map(|until| until.parse().expect("a condition")),
        }
    }

    fn manager(plans: &[ActionPlan], now: Instant) -> ActionManager {
        let mut manager = ActionManager::default();
        manager.replace(plans, now);
        manager
    }

    fn events(manager: &mut ActionManager, now: Instant, value: f64) -> Vec<ActionEvent> {
        let events = manager.look(now, |_| Some(value)).into_iter();
        events.map(|(_, event)| event).collect()
    }

    #[test]
    fn a_period_acts_each_time_and_undoes_after_its_time() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let command = ProbeCommand::Enable("dns".into());
        let plan = ActionPlan {
            lasts: Some(Duration::from_secs(2)),
            ..action(
                Some(command.clone()),
                ActionTrigger::Every(Duration::from_secs(10)),
            )
        };
        let mut manager = manager(&[plan], start);
        let mut seen = Vec::new();
        for second in 0..=22 {
            for event in events(&mut manager, after(second), 0.0) {
                seen.push((second, matches!(event, ActionEvent::Do(_))));
            }
        }
        assert_eq!(seen, [(10, true), (12, false), (20, true), (22, false)]);
    }

    #[test]
    fn an_alarm_between_its_two_limits_stays_as_it_is() {
        let now = Instant::now();
        let alarm = action(None, when("flows > 100", Some("flows < 50")));
        let mut manager = manager(&[alarm], now);
        let mut seen = Vec::new();
        for value in [60.0, 101.0, 150.0, 99.0, 51.0, 49.0, 70.0, 120.0] {
            seen.extend(events(&mut manager, now, value));
        }
        let alarm = |raised, value| ActionEvent::Alarm { raised, value };
        assert_eq!(
            seen,
            [alarm(true, 101.0), alarm(false, 49.0), alarm(true, 120.0)]
        );
    }

    #[test]
    fn a_condition_acts_once_and_undoes_only_with_an_end_of_its_own() {
        let now = Instant::now();
        let command = ProbeCommand::Disable("sizes".into());
        for (until, events_wanted) in [(None, 1), (Some("dropped < 1"), 2)] {
            let plan = action(Some(command.clone()), when("dropped > 5", until));
            let mut manager = manager(&[plan], now);
            let mut seen = Vec::new();
            for value in [0.0, 7.0, 8.0, 0.0] {
                seen.extend(events(&mut manager, now, value));
            }
            assert_eq!(seen.len(), events_wanted, "{seen:?}");
        }
    }

    #[test]
    fn an_action_that_stays_keeps_its_state_through_a_change() {
        let now = Instant::now();
        let alarm = action(None, when("flows > 100", None));
        let mut manager = manager(std::slice::from_ref(&alarm), now);
        assert_eq!(events(&mut manager, now, 200.0).len(), 1);
        manager.replace(&[alarm], now);
        assert_eq!(events(&mut manager, now, 200.0), []);
    }
}
