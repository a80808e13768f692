// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of options: the sampling, by which a collector scales, and statistics of this exporter. Numbers of elements
//! are those of IANA's registry.
//!
//! Invariants
//! - A template of options has one scope.

use super::octets::put;
use super::protocol::FlowProtocol;
use crate::export::FlowSum;

/// Scope "System" of NetFlow v9 (RFC 3954, section 6.1).
const SYSTEM: u16 = 1;

/// Element, length in bytes, value.
type Value = (u16, u16, u64);

/// One record of options with its template.
pub(super) struct OptionsRecord {
    id: u16,
    scope: Value,
    values: Vec<Value>,
}

/// Totals that an exporter has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentSum {
    pub(super) messages: u64,
    pub(super) flow_records: u64,
    pub(super) octets: u64,
}

/// One flow in `sampling` was analysed.
///
/// samplingInterval is deprecated, but what nfdump and goflow2 scale by. samplingPacketInterval and
/// samplingPacketSpace are those of RFC 5477; goflow2 takes the first of both that a message has, so the record with
/// samplingInterval comes first. The selection is uniform probabilistic (4).
pub(super) fn sampling(protocol: FlowProtocol, sampling: u32, domain: u32) -> Vec<OptionsRecord> {
    let interval = OptionsRecord {
        id: SAMPLING,
        scope: (149, 4, domain.into()),
        values: vec![(34, 4, sampling.into())],
    };
    let one_in = 1.0 / f64::from(sampling.max(1));
    let selector = OptionsRecord {
        id: SAMPLING + 1,
        scope: (302, 4, 1),
        values: vec![
            (304, 2, 4),
            (311, 8, one_in.to_bits()),
            (305, 4, 1),
            (306, 4, u64::from(sampling).saturating_sub(1)),
        ],
    };
    match protocol {
        FlowProtocol::NetflowV9 => vec![interval],
        _ => vec![interval, selector],
    }
}

/// Statistics of the metering process and of the reliability of the exporting process (RFC 7011, sections 4.1
/// and 4.3).
pub(super) fn statistics(sent: SentSum, not_sent: FlowSum, domain: u32) -> [OptionsRecord; 2] {
    let process = std::process::id();
    [
        OptionsRecord {
            id: STATISTICS,
            scope: (149, 4, domain.into()),
            values: vec![
                (41, 8, sent.messages),
                (42, 8, sent.flow_records),
                (40, 8, sent.octets),
            ],
        },
        OptionsRecord {
            id: STATISTICS + 1,
            scope: (144, 4, process.into()),
            values: vec![
                (166, 8, not_sent.flows),
                (167, 8, not_sent.packets),
                (168, 8, not_sent.octets),
            ],
        },
    ]
}

/// Number of the template of [`sampling`]'s first record.
pub(super) const SAMPLING: u16 = 4096;
/// Number of the template of [`statistics`]' first record.
pub(super) const STATISTICS: u16 = 4098;

impl OptionsRecord {
    /// Number of the template.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// The template's record in a set of options templates (RFC 7011, section 3.4.2.2; RFC 3954, section 6.1).
    pub(super) fn template(&self, protocol: FlowProtocol) -> Vec<u8> {
        let fields = u64::try_from(self.values.len()).unwrap_or_default();
        let is_v9 = protocol == FlowProtocol::NetflowV9;
        let (first, second, scope) = if is_v9 {
            // Lengths of the scope's and of the options' fields in bytes.
            (4, 4 * fields, SYSTEM)
        } else {
            // Numbers of all fields and of scopes.
            (1 + fields, 1, self.scope.0)
        };
        let mut out = Vec::with_capacity(32);
        for number in [self.id.into(), first, second] {
            put(&mut out, 2, number);
        }
        let fields = self.values.iter().map(|(id, length, _)| (*id, *length));
        for (id, length) in [(scope, self.scope.1)].into_iter().chain(fields) {
            put(&mut out, 2, id.into());
            put(&mut out, 2, length.into());
        }
        out
    }

    /// The data record.
    pub(super) fn values(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        for (_, length, value) in [self.scope].into_iter().chain(self.values.iter().copied()) {
            put(&mut out, length, value);
        }
        out
    }
}
