// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library has libpcap's symbols and structure layouts, the documentation names every function,
//! and the library works under both of libpcap's names.

use std::collections::BTreeSet;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ringtap_pcap::abi::{BpfProgram, PacketHeader, PcapDevice, PcapStatistics};
use ringtap_pcap::list::{OURS, PASSED};

use ringtap_testkit::{Namespace, Running, require_root, require_tool};

use crate::programs::{SENT, begun, expected, pause, text};
use crate::support::{
    LIMIT, Tags, assert_same, crate_folder, frames, library, prefix, real, records, whole_records,
};

type Names = BTreeSet<String>;

/// Names and kinds that a library exports.
fn exported(library: &Path) -> BTreeSet<(String, String)> {
    let output = Command::new("readelf")
        .args(["--dyn-syms", "--wide"])
        .arg(library)
        .output()
        .expect("readelf comes with the C compiler");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("readelf prints text");
    let symbols = text.lines().filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [_, _, size, kind, bind, _, index, name] = columns[..] else {
            return None;
        };
        let is_data = kind == "OBJECT";
        let what = if is_data {
            format!("data of {size}")
        } else {
            kind.to_owned()
        };
        let defined = index != "UND" && index != "Ndx" && bind == "GLOBAL";
        defined.then(|| (name.to_owned(), what))
    });
    symbols.collect()
}

#[test]
fn it_exports_what_libpcap_exports_and_its_own_mark() {
    let mut ours = exported(&library());
    assert!(ours.remove(&("ringtap_pcap_version".into(), "FUNC".into())));
    assert_eq!(ours, exported(&real()));
}

#[test]
fn it_needs_no_library_but_the_systems() {
    let output = Command::new("readelf")
        .args(["--dynamic", "--wide"])
        .arg(library())
        .output()
        .expect("readelf comes with the C compiler");
    let text = String::from_utf8(output.stdout).expect("readelf prints text");
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let known = [
            "libc.so",
            "libgcc_s.so",
            "ld-linux",
            "libm.so",
            "libdl.so",
            "libpthread.so",
        ];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}

