// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a cut-off: `20 packets` or `16KiB`.

use ringtap_filter::flow::CutOff;

use crate::Size;

/// A text that is no cut-off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{given}\" is no cut-off: expected a number of packets or bytes of each direction, like \"20 packets\" or 16KiB"
)]
pub struct CutOffError {
    /// The text.
    pub given: String,
}

/// Parses a cut-off.
///
/// # Errors
///
/// [`CutOffError`].
pub fn cut_off(text: &str) -> Result<CutOff, CutOffError> {
    let wrong = || CutOffError {
        given: text.to_owned(),
    };
    let number = ["packets", "packet"]
        .iter()
        .find_map(|unit| text.trim().strip_suffix(unit));
    let (packets, bytes) = match number {
        Some(number) => (Some(number.trim().parse().map_err(|_| wrong())?), None),
        None => (
            None,
            Some(text.trim().parse::<Size>().map_err(|_| wrong())?.0),
        ),
    };
    if packets.or(bytes) == Some(0) {
        return Err(wrong());
    }
    Ok(CutOff { packets, bytes })
}

/// The text of a cut-off.
#[must_use]
pub fn cut_off_text(cut: &CutOff) -> String {
    let packets = cut.packets.map(|packets| format!("{packets} packets"));
    let bytes = cut.bytes.map(|bytes| Size(bytes).to_string());
    let limits: Vec<_> = packets.into_iter().chain(bytes).collect();
    limits.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_is_a_number_of_packets_or_bytes() {
        let packets = CutOff {
            packets: Some(20),
            bytes: None,
        };
        let bytes = CutOff {
            packets: None,
            bytes: Some(16 << 10),
        };
        for (text, cut) in [
            ("20 packets", packets),
            ("20packets", packets),
            ("16KiB", bytes),
            ("16384", bytes),
        ] {
            assert_eq!(cut_off(text), Ok(cut), "{text}");
        }
        assert_eq!(cut_off_text(&packets), "20 packets");
        assert_eq!(cut_off(&cut_off_text(&bytes)), Ok(bytes));
        for wrong in [
            "",
            "0",
            "0 packets",
            "packets",
            "-1 packets",
            "20 bytes of it",
        ] {
            let told = cut_off(wrong).unwrap_err().to_string();
            assert!(told.contains("is no cut-off: expected"), "{told}");
        }
    }
}
