// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every engine agrees with libpcap's interpreter.

use std::ffi::c_uint;

use ringtap_filter::{Instruction, Program, ebpf::FilterHook};
use ringtap_filter::{LinkType, text};

use crate::kernel::Kernel;
use crate::{dice::Dice, grammar, packets};

/// Verdict of libpcap's own interpreter.
fn libpcap(program: &[Instruction], data: &[u8], wire_length: u32) -> bool {
    #[link(name = "pcap")]
    unsafe extern "C" {
        fn bpf_filter(
            program: *const Instruction,
            packet: *const u8,
            wire_length: c_uint,
            captured: c_uint,
        ) -> c_uint;
    }
    let captured = c_uint::try_from(data.len()).unwrap();
    // SAFETY: the program was checked, and both slices live until the call returns.
    unsafe { bpf_filter(program.as_ptr(), data.as_ptr(), wire_length, captured) != 0 }
}

/// A filter and its text.
pub(crate) struct Case {
    pub(crate) expression: String,
    pub(crate) program: Program,
}

/// Filters that libpcap compiles and the kernel can run.
fn cases(dice: &mut Dice, count: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for _ in 0..count * 20 {
        let expression = grammar::expression(dice);
        if let Ok(program) = text::compile(&expression, LinkType::ETHERNET, 65535) {
            cases.push(Case {
                expression,
                program,
            });
        }
        if cases.len() == count {
            return cases;
        }
    }
    panic!("the grammar gives hardly any filter that libpcap takes");
}

fn bits(verdicts: impl Iterator<Item = bool>) -> u64 {
    verdicts
        .enumerate()
        .fold(0, |mask, (bit, verdict)| mask | u64::from(verdict) << bit)
}

/// Compares all engines on one packet; returns the mask.
pub(crate) fn compare(cases: &[Case], kernels: &[Kernel], packet: &[u8], snap_length: u32) -> u64 {
    let (data, wire_length) = captured(packet, snap_length);
    let libpcap = cases
        .iter()
        .map(|case| libpcap(case.program.instructions(), data, wire_length));
    let expected = bits(libpcap);
    let ours = compare_ours(cases, kernels, packet, snap_length);
    assert_same("our interpreter", cases, (ours, expected), data);
    expected
}

fn captured(packet: &[u8], snap_length: u32) -> (&[u8], u32) {
    let kept = usize::try_from(snap_length).unwrap().min(packet.len());
    (&packet[..kept], u32::try_from(packet.len()).unwrap())
}

/// Like [`compare`], for programs that libpcap's interpreter leaves undefined, because it does not
/// clear its scratch words.
pub(crate) fn compare_ours(
    cases: &[Case],
    kernels: &[Kernel],
    packet: &[u8],
    snap_length: u32,
) -> u64 {
    let (data, wire_length) = captured(packet, snap_length);
    let ours = cases
        .iter()
        .map(|case| case.program.matches(data, wire_length));
    let expected = bits(ours);
    for kernel in kernels {
        let name = format!("eBPF at {:?}", kernel.hook());
        if kernel.takes(packet) {
            let mask = kernel.run(packet, None, snap_length).unwrap();
            assert_same(&name, cases, (mask, expected), data);
        }
        let Some((tag, stripped)) = strip(packet).filter(|(_, rest)| kernel.takes(rest)) else {
            continue;
        };
        let mask = kernel.run(&stripped, Some(tag), snap_length).unwrap();
        let name = format!("{name}, tag put back");
        assert_same(&name, cases, (mask, expected), data);
    }
    expected
}

/// The packet without its VLAN tag, as from a NIC that strips tags.
fn strip(packet: &[u8]) -> Option<([u8; 4], Vec<u8>)> {
    let tag: [u8; 4] = *packet.get(12..)?.first_chunk()?;
    (tag != [0; 4]).then(|| (tag, [&packet[..12], &packet[16..]].concat()))
}

fn assert_same(engine: &str, cases: &[Case], (mask, expected): (u64, u64), data: &[u8]) {
    let wrong = mask ^ expected;
    if wrong != 0 {
        let case = &cases[usize::try_from(wrong.trailing_zeros()).unwrap()];
        panic!(
            "{engine} differs (mask {mask:#x}, expected {expected:#x})\nfilter: {}\n{:?}\npacket, {} bytes: {data:02x?}",
            case.expression,
            case.program.instructions(),
            data.len(),
        );
    }
}

/// The filters at both hooks.
pub(crate) fn load(cases: &[Case]) -> [Kernel; 2] {
    let programs: Vec<_> = cases.iter().map(|case| case.program.clone()).collect();
    [FilterHook::Xdp, FilterHook::Tc].map(|hook| match Kernel::load(&programs, hook) {
        Ok(kernel) => kernel,
        Err(error) => panic!("{hook:?}: {error}"),
    })
}

/// `RINGTAP_SEED`, or a constant.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("RINGTAP_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn thousands_of_filters_have_one_verdict_in_every_engine() {
    ringtap_testkit::require_root!();
    let (mut taken, mut runs) = (0, 0_u64);
    for batch in 0..20 {
        let mut dice = Dice::new(seed() * 1000 + batch);
        let cases = cases(&mut dice, 64);
        let kernels = load(&cases);
        for kernel in &kernels {
            let size = kernel.size();
            println!("batch {batch}, {:?}: {size:?}", kernel.hook());
            // A fifth of what the verifier allows.
            assert!(size.verified < 200_000, "batch {batch}: {size:?}");
        }
        for _ in 0..250 {
            let packet = packets::packet(&mut dice);
            let snap_length = dice.pick(&[65535, 65535, 65535, 40, 60, 96, 1]);
            taken += compare(&cases, &kernels, &packet, snap_length).count_ones();
            runs += 64;
        }
    }
    // Neither always true nor always false.
    assert!(
        u64::from(taken) > runs / 20 && u64::from(taken) < runs / 2,
        "{taken} of {runs}"
    );
}
