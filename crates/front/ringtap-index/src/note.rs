// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes for the user of a search.

use std::fmt;
use std::path::PathBuf;

/// What the user of a search should know; its text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchNote {
    /// A folder, or a file in a folder, cannot be read.
    Unreadable {
        /// Its name.
        path: PathBuf,
        /// The system's reason.
        cause: String,
    },
    /// A file is damaged, cut off, or cannot be read; packets before the damage were searched.
    Damaged {
        /// The reader's message.
        message: String,
    },
    /// A file was replaced or cut while it was searched: some of its packets may be missing.
    Changed {
        /// Its name.
        file: String,
    },
    /// The filter means nothing for packets of this link type, which never match.
    LinkType {
        /// Name of the link type.
        link_type: String,
        /// The reason.
        cause: String,
    },
    /// Memory did not suffice to bring all packets into the order of their times.
    Order {
        /// Packets that came after later ones.
        packets: u64,
    },
}

impl SearchNote {
    /// Whether packets may be missing from the result.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        !matches!(self, SearchNote::LinkType { .. } | SearchNote::Order { .. })
    }
}

impl fmt::Display for SearchNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SearchNote::Unreadable { path, cause } => {
                write!(f, "{}: cannot be read: {cause}", path.display())
            }
            SearchNote::Damaged { message } => f.write_str(message),
            SearchNote::Changed { file } => write!(
                f,
                "{file}: was changed while it was searched: packets of it may be missing"
            ),
            SearchNote::LinkType { link_type, cause } => {
                write!(f, "packets of {link_type} never match: {cause}")
            }
            SearchNote::Order { packets } => write!(
                f,
                "{packets} packets come later than their times: the memory for the order is used up"
            ),
        }
    }
}
