// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the device syntax promises.

use proptest::prelude::*;

use super::*;
use ringtap_packet::Sizes;

fn parsed(text: &str) -> DeviceSpec {
    text.parse().unwrap()
}

fn refused(text: &str) -> (String, String) {
    match text.parse::<DeviceSpec>() {
        Err(DeviceError::Syntax {
            text,
            message,
            place,
        }) => (message, text[place].to_owned()),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_kind_parses_and_prints_its_canonical_text() {
    for (given, canonical) in [
        ("eth0", "eth0"),
        ("tap:eth0", "tap:eth0"),
        ("packet:eth0.100", "packet:eth0.100"),
        ("xdp:eth0@3-3,0-1,2", "xdp:eth0@0-3"),
        ("eth0@1-3,5", "eth0@1-3,5"),
        ("veth-a@00", "veth-a@0"),
        ("pcap:/tmp/a@b.pcap", "pcap:/tmp/a%40b.pcap"),
        ("pcap:50%.pcap", "pcap:50%25.pcap"),
        ("pcap:-?speed=10.0x", "pcap:-?speed=10x"),
        ("pcap:a%3Fb%2Cc?speed=2kpps", "pcap:a%3Fb%2Cc?speed=2000pps"),
        (
            "sim:10Gbps?burst=5&size=imix&skew=07:1",
            "sim:10Gbps?size=imix&burst=5&skew=7:1",
        ),
        ("hub:web", "hub:web"),
        (
            "hub:web?private&socket=/tmp/a%26b.sock&watermark=64",
            "hub:web?socket=/tmp/a%26b.sock&private&watermark=64",
        ),
        ("host:web?private", "host:web?private"),
        ("eth0?pool=1024m&exclusive", "eth0?exclusive&pool=1GiB"),
        (
            "tap:eth0?pool=1024M&exclusive&chunk=64k",
            "tap:eth0?exclusive&pool=1GiB&chunk=64KiB",
        ),
        (
            "packet:lo?snap=0&promisc=off&stamps=adapter_unsynced&direction=in",
            "packet:lo?direction=in&stamps=adapter_unsynced&promisc=off&snap=262144",
        ),
    ] {
        match canonical {
            "" => assert!(given.parse::<DeviceSpec>().is_err(), "{given}"),
            text => {
                assert_eq!(parsed(given).to_string(), text);
                assert_eq!(parsed(text), parsed(given));
            }
        }
    }
}

#[test]
fn parts_have_their_types() {
    let device = parsed("tap:eth0@1-3,5?exclusive&mode=native&pool=1GiB&snap=96");
    assert_eq!((device.kind, device.name.as_str()), (Kind::Tap, "eth0"));
    assert!(device.queues.contains(5) && !device.queues.contains(4));
    assert_eq!(device.queues.highest(), Some(5));
    assert!(device.options.exclusive);
    assert_eq!(device.options.mode, Some(Mode::Native));
    assert_eq!(device.options.pool, Some(Size(1 << 30)));
    assert_eq!(device.options.snap_length, Some(96));
    let file = parsed("pcap:a.pcap?speed=0.5x");
    let half = Speed::Recorded { factor: 0.5 };
    assert_eq!(file.options.speed, Some(half));
}

#[test]
fn mistakes_are_shown_where_they_stand() {
    for (text, blamed, says) in [
        ("", "", "expected the name of an interface"),
        ("tap:", "", "expected the name of an interface"),
        ("pcap:", "", "expected the name of a file"),
        ("host:", "", "expected the name of a group"),
        ("sim:", "", "the simulated link"),
        ("sim:10Gb", "10Gb", "the simulated link"),
        ("sim:max?size=huge", "size=huge", "64, or imix"),
        ("sim:max?burst=0", "burst=0", "above 0"),
        ("sim:max?skew=1:x", "skew=1:x", "a weight for each queue"),
        ("sim:max?skew=elephant:100", "skew=elephant:100", "1 to 99"),
        ("sim:max?skew=0:0", "skew=0:0", "some queue"),
        ("sim:max?promisc=on", "promisc=on", "tap, xdp, packet only"),
        ("eth0?burst=5", "burst=5", "burst is for sim only"),
        ("tpa:eth0", "tpa", "did you mean \"tap\"?"),
        ("eth0:1", "eth0", "an interface's name has no colon"),
        ("eth0@if5", "if5", "write \"eth0\""),
        ("eth0.5@eth0", "eth0", "write \"eth0.5\""),
        ("eth0@", "", "expected the number of a queue"),
        ("eth0@1-", "", "expected the number of a queue"),
        ("eth0@1,,2", "", "expected the number of a queue"),
        ("eth0@1x", "1x", "\"1x\" is not the number of a queue"),
        ("eth0@70000", "70000", "0 to 65535"),
        ("eth0@5-1", "5-1", "write 1-5"),
        ("eth0@1@2", "1@2", "not the number"),
        ("a/b.pcap", "a/b.pcap", "pcap:a/b.pcap"),
        ("a b", "a b", "cannot contain ' '"),
        (
            "interface-too-long",
            "interface-too-long",
            "at most 15 bytes",
        ),
        ("..", "..", "cannot be the name"),
        ("pcap:%ff", "%ff", "not UTF-8"),
        ("eth0?", "", "expected an option"),
        ("eth0?exlusive", "exlusive", "did you mean \"exclusive\"?"),
        (
            "eth0?exclusive@0",
            "exclusive@0",
            "queues come before options",
        ),
        ("eth0?exclusive=1", "exclusive=1", "takes no value"),
        ("eth0?pool", "pool", "pool=SIZE"),
        ("eth0?pool=1XB", "pool=1XB", "64MiB"),
        ("eth0?pool=99999999TiB", "pool=99999999TiB", "not a size"),
        ("eth0?chunk=3KiB", "chunk=3KiB", "power of two"),
        ("eth0?snap=300000", "snap=300000", "1 to 262144"),
        ("eth0?mode=fast", "mode=fast", "auto, native, generic, tc"),
        ("eth0?snap=1&snap=2", "snap=2", "given twice"),
        (
            "packet:eth0?exclusive",
            "exclusive",
            "exclusive is for tap only",
        ),
        ("pcap:f?promisc=on", "promisc=on", "tap, xdp, packet only"),
    ] {
        let (message, place) = refused(text);
        assert_eq!(place, blamed, "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
    }
}

#[test]
fn an_error_shows_the_line_and_a_caret() {
    let error = "tap:eth0@5-1".parse::<DeviceSpec>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "bad device: queue 5 comes after queue 1: write 1-5 (character 10)\n  tap:eth0@5-1\n           ^^^"
    );
}

#[test]
fn a_comma_separates_devices_unless_it_continues_queues() {
    for (text, devices) in [
        ("eth0", vec!["eth0"]),
        ("eth0,eth1", vec!["eth0", "eth1"]),
        ("eth0@1-3,5,eth1", vec!["eth0@1-3,5", "eth1"]),
        (
            "eth0@1,5?exclusive,eth1",
            vec!["eth0@1,5?exclusive", "eth1"],
        ),
        ("eth0@1,tap:5", vec!["eth0@1", "tap:5"]),
        ("eth0?snap=1,5", vec!["eth0?snap=1", "5"]),
        ("pcap:a@b,7", vec!["pcap:a%40b", "7"]),
        ("eth0@0,1,2", vec!["eth0@0-2"]),
    ] {
        let parsed = parse_list(text).unwrap();
        let parsed: Vec<_> = parsed.iter().map(ToString::to_string).collect();
        assert_eq!(parsed, devices, "{text}");
    }
    let error = parse_list("eth0,,eth1").unwrap_err().to_string();
    assert!(error.contains("(character 6)"), "{error}");
}

#[test]
fn flags_join_the_options_and_conflicts_are_refused() {
    let device = parsed("tap:eth0?snap=96");
    let mut flags = Options {
        pool: Some(Size(1 << 20)),
        snap_length: Some(96),
        ..Options::default()
    };
    let merged = device.with_flags(&flags).unwrap();
    assert_eq!(merged.to_string(), "tap:eth0?snap=96&pool=1MiB");
    flags.snap_length = Some(128);
    assert_eq!(
        device.with_flags(&flags).unwrap_err().to_string(),
        "tap:eth0?snap=96 says snap=96, but the flag says --snap 128: give only one of them"
    );
}

#[test]
fn flags_that_mean_nothing_or_are_out_of_range_are_refused() {
    let flags = Options {
        exclusive: true,
        ..Options::default()
    };
    let error = parsed("packet:eth0").with_flags(&flags).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--exclusive has no meaning for packet:eth0: only for tap"
    );
    let flags = Options {
        chunk: Some(Size(5)),
        ..Options::default()
    };
    let error = parsed("eth0").with_flags(&flags).unwrap_err().to_string();
    assert!(
        error.starts_with("--chunk 5: expected a power of two"),
        "{error}"
    );
}

#[test]
fn a_file_by_its_path_needs_no_escaping() {
    let device = DeviceSpec::file("a,b?c@1%2C.pcap");
    assert_eq!(parsed(&device.to_string()), device);
}

fn any_options(kind: Kind) -> impl Strategy<Value = Options> {
    let live = kind.names_an_interface();
    let xdp = kind == Kind::Xdp;
    let taps = matches!(kind, Kind::Auto | Kind::Tap);
    let at_hub = kind.names_a_group();
    let reads = !kind.names_a_group();
    let directions = prop::sample::select(vec![Direction::In, Direction::Out, Direction::InOut]);
    let modes = prop::sample::select(vec![Mode::Auto, Mode::Native, Mode::Generic, Mode::Tc]);
    let clocks = prop::sample::select(vec![StampClock::Host, StampClock::Nic]);
    let speeds = prop_oneof![
        Just(Speed::TOP),
        (0.001_f64..1e9).prop_map(|factor| Speed::Recorded { factor }),
        (1_u64..1 << 40).prop_map(|rate| Speed::Rate(Rate::PacketsPerSecond(rate))),
    ];
    (
        (any::<bool>(), prop::option::of(modes)),
        (prop::option::of(directions), any::<Option<bool>>()),
        (prop::option::of(1_u32..=262_144), any::<Option<u64>>()),
        (prop::option::of(12_u32..=19), prop::option::of(speeds)),
        (prop::option::of(".{1,20}"), any::<bool>()),
        (
            any::<Option<u32>>(),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
        ),
        (prop::option::of(clocks), any::<bool>()),
    )
        .prop_map(
            move |(tap, interface, sizes, rest, hub, wake, live_only)| Options {
                exclusive: taps && tap.0,
                mode: tap.1.filter(|_| taps || xdp),
                zero_copy: interface.1.filter(|_| xdp),
                busy_poll: xdp && tap.0,
                direction: interface.0.filter(|_| live && !xdp),
                promiscuous: interface.1.filter(|_| live),
                snap_length: sizes.0.filter(|_| reads),
                pool: sizes.1.map(Size).filter(|_| reads),
                chunk: rest.0.map(|power| Size(1 << power)).filter(|_| reads),
                speed: rest.1.filter(|_| kind == Kind::Pcap),
                socket: hub.0.filter(|_| at_hub),
                private: at_hub && hub.1,
                watermark: wake.0.filter(|number| at_hub && *number > 0),
                limit_ms: wake.1.filter(|number| at_hub && *number > 0),
                distance_us: wake.2.filter(|number| at_hub && *number > 0),
                stamps: live_only.0.filter(|_| live),
                wait: (taps || kind == Kind::Packet) && live_only.1,
                // Only the simulated NIC has them: `any_sim`.
                chunks: ChunkOptions::default(),
                sim: SimAsked::default(),
            },
        )
}

/// What may be asked of a simulated NIC.
fn any_sim() -> impl Strategy<Value = (ChunkOptions, SimAsked)> {
    let some = || prop::option::of(1_u32..=u32::MAX);
    let sizes = prop_oneof![Just(Sizes::Imix), (0_u32..9999).prop_map(Sizes::Fixed)];
    let skew = prop_oneof![
        (1_u32..100).prop_map(Skew::Elephant),
        prop::collection::vec(1_u32..1000, 1..9).prop_map(Skew::Weights),
    ];
    let clock = prop_oneof![Just(Clock::Real), Just(Clock::Virtual)];
    (
        (some(), some(), some(), some(), some()),
        prop::option::of(1_u64..=u64::MAX),
        prop::option::of(sizes),
        prop::option::of(skew),
        prop::option::of(clock),
    )
        .prop_map(|(a, burst, sizes, skew, clock)| {
            let chunks = ChunkOptions {
                per_lane: a.0,
                packets: a.1,
            };
            let asked = SimAsked {
                sizes,
                skew,
                clock,
                flows: a.2,
                queues: a.3,
                ring: a.4,
                burst,
            };
            (chunks, asked)
        })
}

fn any_nic() -> impl Strategy<Value = DeviceSpec> {
    let rates = prop::sample::select(vec!["max", "10Gbps", "1.488Mpps", "2.5 Gbit/s"]);
    (rates, any_options(Kind::Sim), any_sim()).prop_map(|(rate, options, (chunks, sim))| {
        DeviceSpec {
            options: Options {
                chunks,
                sim,
                ..options
            },
            ..DeviceSpec::new(Kind::Sim, rate)
        }
    })
}

fn any_device() -> impl Strategy<Value = DeviceSpec> {
    prop_oneof![1 => any_nic(), 7 => any_other_device()]
}

fn any_other_device() -> impl Strategy<Value = DeviceSpec> {
    let mut kinds = Kind::PREFIXED.to_vec();
    kinds.retain(|kind| *kind != Kind::Sim);
    kinds.push(Kind::Auto);
    prop::sample::select(kinds).prop_flat_map(|kind| {
        let name = if kind.names_an_interface() {
            "[a-z0-9.,?@%_-]{3,15}"
        } else {
            ".{1,40}"
        };
        let ranges = prop::collection::vec((any::<u16>(), any::<u16>()), 0..5);
        (name, ranges, any_options(kind))
            .prop_filter("not a name", move |(name, ..)| !name.contains('\0'))
            .prop_map(move |(name, ranges, options)| DeviceSpec {
                kind,
                name: if name == "..." { "x".into() } else { name },
                queues: if kind.has_queues() {
                    Queues::chosen(ranges.into_iter().map(|(a, b)| a.min(b)..=a.max(b)))
                } else {
                    Queues::All
                },
                options,
            })
    })
}

proptest! {
    #[test]
    fn the_canonical_text_parses_to_the_same_device(device in any_device()) {
        let text = device.to_string();
        prop_assert_eq!(text.parse::<DeviceSpec>(), Ok(device), "{}", text);
    }

    #[test]
    fn a_list_of_canonical_texts_parses_to_the_same_devices(
        devices in prop::collection::vec(any_device(), 1..4),
    ) {
        // A list cannot tell an interface that is named like a number from one more queue.
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        prop_assume!(devices.iter().all(|device| !is_number(&device.name)));
        let texts: Vec<_> = devices.iter().map(ToString::to_string).collect();
        prop_assert_eq!(parse_list(&texts.join(",")), Ok(devices));
    }

    #[test]
    fn no_text_panics_and_places_lie_inside(text in ".{0,60}") {
        if let Err(error) = parse_list(&text) {
            prop_assert!(error.to_string().contains('^'));
        }
    }

    #[test]
    fn queues_hold_what_was_chosen(ranges in prop::collection::vec((0_u16..50, 0_u16..50), 1..6), queue in 0_u16..60) {
        let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| a.min(b)..=a.max(b)).collect();
        let expected = ranges.iter().any(|range| range.contains(&queue));
        prop_assert_eq!(Queues::chosen(ranges).contains(queue), expected);
    }
}
