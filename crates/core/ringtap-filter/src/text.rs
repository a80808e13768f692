// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles filters in pcap-filter syntax with libpcap.
#![deny(unsafe_code)]

mod libpcap;
mod position;

use std::net::Ipv4Addr;
use std::ops::Range;

use crate::{LinkType, Program, ProgramError, caret};
use libpcap::Optimizer;

/// Why an expression cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FilterError {
    /// libpcap refused the expression.
    #[error("{}", describe(.expression, .message, .place.as_ref()))]
    Refused {
        expression: String,
        message: String,
        place: Option<Range<usize>>,
    },
    /// The text contains a NUL, which libpcap does not accept.
    #[error("a filter cannot contain a NUL byte (byte {position})")]
    Nul { position: usize },
    /// The interpreter refuses the program that libpcap made.
    #[error(
        "libpcap compiled \"{expression}\" to an invalid instruction (number {at}): please report this filter"
    )]
    Program { expression: String, at: usize },
}

/// Compiles `expression` for packets of `link_type`, cut to `snap_length` bytes. The empty expression
/// matches every packet.
///
/// Looks up host names once, at this time. For `protochain`, libpcap's program jumps back (a `ja` with
/// a negative `k`), which the kernel refuses.
///
/// # Examples
///
/// ```
/// use ringtap_filter::LinkType;
/// use ringtap_filter::text::compile;
///
/// let arp = compile("arp", LinkType::ETHERNET, 96)?;
/// let mut packet = [0; 60];
/// assert!(!arp.matches(&packet, 60));
/// packet[12..14].copy_from_slice(&[0x08, 0x06]);
/// assert!(arp.matches(&packet, 60));
///
/// let error = compile("udp prot 53", LinkType::ETHERNET, 96).unwrap_err();
/// assert!(error.to_string().contains("udp prot 53"));
/// # Ok::<(), ringtap_filter::text::FilterError>(())
/// ```
///
/// # Errors
///
/// - [`FilterError::Refused`]: libpcap's message and, if known, the position.
pub fn compile(
    expression: &str,
    link_type: LinkType,
    snap_length: u32,
) -> Result<Program, FilterError> {
    // `PCAP_NETMASK_UNKNOWN`.
    compile_with_netmask(expression, link_type, snap_length, Ipv4Addr::BROADCAST)
}

/// As [`compile`], for packets of an interface with this netmask, which `ip broadcast` needs. 0.0.0.0
/// stands for no network: only 0.0.0.0 and 255.255.255.255 are broadcast addresses.
///
/// # Errors
///
/// As for [`compile`], which refuses `ip broadcast`.
pub fn compile_with_netmask(
    expression: &str,
    link_type: LinkType,
    snap_length: u32,
    netmask: Ipv4Addr,
) -> Result<Program, FilterError> {
    if let Some(position) = expression.find('\0') {
        return Err(FilterError::Nul { position });
    }
    let expression = expression.trim();
    // In host order: libpcap compares with words of the packet, although its manual says otherwise.
    let netmask = netmask.to_bits();
    let compile = |text: &str, optimizer| {
        libpcap::compile(text, link_type.dlt(), snap_length, netmask, optimizer)
    };
    let parses = |text: &str| compile(text, Optimizer::Off).is_ok();
    let compiled = compile(expression, Optimizer::On);
    let instructions = compiled.map_err(|error| {
        let message = error.to_string();
        FilterError::Refused {
            expression: expression.to_owned(),
            place: position::find(expression, &message, parses),
            message: without_prefix(message),
        }
    })?;
    Program::new(&instructions).map_err(|error| unusable(expression, instructions.len(), &error))
}

/// libpcap's message without its words for "bad filter".
fn without_prefix(message: String) -> String {
    match message.strip_prefix("can't parse filter expression: ") {
        Some(reason) => reason.to_owned(),
        None => message,
    }
}

/// The error for a program from libpcap that fails the check.
fn unusable(expression: &str, length: usize, error: &ProgramError) -> FilterError {
    const DIRECTION: &str = "the direction is not in the packet: choose it with the device, \
                             as in eth0?direction=in";
    const INTERFACE: &str = "the interface is not in the packet: name it as the device";
    let words = [
        ("inbound", DIRECTION),
        ("outbound", DIRECTION),
        ("ifindex", INTERFACE),
    ];
    let mut found = words.iter().filter_map(|(word, message)| {
        let start = expression.find(word)?;
        Some((Some(start..start + word.len()), *message))
    });
    let (place, message) = match found.next() {
        Some(found) => found,
        None => (
            None,
            "it asks for what only the kernel knows, not the packet",
        ),
    };
    let expression = expression.to_owned();
    match *error {
        ProgramError::Kernel { .. } => FilterError::Refused {
            message: message.to_owned(),
            place,
            expression,
        },
        ProgramError::Instruction { at, .. } => FilterError::Program { expression, at },
        _ => FilterError::Program {
            expression,
            at: length.saturating_sub(1),
        },
    }
}

fn describe(expression: &str, message: &str, place: Option<&Range<usize>>) -> String {
    match place {
        None => format!("bad filter \"{expression}\": {message}"),
        Some(place) => {
            let column = caret::column(expression, place.start);
            let shown = caret::show(expression, place);
            format!("bad filter: {message} (character {column})\n{shown}")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
