// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of the `packet` source, and of a file that is a pipe: rules are set between its packets.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::thread;

use ringtap_capture::packet;
use ringtap_capture::pcap::{self, PcapOptions};
use ringtap_filter::flow::conformance;
use ringtap_pool::source::{Counts, Source};
use ringtap_testkit::{Namespace, require_root, require_tool};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::capture::Capture;
use crate::flow_sources::{Conforming, FlowSource, OnInterface, Taken};
use crate::options;

fn finish(source: Source) -> (Vec<Taken>, Counts) {
    let (packets, counts) = Capture::of(source).finish();
    let taken = |it: crate::Captured| (it.slot.time_ns, it.slot.mask, it.data);
    (packets.into_iter().map(taken).collect(), counts)
}

#[test]
fn the_table_of_the_packet_source_conforms() {
    require_root!();
    require_tool!("ip", "python3");
    conformance::check(&mut Conforming(OnInterface {
        name: "packet".to_owned(),
        open: |net: &Namespace| {
            let opened = net.enter(|| packet::open(&options()));
            opened.expect("the source opens")
        },
        finish,
        both_ways: true,
        net: None,
    }));
}

/// A pipe in the format of a pcap file.
#[derive(Default)]
struct Pipe {
    folder: Option<TempDir>,
    writer: Option<File>,
    packets: u32,
}

impl FlowSource for Pipe {
    fn name(&self) -> String {
        "pcap".to_owned()
    }

    fn open(&mut self) -> Source {
        let folder = self.folder.insert(TempDir::new().unwrap());
        let path = folder.path().join("pipe.pcap");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut header = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
        header.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        header.extend([262_144_u32, 1].map(u32::to_le_bytes).concat());
        thread::scope(|scope| {
            // The source waits for the first packet.
            let writer = scope.spawn(|| {
                let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
                writer.write_all(&header).unwrap();
                self.writer = Some(writer);
                self.packets = 0;
                self.send(&[vec![0; 60]]);
            });
            let source = pcap::open(&PcapOptions::new(path.to_str().unwrap()));
            writer.join().unwrap();
            source.unwrap()
        })
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            self.packets += 1;
            let length = u32::try_from(packet.len()).unwrap();
            let record = [1, self.packets, length, length].map(u32::to_le_bytes);
            let bytes = [&record.concat(), packet].map(Vec::as_slice).concat();
            self.writer.as_mut().unwrap().write_all(&bytes).unwrap();
        }
    }

    fn finish(&mut self, source: Source) -> (Vec<Taken>, Counts) {
        self.writer = None;
        finish(source)
    }
}

#[test]
fn the_table_of_a_file_conforms() {
    conformance::check(&mut Conforming(Pipe::default()));
}
