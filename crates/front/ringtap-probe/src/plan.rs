// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a probe's measurements: Adviser's and Ksensor's *logic in memory*.

use std::time::Duration;

use ringtap::{Congestion, Headers};
use ringtap_capture::meter::{KeyFields, MeterWants};

use crate::action::ActionPlan;
use crate::analysis::{AnalysisKind, AnalysisPlan, CountedIn, GapScope, KeyField};
use crate::flows::FlowOptions;
use crate::library::LibraryPlan;

/// Flows and keys that the kernel has room for; 132 bytes for each, twice.
const USUAL_KERNEL_FLOWS: u32 = 1 << 18;

/// Marks at which the capture skips packets because workers are behind, unless the configuration has others.
const USUAL_CONGESTION: Congestion = Congestion {
    low_percent: 10,
    high_percent: 30,
};

/// Everything that the workers of a probe need to know.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// Of tunnelled packets, the headers that are analysed.
    pub headers: Headers,
    /// The analyses; their names are unique.
    pub analyses: Vec<AnalysisPlan>,
    /// Most flows and keys, each direction by itself, that the kernel counts between two looks.
    pub kernel_flows: u32,
    /// When the capture skips packets because workers are behind; `None`: workers lose them.
    pub congestion: Option<Congestion>,
    /// Users' own analyses.
    pub libraries: Vec<LibraryPlan>,
    /// Actions that the probe takes while it runs.
    pub actions: Vec<ActionPlan>,
}

/// Why a plan is not possible, or has no such analysis.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "messages show what each field means")]
#[non_exhaustive]
pub enum PlanError {
    /// No analysis has this name.
    #[error("there is no analysis \"{name}\"; the analyses are: {known}")]
    NoAnalysis { name: String, known: String },
    /// The analysis of this name is a library.
    #[error(
        "\"{0}\" is a library, which runs in processes of its own: change it in the file, and start the probe again"
    )]
    IsLibrary(String),
    /// Several workers cannot measure the analysis of this name.
    #[error(
        "{0}: gaps by = \"capture\" need all packets in one worker: use --workers 1, or by = \"flow\""
    )]
    NeedsOneWorker(String),
}

impl ProbePlan {
    /// The plan of a probe without configuration, with the names that the same analyses have in a file: flows, and every `every` the largest sources,
    /// destinations, ports and flows, frame sizes, and the number of sources.
    pub fn standard(every: Option<Duration>) -> Self {
        let top = |by| AnalysisKind::Top { by, count: 10 };
        let flows = FlowOptions {
            idle: Duration::from_secs(15),
            active: Duration::from_secs(60),
            ..FlowOptions::default()
        };
        let kinds = [
            ("flows", AnalysisKind::Flows(flows)),
            ("top source", top(KeyField::Source)),
            ("top destination", top(KeyField::Destination)),
            ("top port", top(KeyField::Port)),
            ("top flow", top(KeyField::Flow)),
            ("sizes", AnalysisKind::Sizes),
            (
                "distinct source",
                AnalysisKind::Cardinality {
                    by: KeyField::Source,
                },
            ),
        ];
        let analyses = kinds.into_iter().map(|(name, kind)| AnalysisPlan {
            name: name.to_owned(),
            kind,
            every,
            enabled: true,
            place: CountedIn::Workers,
        });
        ProbePlan {
            analyses: analyses.collect(),
            ..ProbePlan::empty()
        }
    }

    /// A plan without analyses.
    pub(crate) fn empty() -> Self {
        ProbePlan {
            headers: Headers::Inner,
            analyses: Vec::new(),
            kernel_flows: USUAL_KERNEL_FLOWS,
            congestion: Some(USUAL_CONGESTION),
            libraries: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// The analysis of this name, of those that run in the probe itself.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoAnalysis`], [`PlanError::IsLibrary`].
    pub(crate) fn analysis(&self, name: &str) -> Result<&AnalysisPlan, PlanError> {
        let found = self.analyses.iter().find(|one| one.name == name);
        found.ok_or_else(|| {
            let (name, known) = (name.to_owned(), &self.analyses);
            if self.libraries.iter().any(|one| one.name == name) {
                return PlanError::IsLibrary(name);
            }
            let known: Vec<_> = known.iter().map(|one| one.name.as_str()).collect();
            PlanError::NoAnalysis {
                name,
                known: known.join(", "),
            }
        })
    }

    /// Refuses analyses that this number of workers cannot measure.
    ///
    /// # Errors
    ///
    /// [`PlanError::NeedsOneWorker`].
    pub(crate) fn check(&self, workers: usize) -> Result<(), PlanError> {
        let by = GapScope::Capture;
        let mut analyses = self.analyses.iter();
        match analyses.find(|one| one.kind == AnalysisKind::Gaps { by }) {
            Some(one) if workers > 1 => Err(PlanError::NeedsOneWorker(one.name.clone())),
            _ => Ok(()),
        }
    }

    /// Whether workers or libraries have an analysis, also one that is switched off.
    pub fn needs_packets(&self) -> bool {
        let mut analyses = self.analyses.iter();
        !self.libraries.is_empty() || analyses.any(|one| one.place == CountedIn::Workers)
    }

    /// Whether workers or libraries have an analysis of payload, also one that is switched off.
    pub fn needs_payload(&self) -> bool {
        let needs_it =
            |one: &AnalysisPlan| one.place == CountedIn::Workers && one.kind.needs_payload();
        !self.libraries.is_empty() || self.analyses.iter().any(needs_it)
    }

    /// What the kernel has to count for its analyses, also for those that are switched off; `None` if it has
    /// none.
    pub fn kernel_wants(&self) -> Option<MeterWants> {
        let (key, loops) = self
            .analyses
            .iter()
            .filter(|one| one.place == CountedIn::Kernel)
            .map(|one| (one.kind.key_fields(), one.kind.loops()))
            .reduce(|(one, loops), (other, more)| {
                let key = KeyFields {
                    source: one.source | other.source,
                    destination: one.destination | other.destination,
                    ports: one.ports | other.ports,
                    vlan: one.vlan | other.vlan,
                };
                (key, loops.saturating_add(more))
            })?;
        Some(MeterWants {
            key,
            headers: self.headers,
            max_flows: self.kernel_flows,
            loops,
        })
    }
}
