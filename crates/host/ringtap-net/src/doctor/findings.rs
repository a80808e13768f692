// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a machine or an interface, and commands that make it better.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Good,
    /// Worth to know.
    Note,
    /// Costs packets, or changes them.
    Bad,
}

/// Commands that change a setting, and those that restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// The command that changes the setting, in words.
    pub change: Vec<String>,
    /// The command that restores it.
    pub restore: Vec<String>,
}

impl Remedy {
    /// Two command lines, whose words have no spaces.
    pub(super) fn new(change: &str, restore: &str) -> Self {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        Self {
            change: words(change),
            restore: words(restore),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The topic that was examined.
    pub topic: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The state that was found.
    pub found: String,
    /// Why it matters, and what to do without a command; empty if all is well.
    pub why: String,
    /// Commands that make it better.
    pub remedy: Option<Remedy>,
}

impl Diagnosis {
    pub(super) fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self {
            topic,
            severity: Severity::Good,
            found: found.into(),
            why: String::new(),
            remedy: None,
        }
    }

    pub(super) fn note(
        topic: &'static str,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Note,
            why: why.into(),
            ..Self::good(topic, found)
        }
    }

    pub(super) fn bad(
        topic: &'static str,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Bad,
            ..Self::note(topic, found, why)
        }
    }

    pub(super) fn with(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}
