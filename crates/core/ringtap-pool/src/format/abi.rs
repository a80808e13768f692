// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the definitions in `bpf/ringtap.h` with this crate's, for the host and for eBPF.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/ringtap.h");

/// C expressions of the header, and this crate's values.
fn claims() -> Vec<(String, u64)> {
    let constants = [
        ("RT_MAGIC", MAGIC),
        ("RT_VERSION", VERSION.into()),
        ("RT_MAX_CHUNK_SIZE", MAX_CHUNK_SIZE.into()),
        ("RT_SEALED", SEALED.into()),
        ("RT_OUT", flag::OUT.into()),
        ("RT_VLAN_RESTORED", flag::VLAN_RESTORED.into()),
        ("RT_HASHED", flag::HASHED.into()),
        ("RT_PARTIAL_CHECKSUM", flag::PARTIAL_CHECKSUM.into()),
        ("RT_SUPER", flag::SUPER.into()),
        ("RT_NIC_TIME", flag::NIC_TIME.into()),
        ("RT_MARKED", flag::MARKED.into()),
        ("sizeof(struct rt_region)", wide(REGION_HEADER_SIZE)),
        ("sizeof(struct rt_chunk)", wide(CHUNK_HEADER_SIZE)),
        ("sizeof(struct rt_slot)", wide(SLOT_SIZE)),
    ];
    let members = [
        ("rt_region, magic", region::MAGIC, 8),
        ("rt_region, version", region::VERSION, 4),
        ("rt_region, header_size", region::HEADER_SIZE, 4),
        ("rt_region, features", region::FEATURES, 8),
        ("rt_region, chunk_size", region::CHUNK_SIZE, 4),
        ("rt_region, chunk_count", region::CHUNK_COUNT, 4),
        ("rt_region, lane_count", region::LANE_COUNT, 4),
        ("rt_region, snap_length", region::SNAP_LENGTH, 4),
        ("rt_region, segment_size", region::SEGMENT_SIZE, 8),
        ("rt_region, segment_stride", region::SEGMENT_STRIDE, 8),
        ("rt_region, epoch", region::EPOCH, 8),
        ("rt_chunk, state", chunk::STATE, 4),
        ("rt_chunk, lane", chunk::LANE, 4),
        ("rt_chunk, first_sequence", chunk::FIRST_SEQUENCE, 8),
        ("rt_chunk, chunk_sequence", chunk::CHUNK_SEQUENCE, 8),
        ("rt_chunk, lost_before", chunk::LOST_BEFORE, 8),
        ("rt_chunk, wanted", chunk::WANTED, 8),
        ("rt_chunk, gap_sequence", chunk::GAP_SEQUENCE, 8),
        ("rt_chunk, gap_ns", chunk::GAP_NS, 8),
        ("rt_chunk, gap_after", chunk::GAP_AFTER, 8),
        ("rt_slot, time_ns", 0, 8),
        ("rt_slot, mask", 8, 8),
        ("rt_slot, hash", 16, 4),
        ("rt_slot, wire_length", 20, 4),
        ("rt_slot, captured", 24, 4),
        ("rt_slot, payload", 28, 2),
        ("rt_slot, queue", 30, 2),
    ];
    let mut claims: Vec<_> = constants.map(|(name, value)| (name.into(), value)).into();
    for (member, offset, size) in members {
        let access = member.replace(", ", " *)0)->");
        claims.push((format!("__builtin_offsetof(struct {member})"), wide(offset)));
        claims.push((format!("sizeof(((struct {access})"), size));
    }
    claims
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap()
}

/// Compiles C code that includes the header; panics with the compiler's message.
fn compile(compiler: &str, arguments: &[&str], program: &str) {
    let mut child = Command::new(compiler)
        .args(arguments)
        .args(["-xc", "-", "-include", HEADER])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler}: {error}: install it"));
    let mut input = child.stdin.take().unwrap();
    input.write_all(program.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} disagrees:\n{words}");
}

/// Every offset, size and constant as a static assertion.
fn assertions() -> String {
    let assertion = |(c, value)| format!("_Static_assert({c} == {value}ULL, \"not {value}\");\n");
    claims().into_iter().map(assertion).collect()
}

