// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several devices in one text: `eth0,eth1`.
//!
//! A comma separates devices, except inside a choice of queues, where a number or a range of numbers
//! follows the comma. So `eth0@1-3,5,eth1` is two devices. An interface whose name is a number needs
//! its source: `tap:5`.

use std::ops::Range;

use super::{
    kind::Kind,
    parse,
    spec::{DeviceError, DeviceSpec},
};

/// The devices of a comma-separated list; at least one.
///
/// # Errors
///
/// - [`DeviceError::Syntax`]: points to the place in the whole text.
pub fn parse_list(text: &str) -> Result<Vec<DeviceSpec>, DeviceError> {
    let places = split(text).into_iter();
    places.map(|place| parse::device(text, place)).collect()
}

fn split(text: &str) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for piece in text.split(',') {
        let end = start + piece.len();
        match places.last_mut() {
            Some(last) if chooses_queues(&text[last.clone()]) && is_queues(piece) => last.end = end,
            _ => places.push(start..end),
        }
        start = end + 1;
    }
    places
}

/// Whether a device's text ends inside its choice of queues.
fn chooses_queues(device: &str) -> bool {
    let has_queues = DeviceSpec::kind_of(device).is_none_or(Kind::names_an_interface);
    has_queues && device.contains('@') && !device.contains('?')
}

fn is_queues(piece: &str) -> bool {
    let queues = piece.split('?').next().unwrap_or(piece);
    let mut numbers = queues.split('-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.by_ref().take(2).all(is_number) && numbers.next().is_none()
}
