// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many filters in one program: loading and cost.

use ringtap_filter::{Program, ebpf::FilterHook};

use crate::kernel::Kernel;
use crate::program;

/// Typical filters, all different.
fn realistic(number: usize) -> String {
    let (a, b) = (number % 250 + 1, 1000 + number * 7);
    match number % 8 {
        0 => format!("host 10.0.0.{a} and port {b}"),
        1 => format!("tcp portrange {b}-{}", b + 50),
        2 => format!("ip6 and udp port {b}"),
        3 => format!("vlan {a} and ip"),
        4 => format!("net 10.{a}.0.0/16 and not tcp port {b}"),
        5 => format!("tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and dst host 192.168.0.{a}"),
        6 => format!("src host 172.16.0.{a} or (udp and dst port {b})"),
        _ => format!("icmp or arp or ip6 host 2001:db8::{a}"),
    }
}

fn programs(count: usize, text: impl Fn(usize) -> String) -> Vec<Program> {
    (0..count).map(|number| program(&text(number))).collect()
}

/// An Ethernet packet with TCP over IPv4, 60 bytes.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0, 0x45, 0, 0, 46];
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 9, 9, 1, 10, 9, 9, 2]);
    packet.extend([0x9c, 0x40, 0x01, 0xbb]);
    packet.resize(60, 0);
    packet
}

/// The n-th filter of a kind.
type Text = fn(usize) -> String;

#[test]
fn sixty_four_filters_load_as_one_program() {
    ringtap_testkit::require_root!();
    let kinds: [(&str, Text); 4] = [
        ("mixed", realistic),
        ("host", |n| format!("host 10.0.0.{}", n + 1)),
        ("tcp port", |n| format!("tcp port {}", n + 1)),
        ("host and port", |n| {
            format!("host 10.0.0.{} and port {}", n + 1, n + 1000)
        }),
    ];
    for (kind, text) in kinds {
        for count in [1, 8, 64] {
            for hook in [FilterHook::Xdp, FilterHook::Tc] {
                let kernel = Kernel::load(&programs(count, text), hook);
                let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
                let ns = kernel.repeat(&tcp(), None, 65535, 200_000).unwrap();
                let tagged = kernel
                    .repeat(&tcp(), Some([0x81, 0, 0, 7]), 65535, 20_000)
                    .unwrap();
                let size = kernel.size();
                // A small part of the million instructions that the verifier allows.
                assert!(size.verified < 30_000, "{kind} {count}: {size:?}");
                assert!(size.instructions < 10_000, "{kind} {count}: {size:?}");
                println!("{kind} {count} {hook:?}: {ns} ns, tagged {tagged} ns, {size:?}",);
            }
        }
    }
}

#[test]
fn loads_behind_a_restored_tag_take_a_few_times_as_long_at_most() {
    ringtap_testkit::require_root!();
    let mut entries = vec![0x40 | 200 << 32; 200];
    entries.push(1 << 32 | 0x06);
    let loads = Program::from_entries(&entries).unwrap();
    let mut packet = tcp();
    packet.resize(1514, 0);
    for hook in [FilterHook::Xdp, FilterHook::Tc] {
        let kernel = Kernel::load(std::slice::from_ref(&loads), hook).unwrap();
        let time = |tag| {
            let runs = (0..9).map(|_| kernel.repeat(&packet, tag, 65535, 1000).unwrap());
            runs.min().unwrap()
        };
        let (plain, tagged) = (time(None), time(Some([0x81, 0, 0, 7])));
        println!("{hook:?}: {plain} ns, tagged {tagged} ns");
        // Read in place: 2 to 3 times. By the kernel's helper it was 8 times.
        assert!(
            tagged < 5 * plain,
            "{hook:?}: {plain} ns, tagged {tagged} ns"
        );
    }
}
