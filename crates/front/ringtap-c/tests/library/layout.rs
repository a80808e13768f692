// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C compiler and the library agree on structures and numbers.

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use ringtap_c::types::{
    self, CFlowDirection, CFlowEvent, CFlowRule, CLastGap, COptions, CSource, CStatistics,
    CursorPacket,
};
use ringtap_pool::counters::TERMS;

use crate::support::{build, installed, with_library};

/// A line of the C program, and its expected output.
struct Fact {
    expression: String,
    value: i128,
}

macro_rules! facts {
    ($all:ident, $c:literal, $rust:ty, $($field:ident),+) => {
        $all.push(fact(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>()));
        $($all.push(fact(
            concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
            offset_of!($rust, $field),
        ));)+
    };
}

fn fact(expression: &str, value: impl TryInto<i128>) -> Fact {
    let value = value.try_into();
    Fact {
        expression: expression.to_owned(),
        value: value.unwrap_or_else(|_| panic!("{expression} is a number")),
    }
}

fn structures() -> Vec<Fact> {
    let mut all = Vec::new();
    facts!(
        all,
        "ringtap_options",
        COptions,
        size,
        name,
        filter,
        credit_chunks,
        watermark_packets,
        time_limit_ms,
        flags,
        marks,
        order_ms,
        reserved
    );
    facts!(
        all,
        "ringtap_packet",
        CursorPacket,
        time_ns,
        sequence,
        lost_before,
        data,
        captured_bytes,
        wire_bytes,
        lane,
        hash,
        source,
        queue,
        flags
    );
    facts!(
        all,
        "ringtap_flow_rule",
        CFlowRule,
        size,
        flow,
        action,
        reserved,
        packets,
        bytes,
        lasts_ms,
        group
    );
    facts!(
        all,
        "ringtap_flow_direction",
        CFlowDirection,
        packets,
        bytes,
        first_ns,
        last_ns,
        tcp_flags,
        reserved
    );
    facts!(
        all,
        "ringtap_flow_event",
        CFlowEvent,
        size,
        flow,
        why,
        counted,
        lost_before,
        directions
    );
    facts!(
        all,
        "ringtap_source",
        CSource,
        size,
        device,
        offered_from,
        link_type,
        snap_length_bytes,
        first_lane,
        lanes
    );
    facts!(
        all,
        "ringtap_gap",
        CLastGap,
        size,
        sequence,
        duration_ns,
        after,
        lane,
        number
    );
    facts!(
        all,
        "ringtap_statistics",
        CStatistics,
        size,
        balanced,
        ended
    );
    for term in &TERMS {
        let name = term.name.replace('.', "_");
        let at = offset_of!(CStatistics, counters) + term.offset();
        all.push(fact(
            &format!("offsetof(struct ringtap_statistics, {name})"),
            at,
        ));
    }
    all
}

fn numbers() -> Vec<Fact> {
    use ringtap_pool::format::flag;
    vec![
        fact("RINGTAP_OK", types::OK),
        fact("RINGTAP_END", types::END),
        fact("RINGTAP_ERROR_ARGUMENT", types::ERROR_ARGUMENT),
        fact("RINGTAP_ERROR_HANDLE", types::ERROR_HANDLE),
        fact("RINGTAP_ERROR_BUSY", types::ERROR_BUSY),
        fact("RINGTAP_ERROR_NO_HUB", types::ERROR_NO_HUB),
        fact("RINGTAP_ERROR_REFUSED", types::ERROR_REFUSED),
        fact("RINGTAP_ERROR_FILTER", types::ERROR_FILTER),
        fact("RINGTAP_ERROR_HUB_LEFT", types::ERROR_HUB_LEFT),
        fact("RINGTAP_ERROR_CORRUPT", types::ERROR_CORRUPT),
        fact("RINGTAP_ERROR_SYSTEM", types::ERROR_SYSTEM),
        fact("RINGTAP_ERROR_INTERNAL", types::ERROR_INTERNAL),
        fact("RINGTAP_OPEN_PRIVATE", types::OPEN_PRIVATE),
        fact("RINGTAP_IGNORE", types::IGNORE),
        fact("RINGTAP_CUTOFF", types::CUTOFF),
        fact("RINGTAP_SAMPLE", types::SAMPLE),
        fact("RINGTAP_MIRROR", types::MIRROR),
        fact("RINGTAP_FORWARD", types::FORWARD),
        fact("RINGTAP_FLOW_ENDED", types::FLOW_ENDED),
        fact("RINGTAP_FLOW_IDLE", types::FLOW_IDLE),
        fact("RINGTAP_FLOW_RESTARTED", types::FLOW_RESTARTED),
        fact("RINGTAP_FLOW_EVICTED", types::FLOW_EVICTED),
        fact("RINGTAP_FLOW_REMOVED", types::FLOW_REMOVED),
        fact("RINGTAP_PASS", types::PASS),
        fact("RINGTAP_FOR_GOOD", types::FOR_GOOD),
        fact("RINGTAP_FOR_TIME", types::FOR_TIME),
        fact("RINGTAP_UNTIL_IDLE", types::UNTIL_IDLE),
        fact("RINGTAP_DROP", types::DROP),
        fact("RINGTAP_PACKET_OUT", flag::OUT),
        fact("RINGTAP_PACKET_VLAN_RESTORED", flag::VLAN_RESTORED),
        fact("RINGTAP_PACKET_HASHED", flag::HASHED),
        fact("RINGTAP_PACKET_PARTIAL_CHECKSUM", flag::PARTIAL_CHECKSUM),
        fact("RINGTAP_PACKET_SUPER", flag::SUPER),
        fact("RINGTAP_PACKET_NIC_TIME", flag::NIC_TIME),
        fact("RINGTAP_PACKET_MARKED", flag::MARKED),
        fact("RINGTAP_PACKET_AFTER_GAP", ringtap_client::AFTER_GAP),
    ]
}

#[test]
fn a_c_compiler_sees_the_structures_and_numbers_that_the_library_uses() {
    let facts: Vec<_> = structures().into_iter().chain(numbers()).collect();
    let mut program = "#include <stdio.h>\n#include <ringtap.h>\nint main(void)\n{\n".to_owned();
    for fact in &facts {
        let line = format!(
            "    printf(\"%lld\\n\", (long long)({}));\n",
            fact.expression
        );
        program.write_str(&line).expect("a string takes text");
    }
    program += "    return 0;\n}\n";
    let source = installed().join("sizes.c");
    fs::write(&source, program).expect("the folder can be written");
    let command = with_library(Command::new(build(&source)), "/nowhere".as_ref());
    let output = { command }.output().expect("it can be run");
    let printed = String::from_utf8(output.stdout).expect("numbers");
    assert_eq!(printed.lines().count(), facts.len());
    for (line, fact) in printed.lines().zip(&facts) {
        assert_eq!(line, fact.value.to_string(), "{}", fact.expression);
    }
}

#[test]
fn the_header_is_cplusplus_too() {
    if !ringtap_testkit::tool_exists("c++") {
        ringtap_testkit::say_skipped("needs the program c++");
        return;
    }
    let header = installed().join("include/ringtap.h");
    let output = Command::new("c++")
        .args([
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-x",
            "c++",
        ])
        .arg(header)
        .output()
        .expect("it can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