#[test]
#[cfg_attr(miri, ignore = "runs a compiler")]
fn the_header_agrees_on_this_host() {
    compile("cc", &["-fsyntax-only"], &assertions());
}

#[test]
#[cfg_attr(miri, ignore = "runs a compiler")]
fn the_header_agrees_in_ebpf() {
    let kernel_types = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let arguments = ["-target", "bpf", "-fsyntax-only", &kernel_types];
    compile("clang", &arguments, &assertions());
}

/// Names defined in the header: constants, and members with their structure.
fn names_in_header() -> BTreeSet<String> {
    let text = std::fs::read_to_string(HEADER).unwrap();
    let mut names = BTreeSet::new();
    let mut structure = "";
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["#define", name, _, ..] => drop(names.insert(name.into())),
            ["struct", name, "{"] => structure = name,
            [kind, name, ..] if kind.starts_with("__u") => {
                let name = name.split(['[', ';']).next().unwrap();
                names.insert(format!("{structure}, {name}"));
            }
            _ => {}
        }
    }
    names
}

#[test]
#[cfg_attr(miri, ignore = "reads a file")]
fn no_name_of_the_header_is_left_out() {
    let names = names_in_header();
    assert!(names.len() > 30, "the header was understood: {names:?}");
    let claimed = |name: &String| {
        let offset = format!("__builtin_offsetof(struct {name})");
        claims().iter().any(|(c, _)| c == name || *c == offset)
    };
    let left_out: Vec<_> = names.iter().filter(|name| !claimed(name)).collect();
    assert!(left_out.is_empty(), "not compared: {left_out:?}");
}

/// A C program reads bytes written by this crate through the header's structures.
#[test]
#[cfg_attr(miri, ignore = "runs a compiler")]
fn c_reads_the_slot_and_the_region_that_we_write() {
    let slot = Slot {
        time_ns: 0x1122_3344_5566_7788,
        mask: 0x99aa_bbcc_ddee_ff00,
        hash: 0x0102_0304,
        wire_length: 0x0506_0708,
        captured_length: 0x0009_0a0b,
        flags: 0x1d,
        payload: 0x1e1f,
        queue: 0x2021,
    };
    let geometry = Geometry {
        chunk_size: 8192,
        chunk_count: 77,
        lane_count: 3,
        snap_length: 999,
        segment_size: 1 << 20,
        segment_stride: (1 << 20) + 4096,
    };
    let words = slot.to_words().map(|word| format!("{word}ULL")).join(",");
    let header = geometry.header(42).map(|byte| byte.to_string()).join(",");
    let program = format!(
        "static union {{ unsigned long long words[4]; struct rt_slot slot; }} s = {{{{{words}}}}};
        static union {{ unsigned char bytes[64]; struct rt_region region; }} r = {{{{{header}}}}};
        int main(void) {{
            struct rt_slot *slot = &s.slot; struct rt_region *region = &r.region;
            return !(slot->time_ns == {}ULL && slot->mask == {}ULL && slot->hash == {}
                && slot->wire_length == {} && slot->captured == ({} | {}U << 24)
                && slot->payload == {} && slot->queue == {} && region->magic == RT_MAGIC
                && region->version == RT_VERSION && region->header_size == sizeof(*region)
                && region->features == 0 && region->chunk_size == {} && region->chunk_count == {}
                && region->lane_count == {} && region->snap_length == {}
                && region->segment_size == {} && region->segment_stride == {} && region->epoch == 42);
        }}",
        slot.time_ns,
        slot.mask,
        slot.hash,
        slot.wire_length,
        slot.captured_length,
        slot.flags,
        slot.payload,
        slot.queue,
        geometry.chunk_size,
        geometry.chunk_count,
        geometry.lane_count,
        geometry.snap_length,
        geometry.segment_size,
        geometry.segment_stride,
    );
    let name = format!("ringtap-abi-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    compile("cc", &["-o", path.to_str().unwrap()], &program);
    let status = Command::new(&path).status().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(
        status.success(),
        "C reads other values than we wrote: {slot:?}, {geometry:?}"
    );
}
