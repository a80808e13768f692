// SPDX-License-Identifier: MIT OR Apache-2.0
//! Found packets as lines of text and as JSON objects: those of `ringtap packets`, with the file.

use anyhow::Result;
use ringtap_columns::{LinePacket, PacketLine, PacketOrigin};
use ringtap_filter::hash::Link;
use ringtap_index::FoundRecord;

use crate::print;

/// Prints found packets.
pub(super) struct FoundLines {
    lines: PacketLine,
    json: bool,
    text: String,
}

impl FoundLines {
    /// Lines of text, or JSON objects with Community IDs; with the packet inside a tunnel if `inner`.
    pub(super) fn new(inner: bool, json: bool) -> Self {
        FoundLines {
            lines: PacketLine::new(inner, json.then_some(0)),
            json,
            text: String::new(),
        }
    }

    /// Prints a packet.
    pub(super) fn packet(&mut self, packet: &FoundRecord<'_>) -> Result<()> {
        let file = packet.file.to_string_lossy();
        let packet = LinePacket {
            time_ns: packet.time_ns,
            wire_length: packet.wire_length,
            data: packet.data,
            link: Link::from_link_type(packet.interface.link_type),
            origin: PacketOrigin::File {
                file: &file,
                interface: packet.interface.name.as_deref(),
            },
        };
        self.text.clear();
        if self.json {
            self.lines.push_json(&packet, &mut self.text)?;
        } else {
            self.lines.push_text(&packet, &mut self.text);
        }
        print::line(self.text.trim_end_matches('\n'))
    }
}
