// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a connection, with the values and names of `conn_state` in Zeek's conn.log.
//!
//! Invariants
//! - The state stays with the flow when a further part of it begins.

use crate::packet::{ACK, FIN, RST, SYN, TCP, UDP};
use crate::record::{DirectionCounts, FlowRecord};

/// State of one end of a TCP connection, by the segments that both ends sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpEnd {
    /// It sent nothing.
    #[default]
    Inactive,
    /// It sent SYN, and the other end has not answered with SYN.
    SynSent,
    /// It sent segments, but its SYN was not seen.
    Partial,
    /// Both ends sent SYN.
    Established,
    /// It sent FIN.
    Closed,
    /// It sent RST directly after its SYN.
    SynReset,
    /// It sent RST.
    Reset,
    /// It sent FIN and then RST, before the other end closed.
    ClosedReset,
}

impl TcpEnd {
    /// True if it sent RST before both ends closed.
    pub(crate) fn is_reset(self) -> bool {
        matches!(self, TcpEnd::Reset | TcpEnd::SynReset | TcpEnd::ClosedReset)
    }

    /// True if no handshake of this end was seen.
    fn is_unknown(self) -> bool {
        matches!(self, TcpEnd::Inactive | TcpEnd::Partial)
    }
}

/// Changes the states of originator and responder after a segment with these flags. `direction` names its sender: 0 is the
/// originator, 1 the responder.
pub(crate) fn segment(ends: [&mut TcpEnd; 2], direction: usize, flags: u8, has_payload: bool) {
    let [originator, responder] = ends;
    let is_originator = direction == 0;
    let (own, peer) = if is_originator {
        (originator, responder)
    } else {
        (responder, originator)
    };
    *own = match *own {
        end if end.is_reset() => end,
        // Once both ends are closed, an RST changes nothing.
        TcpEnd::Closed if flags & RST != 0 && *peer != TcpEnd::Closed => TcpEnd::ClosedReset,
        TcpEnd::Closed => TcpEnd::Closed,
        TcpEnd::SynSent if flags & RST != 0 => TcpEnd::SynReset,
        _ if flags & RST != 0 => TcpEnd::Reset,
        TcpEnd::Established | TcpEnd::Partial if flags & FIN != 0 => {
            // Both ends sent FIN: the RST of the other one only hastened the end.
            if *peer == TcpEnd::ClosedReset {
                *peer = TcpEnd::Closed;
            }
            TcpEnd::Closed
        }
        _ if flags & FIN != 0 => TcpEnd::Closed,
        TcpEnd::Inactive if flags & SYN != 0 && is_originator => TcpEnd::SynSent,
        TcpEnd::Inactive if flags & SYN != 0 => {
            if *peer == TcpEnd::SynSent {
                *peer = TcpEnd::Established;
            }
            TcpEnd::Established
        }
        // Some TCPs acknowledge a SYN before they answer it.
        TcpEnd::Inactive if *peer == TcpEnd::SynSent && !has_payload => TcpEnd::Inactive,
        TcpEnd::Inactive if *peer == TcpEnd::Established && flags & ACK != 0 => TcpEnd::Established,
        TcpEnd::Inactive => TcpEnd::Partial,
        end => end,
    };
}

/// As [`segment`], for several segments of one sender whose flags are known only together.
///
/// The flags count in the order SYN, ACK, FIN, RST.
pub(crate) fn segments(ends: [&mut TcpEnd; 2], direction: usize, flags: u8, has_payload: bool) {
    let [originator, responder] = ends;
    for flag in [SYN, ACK, FIN, RST] {
        if flags & flag != 0 {
            let has_payload = has_payload && flag == ACK;
            segment([originator, responder], direction, flag, has_payload);
        }
    }
}

impl FlowRecord {
    /// State of the connection at the end of the record, as in Zeek's conn.log: `SF`, `S0`, `REJ`, …
    ///
    /// Of UDP, it says which side sent packets. Other protocols have `OTH`.
    pub fn conn_state(&self) -> &'static str {
        let (from, to) = (&self.forward, &self.backward);
        match self.key.protocol {
            TCP => tcp_state(from, to, self.part),
            UDP if to.packets > 0 && from.packets > 0 => "SF",
            UDP if from.packets > 0 => "S0",
            UDP => "SHR",
            _ => "OTH",
        }
    }
}

