// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of sources: a module with the description of each, and the list of all.

mod auto;
mod group;
mod packet;
mod pcap;
mod shared;
mod sim;
mod tap;
mod xdp;

use super::{keys::OptionKey, kind::Kind};

pub use auto::AUTO;
pub use group::{HOST, HUB};
pub use packet::PACKET;
pub use pcap::PCAP;
pub use sim::SIM;
pub use tap::TAP;
pub use xdp::XDP;

/// Every kind of source.
pub static KINDS: [&Kind; 8] = [&AUTO, &TAP, &XDP, &PACKET, &PCAP, &SIM, &HUB, &HOST];

/// The kind with this word before the colon.
pub(super) fn with_word(word: &str) -> Option<&'static Kind> {
    prefixed().find(|kind| kind.word == word)
}

/// Every kind that has a word.
pub fn prefixed() -> impl Iterator<Item = &'static Kind> {
    KINDS.into_iter().filter(|kind| !kind.is_default())
}

/// Every kind that has a word, and a name that is an interface's.
pub fn interface_kinds() -> impl Iterator<Item = &'static Kind> {
    prefixed().filter(|kind| kind.names_an_interface())
}

/// What can take the place of an interface without a source, for messages: `hub:GROUP`, ..., `tap`, ...
pub fn substitutes() -> String {
    let groups = prefixed()
        .filter(|kind| kind.names_a_group())
        .map(|kind| kind.example);
    let words = interface_kinds().map(|kind| kind.word);
    groups.chain(words).collect::<Vec<_>>().join(", ")
}

/// Every option of any kind, once.
pub fn keys() -> Vec<&'static OptionKey> {
    let mut all: Vec<&'static OptionKey> = Vec::new();
    for key in KINDS.iter().flat_map(|kind| kind.keys) {
        if all.iter().all(|one| one.name != key.name) {
            all.push(key);
        }
    }
    all
}

/// Words of the kinds that have an option.
pub fn with_key(name: &str) -> String {
    let words: Vec<_> = prefixed()
        .filter(|kind| kind.has_key(name))
        .map(|kind| kind.word)
        .collect();
    words.join(", ")
}
