// SPDX-License-Identifier: MIT OR Apache-2.0
//! Balancing by users' programs, compiled here with clang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use ringtap_capture::tap::{Direction, Mode, Tap};
use ringtap_filter::{Balance, BucketMasks, FilterLocation, MASKS, Rule, Rules};
use ringtap_pool::counters::Counters;
use ringtap_testkit::{Namespace, require_root, require_tool, usable_cpus, with};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::rules::{HOOKS, classify};
use crate::support::{SOON, attach, finish, frame, options};

/// Balances by byte 14, with a function of its own and a counter in a map.
const BY_BYTE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

static __noinline int next_after(int byte)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&calls, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return byte + 257;
}

SEC("xdp")
int by_byte(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return data + 15 > end ? 0 : next_after(data[14]);
}

SEC("tc")
int by_byte_of_buffer(struct __sk_buff *ctx)
{
	__u8 byte = 0;

	bpf_skb_load_bytes(ctx, 14, &byte, 1);
	return next_after(byte);
}

char LICENSE[] SEC("license") = "GPL";
"#;

/// Takes some tenths of a millisecond per packet.
const SLOW: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __always_inline int slow(void)
{
	__u64 now = 0;

	for (int i = 0; i < 9000; i++)
		now += bpf_ktime_get_ns();
	return now & 0xff;
}

SEC("xdp")
int slow_packet(struct xdp_md *ctx)
{
	return slow();
}

SEC("tc")
int slow_buffer(struct __sk_buff *ctx)
{
	return slow();
}

char LICENSE[] SEC("license") = "GPL";
"#;

/// For XDP only; changes the packet.
const CHANGING: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int changing(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_tail(ctx, -4);
}

char LICENSE[] SEC("license") = "GPL";
"#;

/// Reads beyond the packet.
const UNSAFE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int outside(struct xdp_md *ctx)
{
	return *(__u8 *)(long)ctx->data_end;
}

char LICENSE[] SEC("license") = "GPL";
"#;

fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (text, object) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("{name}.o")),
    );
    std::fs::write(&text, source).unwrap();
    let architecture = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", &architecture, "-c"]);
    let status = clang.arg(&text).arg("-o").arg(&object).status().unwrap();
    assert!(status.success());
    object
}

/// A rule whose mask is the lower bits of the bucket, plus a bit that all packets have.
fn by(object: &Path) -> Vec<Rule> {
    let balanced = Rule {
        balance: Balance::Program(object.to_owned()),
        members: BucketMasks::new(|bucket| (bucket % MASKS) as u64),
        ..Rule::everything(0)
    };
    vec![balanced, Rule::everything(1 << 63)]
}

#[test]
fn a_users_program_chooses_the_bucket_on_every_hook() {
    require_root!();
    require_tool!("ip", "python3", "clang");
    let folder = tempfile::tempdir().unwrap();
    let object = compile(folder.path(), "by_byte", BY_BYTE);
    for mode in HOOKS {
        let net = Namespace::with_veth("user_program");
        let direction = Direction::InOut;
        let mut tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.on.direction = direction;
            }),
        );
        classify(&mut tap, by(&object));
        let sent: Vec<_> = (0..=255).map(|number| frame(number, 60)).collect();
        net.inject("tx0", &sent);
        net.inject("rx0", &sent);
        let (captured, _) = finish(tap);
        assert_eq!(captured.len(), 2 * 256);
        for packet in captured {
            let expected = u64::from(packet.data[14].wrapping_add(1) % 64) | 1 << 63;
            assert_eq!(packet.slot.mask, expected, "{mode:?}");
        }
    }
}

/// Moves the calling thread away from the CPU that sends and captures, so that both run at one time.
fn leave_the_sending_cpu() {
    let mut only = CpuSet::new();
    only.set(usable_cpus().pop().expect("at least one"));
    sched_setaffinity(None, &only).expect("the CPU may be used");
}

/// A slow program is running whenever the rules change.
#[test]
fn new_rules_wait_for_the_packet_that_is_on_its_way() {
    require_root!();
    require_tool!("ip", "python3", "clang");
    let folder = tempfile::tempdir().unwrap();
    let object = compile(folder.path(), "slow", SLOW);
    for mode in HOOKS {
        let net = Namespace::with_veth("rules_wait");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        classify(&mut tap, by(&object));
        let sent: Vec<_> = (0..8000_u32)
            .map(|n| frame(n.to_le_bytes()[0], 60))
            .collect();
        let lanes = |tap: &mut Tap| tap.counts().lanes;
        let changed = AtomicBool::new(false);
        let from: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !changed.load(Relaxed) {
                    net.inject("tx0", &sent);
                }
                net.inject("tx0", &sent);
            });
            let change = || {
                leave_the_sending_cpu();
                while lanes(&mut tap).iter().map(|lane| lane.offered).sum::<u64>() < 20 {
                    std::thread::yield_now();
                }
                classify(&mut tap, vec![Rule::everything(2)]);
                let captured = lanes(&mut tap).into_iter().map(|lane| lane.delivered);
                changed.store(true, Relaxed);
                captured.collect()
            };
            scope.spawn(change).join().unwrap()
        });
        let (captured, _) = finish(tap);
        for (lane, from) in (0..).zip(from) {
            let of_lane = captured.iter().filter(|packet| packet.lane == lane);
            let after = of_lane.skip(usize::try_from(from).unwrap());
            let old = after.filter(|packet| packet.slot.mask != 2).count();
            assert_eq!(
                old, 0,
                "{mode:?}: packets of the old rules after the change"
            );
        }
    }
}

