// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of a kind of source: its word, options, rights and abilities.
//!
//! Invariants
//! - Who needs to know what a source can asks its description; nobody compares kinds.

use std::fmt;

use ringtap_net::rights::{Purpose, Rights, RightsError};

use super::{keys::OptionKey, options::Mode};

/// Type of the object that a device names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOf {
    /// A network interface.
    Interface,
    /// A capture file.
    File,
    /// A simulated link.
    Link,
    /// A group of a hub, which runs already.
    Group,
}

/// Description of one kind of source.
pub struct Kind {
    /// Word before the colon; empty for an interface without a source.
    pub word: &'static str,
    /// A device of this kind.
    pub example: &'static str,
    /// One-line description of the kind.
    pub meaning: &'static str,
    /// Type of the object that its name stands for.
    pub name_of: NameOf,
    /// Its options, in the order of the canonical text.
    pub keys: &'static [&'static OptionKey],
    /// Options that its users may expect, and why it lacks them.
    pub lacks: &'static [(&'static str, &'static str)],
    /// Kinds that are tried in this order in its place.
    pub tries: &'static [&'static Kind],
    /// Hooks of the kernel at which its program sees packets.
    pub hooks: &'static [Mode],
    /// Purpose for which it needs rights.
    pub purpose: Option<Purpose>,
    /// Whether it can capture some receive queues only.
    pub selects_queues: bool,
    /// Each packet takes a cell of the pool, however short it is.
    pub has_cells: bool,
    /// Whether it opens an interface that is down, and waits for it.
    pub opens_when_down: bool,
    /// Whether it can wait for rules before it writes its first packet.
    pub waits_for_rules: bool,
    /// Whether its program in the kernel can count packets for a probe.
    pub meters: bool,
    /// Whether its group is of the host's hub, seen from a virtual machine.
    pub is_of_host: bool,
    /// Advice on packets that the kernel lost; `{name}` is the interface.
    pub kernel_losses: &'static [&'static str],
}

impl Kind {
    /// A kind that can nothing; for the fields that a description leaves out.
    pub(super) const PLAIN: Self = Self {
        word: "",
        example: "",
        meaning: "",
        name_of: NameOf::Interface,
        keys: &[],
        lacks: &[],
        tries: &[],
        hooks: &[],
        purpose: None,
        selects_queues: false,
        has_cells: false,
        opens_when_down: false,
        waits_for_rules: false,
        meters: false,
        is_of_host: false,
        kernel_losses: &[],
    };

    /// Whether its name is that of a network interface.
    #[must_use]
    pub fn names_an_interface(&self) -> bool {
        self.name_of == NameOf::Interface
    }

    /// Whether its name is that of a group of a hub, which runs already.
    #[must_use]
    pub fn names_a_group(&self) -> bool {
        self.name_of == NameOf::Group
    }

    /// Whether its name is that of a capture file.
    #[must_use]
    pub fn names_a_file(&self) -> bool {
        self.name_of == NameOf::File
    }

    /// Whether its packets come from a network.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.names_an_interface() || self.names_a_group()
    }

    /// Whether it is what an interface without a source stands for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.word.is_empty()
    }

    /// Whether it has an option of this name.
    #[must_use]
    pub fn has_key(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }

    /// Fails if the process can open no source of this kind.
    ///
    /// # Errors
    ///
    /// Names the rights that the process lacks for the source that is tried first.
    pub fn require_rights(&self, rights: &Rights) -> Result<(), RightsError> {
        match self.tries {
            [_, others @ ..] if others.iter().any(|it| it.require_rights(rights).is_ok()) => Ok(()),
            [first, ..] => first.require_rights(rights),
            [] => self
                .purpose
                .map_or(Ok(()), |purpose| rights.require(purpose)),
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_default() {
            "default"
        } else {
            self.word
        })
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
