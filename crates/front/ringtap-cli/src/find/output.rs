// SPDX-License-Identifier: MIT OR Apache-2.0
//! File with the found packets.
//!
//! Invariant: a pcapng file describes each interface of the searched files once, before its first packet.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, bail};
use ringtap_file::FileInterface;
use ringtap_file::write::{self, FilePacket, Origin, classic};
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH};
use ringtap_index::FoundRecord;
use ringtap_ipc::folder::link_flags;
use ringtap_pool::number::to_u32;

use crate::print::NobodyReads;

/// Interface of a searched file; equal if the pcapng file describes both in one block.
struct InterfaceKey(Arc<FileInterface>);

impl InterfaceKey {
    fn fields(&self) -> (Option<&str>, LinkType, Option<&str>) {
        let FileInterface { name, filter, .. } = &*self.0;
        (name.as_deref(), self.0.link_type, filter.as_deref())
    }
}

impl PartialEq for InterfaceKey {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl Eq for InterfaceKey {}

impl Hash for InterfaceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields().hash(state);
    }
}

/// The file that is written.
pub(super) struct FoundFile {
    name: String,
    out: BufWriter<File>,
    kind: FileKind,
    buffer: Vec<u8>,
}

enum FileKind {
    Pcap(Option<LinkType>),
    Pcapng(HashMap<InterfaceKey, u32>),
}

impl FoundFile {
    /// Creates the file; `-` is standard output.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = if path == Path::new("-") {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let flags = link_flags(path);
            let opened = options.custom_flags(flags).open(path);
            opened.with_context(|| format!("{name}: cannot be created"))?
        };
        let mut buffer = Vec::new();
        let kind = if path.extension().is_some_and(|ending| ending == "pcap") {
            FileKind::Pcap(None)
        } else {
            let application = format!("ringtap find {}", env!("CARGO_PKG_VERSION"));
            let origin = Origin {
                hardware: None,
                os: None,
                application,
            };
            write::section(&mut buffer, &origin);
            FileKind::Pcapng(HashMap::new())
        };
        let mut found = FoundFile {
            name,
            out: BufWriter::with_capacity(256 * 1024, file),
            kind,
            buffer,
        };
        found.pass_on()?;
        Ok(found)
    }

    /// Device and inode of the file; `None` for what is no file.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        let found = self.out.get_ref().metadata().ok()?;
        found.is_file().then(|| (found.dev(), found.ino()))
    }

    /// Appends a packet.
    pub(super) fn packet(&mut self, packet: &FoundRecord<'_>) -> Result<()> {
        let interface = packet.interface;
        let number = match &mut self.kind {
            FileKind::Pcap(link_type) => {
                if link_type.is_none() {
                    classic::file_header(&mut self.buffer, interface.link_type);
                }
                if *link_type.get_or_insert(interface.link_type) != interface.link_type {
                    bail!(
                        "{}: the packets have several link types, which a pcap file cannot hold: write a pcapng file",
                        self.name
                    );
                }
                0
            }
            FileKind::Pcapng(known) => {
                let next = to_u32(known.len());
                let key = InterfaceKey(Arc::clone(interface));
                *known.entry(key).or_insert_with(|| {
                    let interface = FileInterface {
                        // libpcap reads no file whose interfaces differ in it.
                        snap_length: MAX_SNAP_LENGTH,
                        ..FileInterface::clone(interface)
                    };
                    write::interface(&mut self.buffer, &interface, None);
                    next
                })
            }
        };
        let packet = FilePacket {
            interface: number,
            wire_length: packet.wire_length,
            direction: packet.direction,
            dropped_before: packet.dropped_before,
            ..FilePacket::new(packet.time_ns, packet.data)
        };
        match self.kind {
            FileKind::Pcap(_) => classic::packet(&mut self.buffer, &packet),
            FileKind::Pcapng(_) => write::packet(&mut self.buffer, &packet),
        }
        self.pass_on()
    }

    /// Writes what is in memory.
    pub(super) fn finish(mut self) -> Result<()> {
        if let FileKind::Pcap(None) = self.kind {
            classic::file_header(&mut self.buffer, LinkType::ETHERNET);
        }
        self.pass_on()?;
        self.out.flush().map_err(|error| failed(&self.name, error))
    }

    fn pass_on(&mut self) -> Result<()> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| failed(&self.name, error))
    }
}

fn failed(name: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(NobodyReads),
        _ => Error::new(error).context(format!("{name}: cannot be written")),
    }
}