/// While a slow program runs, `offered` is ahead by its packet.
#[test]
fn a_packet_is_offered_before_it_is_captured() {
    require_root!();
    require_tool!("ip", "python3", "clang");
    let folder = tempfile::tempdir().unwrap();
    let call = "now += bpf_ktime_get_ns();";
    let slower = SLOW.replace("9000", "2000").replace(call, &call.repeat(16));
    let object = compile(folder.path(), "slower", &slower);
    let sent: Vec<_> = (0..500_u32)
        .map(|n| frame(n.to_le_bytes()[0], 60))
        .collect();
    for mode in HOOKS {
        let net = Namespace::with_veth("offered_first");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        classify(&mut tap, by(&object));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    net.inject("tx0", &sent);
                }
            });
            let start = Instant::now();
            let is_ahead = |lane: &Counters| lane.offered == lane.accounted() + 1;
            let mut has_been_ahead = false;
            while !has_been_ahead && start.elapsed() < SOON {
                has_been_ahead = tap.counts().lanes.iter().any(is_ahead);
            }
            is_over.store(true, Relaxed);
            assert!(has_been_ahead, "{mode:?}: {:?}", tap.counts().lanes);
        });
    }
}

#[test]
fn several_users_programs_balance_beside_each_other() {
    require_root!();
    require_tool!("ip", "python3", "clang");
    let folder = tempfile::tempdir().unwrap();
    let plus = |name: &str, more: u32| {
        let text = BY_BYTE.replace("byte + 257", &format!("byte + {more}"));
        compile(folder.path(), name, &text)
    };
    let objects: Vec<_> = (1..=5)
        .map(|more| plus(&format!("plus_{more}"), more))
        .collect();
    let net = Namespace::with_veth("user_programs");
    let mut tap = attach(&net, &options("rx0"));
    let all = |objects: &[PathBuf]| -> Vec<Rule> {
        let rule = |(place, object): (u32, &PathBuf)| Rule {
            members: BucketMasks::new(|bucket| ((bucket % MASKS) as u64) << (8 * place)),
            ..by(object)[0].clone()
        };
        (0..).zip(objects).map(rule).collect()
    };
    classify(&mut tap, all(&objects[..4]));
    net.inject("tx0", &[frame(10, 60)]);
    let error = tap
        .rules
        .classify(&Rules::from(all(&objects)))
        .unwrap_err()
        .to_string();
    assert!(error.contains("plus_5.o") && error.contains('4'), "{error}");
    // The programs in force stay when their files are deleted.
    drop(folder);
    let mut rules = all(&objects[..4]);
    rules.swap(0, 3);
    classify(&mut tap, rules);
    net.inject("tx0", &[frame(20, 60)]);
    let (captured, _) = finish(tap);
    let mut masks: Vec<_> = captured.iter().map(|it| it.slot.mask).collect();
    // The order of lanes depends on the sending CPUs.
    masks.sort_unstable();
    assert_eq!(masks, [0x0e0d_0c0b, 0x1817_1615]);
}

#[test]
fn a_refused_object_leaves_the_rules_before_in_force() {
    require_root!();
    require_tool!("ip", "python3", "clang");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let garbage = path.join("garbage.o");
    std::fs::write(&garbage, "no object").unwrap();
    let only_xdp = CHANGING.replace("bpf_xdp_adjust_tail(ctx, -4)", "ctx->rx_queue_index");
    let deep = BY_BYTE.replace(
        "data + 15 > end",
        "({ char a[480]; __builtin_memset(a, 1, 480); asm volatile(\"\" : : \"r\"(a) : \"memory\"); data + 15 > end; })",
    );
    let cases = [
        (path.join("missing.o"), "cannot be read", Mode::Native),
        (garbage, "is no eBPF object", Mode::Native),
        (
            compile(path, "changing", CHANGING),
            "bpf_xdp_adjust_tail",
            Mode::Native,
        ),
        (
            compile(path, "outside", UNSAFE),
            "invalid mem access",
            Mode::Native,
        ),
        (
            compile(path, "only_xdp", &only_xdp),
            "SEC(\"tc\")",
            Mode::Tc,
        ),
        (compile(path, "deep", &deep), "stack", Mode::Native),
    ];
    for (object, reason, mode) in cases {
        let net = Namespace::with_veth("refused_program");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        assert_eq!(
            classify(&mut tap, vec![Rule::everything(6)]),
            [FilterLocation::Source]
        );
        let refused = tap.rules.classify(&Rules::from(by(&object)));
        let text = refused
            .map(|_| object.clone())
            .expect_err("it is of no use")
            .to_string();
        let file = object.to_string_lossy().into_owned();
        assert!(text.contains(&file) && text.contains(reason), "{text}");
        net.inject("tx0", &[frame(1, 60)]);
        let (captured, _) = finish(tap);
        assert_eq!(captured[0].slot.mask, 6, "{object:?}");
    }
}