/// State of a TCP connection after the record with this number among those of its flow.
fn tcp_state(from: &DirectionCounts, to: &DirectionCounts, part: u32) -> &'static str {
    let nothing_sent = part == 0 && from.stream_bytes == 0 && to.stream_bytes == 0;
    match (from.tcp_end, to.tcp_end) {
        (TcpEnd::SynSent, to) if to.is_reset() => "REJ",
        (from, to) if to.is_reset() && from.is_reset() && nothing_sent => "REJ",
        (from, to) if to.is_reset() && from.is_unknown() => "RSTRH",
        (_, to) if to.is_reset() => "RSTR",
        (TcpEnd::SynReset, to) if to.is_unknown() => "RSTOS0",
        (TcpEnd::Reset | TcpEnd::ClosedReset, to) if to.is_unknown() => "OTH",
        (from, _) if from.is_reset() => "RSTO",
        (TcpEnd::Closed, TcpEnd::Closed) => "SF",
        (TcpEnd::Closed, to) if to.is_unknown() => "SH",
        (TcpEnd::Closed, _) => "S2",
        (from, TcpEnd::Closed) if from.is_unknown() => "SHR",
        (_, TcpEnd::Closed) => "S3",
        (TcpEnd::SynSent, TcpEnd::Inactive) => "S0",
        (TcpEnd::Established, TcpEnd::Established) => "S1",
        _ => "OTH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state after these segments. `o` or `r` names the sender; the flags are `S`, `A`, `F`, `R`, and `D` for
    /// an ACK with payload.
    fn state_after(segments: &str) -> &'static str {
        let mut directions = [DirectionCounts::default(); 2];
        for one in segments.split_whitespace() {
            let direction = usize::from(one.starts_with('r'));
            let mut flags = 0;
            for letter in one.chars().skip(1) {
                flags |= match letter {
                    'S' => SYN,
                    'A' | 'D' => ACK,
                    'F' => FIN,
                    _ => RST,
                };
            }
            let has_payload = one.contains('D');
            directions[direction].stream_bytes += u64::from(has_payload);
            let [from, to] = &mut directions;
            segment(
                [&mut from.tcp_end, &mut to.tcp_end],
                direction,
                flags,
                has_payload,
            );
        }
        tcp_state(&directions[0], &directions[1], 0)
    }

    /// Zeek's documentation of `conn_state`, and its behaviour where that is silent.
    #[test]
    fn states_are_those_of_zeek() {
        for (segments, state) in [
            ("oS", "S0"),
            ("oS oS", "S0"),
            ("oS rA", "S0"),
            ("oS rSA", "S1"),
            ("oS rSA oA oD", "S1"),
            ("oS rSA oA oFA rFA oA", "SF"),
            ("oS rSA oA oFA rFA oRA", "SF"),
            ("oS rSA oA oFA rA", "S2"),
            ("oS rSA oA rFA oA", "S3"),
            ("oS rRA", "REJ"),
            ("oS rSA oA oD oR", "RSTO"),
            ("oS rSA oA rD rR", "RSTR"),
            ("oS rSA oA oFA rR", "RSTR"),
            ("oS rSA oA oFA rA oR", "RSTO"),
            ("oS rSA oA rFA oA rR", "RSTR"),
            ("oS rSA oA oFA oR rFA", "SF"),
            ("oS rSA oA rFA rR oFA", "SF"),
            ("oS rA oF oR", "OTH"),
            ("oS oR", "RSTOS0"),
            ("oS rSA rR", "RSTR"),
            ("rSA rR", "RSTRH"),
            ("oS oF", "SH"),
            ("oSF", "SH"),
            ("rSA rFA", "SHR"),
            ("rSA", "OTH"),
            ("rSA oA", "S1"),
            ("oD rA", "OTH"),
            ("oD rD oFA", "SH"),
            ("oR", "OTH"),
        ] {
            assert_eq!(state_after(segments), state, "{segments}");
        }
    }

    #[test]
    fn flags_of_a_whole_connection_lead_to_its_state() {
        for (from, to, state) in [
            (SYN | ACK | FIN, SYN | ACK | FIN, "SF"),
            (SYN | ACK, SYN | ACK, "S1"),
            (SYN | ACK | FIN, SYN | ACK, "S2"),
            (SYN, RST | ACK, "REJ"),
            (SYN | ACK | RST, SYN | ACK, "RSTO"),
            (SYN | ACK, SYN | ACK | RST, "RSTR"),
            (SYN, 0, "S0"),
        ] {
            let mut directions = [DirectionCounts::default(); 2];
            for (direction, flags) in [from, to].into_iter().enumerate() {
                let [one, other] = &mut directions;
                segments(
                    [&mut one.tcp_end, &mut other.tcp_end],
                    direction,
                    flags,
                    false,
                );
            }
            assert_eq!(
                tcp_state(&directions[0], &directions[1], 0),
                state,
                "{from:#x} {to:#x}"
            );
        }
    }
}
