// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a probe measures: Adviser's and Ksensor's *logic in memory*.

use std::time::Duration;

use ringtap::Headers;
use ringtap_capture::meter::{KeyParts, MeterWants};

use crate::analysis::{AnalysisKind, AnalysisPlace, AnalysisPlan, KeyPart};
use crate::flows::FlowOptions;

/// Flows and keys that the kernel has room for; 144 bytes for each, twice.
pub(crate) const USUAL_KERNEL_FLOWS: u32 = 1 << 18;

/// Everything that the workers of a probe need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Of tunnelled packets, the headers that are analysed.
    pub headers: Headers,
    /// The analyses; their names are unique.
    pub analyses: Vec<AnalysisPlan>,
    /// Most flows and keys, each direction by itself, that the kernel counts between two looks.
    pub kernel_flows: u32,
}

impl ProbePlan {
    /// The plan of a probe without configuration: flows, and every `every` the largest sources,
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
            ("top sources", top(KeyPart::Source)),
            ("top destinations", top(KeyPart::Destination)),
            ("top ports", top(KeyPart::Port)),
            ("top flows", top(KeyPart::Flow)),
            ("frame sizes", AnalysisKind::Sizes),
            (
                "distinct sources",
                AnalysisKind::Cardinality {
                    by: KeyPart::Source,
                },
            ),
        ];
        let analyses = kinds.into_iter().map(|(name, kind)| AnalysisPlan {
            name: name.to_owned(),
            kind,
            every,
            enabled: true,
            place: AnalysisPlace::Workers,
        });
        ProbePlan {
            headers: Headers::Inner,
            analyses: analyses.collect(),
            kernel_flows: USUAL_KERNEL_FLOWS,
        }
    }

    /// Whether workers have an analysis, also one that is switched off.
    pub fn needs_packets(&self) -> bool {
        let mut analyses = self.analyses.iter();
        analyses.any(|one| one.place == AnalysisPlace::Workers)
    }

    /// What the kernel has to count for its analyses, also for those that are switched off; `None` if it has
    /// none.
    pub fn kernel_wants(&self) -> Option<MeterWants> {
        let analyses = self.analyses.iter();
        let in_kernel = analyses.filter(|one| one.place == AnalysisPlace::Kernel);
        let parts = in_kernel.map(|one| one.kind.key_parts());
        let parts = parts.reduce(|one, other| KeyParts {
            source: one.source | other.source,
            destination: one.destination | other.destination,
            ports: one.ports | other.ports,
            vlan: one.vlan | other.vlan,
        })?;
        Some(MeterWants {
            parts,
            headers: self.headers,
            most_flows: self.kernel_flows,
            loops: 0,
        })
    }
}