#[test]
fn every_function_is_documented_as_it_is() {
    let page = crate_folder().join("../../../docs/libpcap.md");
    let page = fs::read_to_string(page).expect("the page is there");
    // Names in backquotes below the heading, up to the next heading.
    let listed = |heading: &str| -> Names {
        let section = page.split("\n### ").find(|part| part.starts_with(heading));
        let words = section
            .into_iter()
            .flat_map(|text| text.split('`').skip(1).step_by(2));
        let names = words.filter(|word| word.starts_with("pcap_") || word.starts_with("bpf_"));
        names.map(str::to_owned).collect()
    };
    let names = |list: &[&str]| -> Names { list.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(listed("Ringtap's own functions"), names(OURS));
    assert_eq!(listed("Forwarded functions"), names(PASSED));
    let both: Names = listed("Ringtap's own functions")
        .union(&listed("Forwarded functions"))
        .cloned()
        .collect();
    let functions = exported(&real())
        .into_iter()
        .filter(|(_, kind)| kind == "FUNC");
    assert_eq!(both, functions.map(|(name, _)| name).collect());
}

#[test]
fn structures_lie_as_those_of_the_header() {
    let expected = [
        (
            "struct pcap_pkthdr",
            "caplen",
            size_of::<PacketHeader>(),
            offset_of!(PacketHeader, captured_bytes),
        ),
        (
            "struct pcap_pkthdr",
            "len",
            size_of::<PacketHeader>(),
            offset_of!(PacketHeader, wire_bytes),
        ),
        (
            "struct pcap_stat",
            "ps_ifdrop",
            size_of::<PcapStatistics>(),
            offset_of!(PcapStatistics, interface_dropped),
        ),
        (
            "struct pcap_stat",
            "ps_drop",
            size_of::<PcapStatistics>(),
            offset_of!(PcapStatistics, dropped),
        ),
        (
            "struct bpf_program",
            "bf_insns",
            size_of::<BpfProgram>(),
            offset_of!(BpfProgram, instructions),
        ),
        (
            "struct pcap_if",
            "description",
            size_of::<PcapDevice>(),
            offset_of!(PcapDevice, description),
        ),
        (
            "struct pcap_if",
            "flags",
            size_of::<PcapDevice>(),
            offset_of!(PcapDevice, flags),
        ),
    ];
    let mut source = "#include <pcap/pcap.h>\n#include <stddef.h>\n".to_owned();
    for (name, member, size, offset) in expected {
        source += &format!("_Static_assert(sizeof({name}) == {size}, \"size\");\n");
        source += &format!("_Static_assert(offsetof({name}, {member}) == {offset}, \"place\");\n");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("layout.c");
    fs::write(&file, source).expect("a file");
    let output = Command::new("cc")
        .args(["-fsyntax-only", "-std=gnu11"])
        .arg(&file)
        .output();
    let output = output.expect("a C compiler is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn in_place_of_libpcap_by_either_name_it_serves_programs_without_exec() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_names");
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("names.c");
    let program = r#"
#include <pcap/pcap.h>
#include <stdio.h>
int main(void) {
    char errbuf[PCAP_ERRBUF_SIZE];
    struct pcap_pkthdr header;
    pcap_t *p = pcap_open_live("tap:rx0", 65535, 1, 100, errbuf);
    printf("%s\nready\n", p ? pcap_lib_version() : errbuf);
    fflush(stdout);
    while (p != NULL && pcap_next(p, &header) == NULL)
        ;
    printf("a packet of %u bytes\n", header.len);
    return p == NULL;
}
"#;
    fs::write(&source, program).expect("a file");
    let stub = folder.path().join("stub.c");
    let nothing = "const char *pcap_lib_version(void) { return \"a stub\"; }
void *pcap_open_live(void) { return 0; }
void *pcap_next(void) { return 0; }\n";
    fs::write(&stub, nothing).expect("a file");
    for name in ["libpcap.so.1", "libpcap.so.0.8"] {
        // Linked like a distribution's libpcap of this name.
        let stand_in = folder.path().join(name);
        let made = Command::new("cc")
            .args([
                "-shared",
                "-o",
                text(&stand_in),
                &format!("-Wl,-soname,{name}"),
            ])
            .arg(&stub)
            .status();
        assert!(made.expect("a C compiler").success());
        let built = folder.path().join("names");
        let made = Command::new("cc")
            .args(["-o", text(&built), text(&source), "-Wl,--no-as-needed"])
            .arg(&stand_in)
            .status();
        assert!(made.expect("a C compiler").success());
        let mut command = net.command(&built);
        command.env("LD_LIBRARY_PATH", prefix.join("lib/ringtap"));
        let reader = Running::start(command);
        reader.wait_for_stdout("ready", LIMIT);
        let sent = frames(1, Tags::None);
        net.inject("tx0", &sent);
        let told = reader.wait(LIMIT).success().stdout;
        let packet = format!("a packet of {} bytes", sent[0].len());
        for part in ["1.10", "through Ringtap", &packet] {
            assert!(told.contains(part), "{name}: {told}");
        }
        // The program did not close the handle, yet the capture ends.
        let end = Instant::now() + LIMIT;
        while net.has_xdp("rx0") && Instant::now() < end {
            pause(20);
        }
    }
    // The same for a packaged program. The capture process finds the real libpcap.
    let file = folder.path().join("dump.pcap");
    let mut command = net.command("tcpdump");
    command.args(["-Z", "root", "-Uni", "tap:rx0", "-w", text(&file)]);
    command.env("LD_LIBRARY_PATH", prefix.join("lib/ringtap"));
    let dump = begun(&net, Running::start(command), "listening on");
    net.inject("tx0", &frames(SENT, Tags::Some));
    let end = Instant::now() + LIMIT;
    while whole_records(&file) < usize::from(SENT) && Instant::now() < end {
        pause(50);
    }
    dump.interrupt();
    let told = dump.wait(LIMIT).success().stderr;
    assert_same(&records(&file), &expected(Tags::Some), &told);
}
