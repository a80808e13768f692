// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a probe measures: Adviser's and Ksensor's *logic in memory*.

use std::time::Duration;

use ringtap::Headers;

use crate::analysis::{AnalysisKind, AnalysisPlan, KeyPart};
use crate::flows::FlowOptions;

/// Everything that the workers of a probe need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Of tunnelled packets, the headers that are analysed.
    pub headers: Headers,
    /// The analyses; their names are unique.
    pub analyses: Vec<AnalysisPlan>,
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
        });
        ProbePlan {
            headers: Headers::Inner,
            analyses: analyses.collect(),
        }
    }
}
