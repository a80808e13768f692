// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the device syntax promises.

use proptest::prelude::*;

use super::*;

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
    assert_eq!((device.kind, device.name.as_str()), (&kinds::TAP, "eth0"));
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
fn the_page_on_devices_has_every_kind_and_every_option() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/devices.md");
    let page = std::fs::read_to_string(page).unwrap();
    let kinds = kinds::KINDS.map(|kind| format!("| `{}` | {} |", kind.example, kind.meaning));
    let keys = kinds::keys().into_iter().map(|key| {
        let written = key.written().replace('|', "\\|");
        let of = kinds::with_key(key.name);
        format!("| `{written}` | {of} | {} | {} |", key.meaning, key.default)
    });
    for row in kinds.into_iter().chain(keys) {
        assert!(
            page.contains(&format!("\n{row}\n")),
            "docs/devices.md lacks\n{row}"
        );
    }
}

#[test]
fn a_file_by_its_path_needs_no_escaping() {
    let device = DeviceSpec::file("a,b?c@1%2C.pcap");
    assert_eq!(parsed(&device.to_string()), device);
}

/// A text that an option accepts.
fn any_value(key: &OptionKey) -> BoxedStrategy<String> {
    let text = |number: u64| number.to_string();
    match key.value {
        "" => Just(String::new()).boxed(),
        "PATH" => ".{1,20}".prop_map(|path| path.replace('%', "%25")).boxed(),
        "SIZE" => (12_u32..=19)
            .prop_map(|power| (1_u64 << power).to_string())
            .boxed(),
        "BYTES" => (1_u64..=262_144).prop_map(text).boxed(),
        "BYTES|imix" => prop_oneof![Just("imix".to_owned()), (0_u64..9999).prop_map(text)].boxed(),
        "top|FACTORx|RATEpps" => prop_oneof![
            Just("top".to_owned()),
            (0.001_f64..1e9).prop_map(|factor| format!("{factor}x")),
            (1_u64..1 << 40).prop_map(|rate| format!("{rate}pps")),
        ]
        .boxed(),
        "WEIGHT:WEIGHT...|elephant:PERCENT" => prop_oneof![
            (1_u32..100).prop_map(|percent| format!("elephant:{percent}")),
            prop::collection::vec(1_u32..1000, 1..9).prop_map(|all| Skew::Weights(all).to_string()),
        ]
        .boxed(),
        words if words.starts_with(char::is_lowercase) => {
            prop::sample::select(words.split('|').map(str::to_owned).collect::<Vec<_>>()).boxed()
        }
        _number => (1_u64..=u32::MAX.into()).prop_map(text).boxed(),
    }
}

/// Any options of one kind of source.
fn any_options(kind: &'static Kind) -> impl Strategy<Value = Options> {
    let values: Vec<_> = kind
        .keys
        .iter()
        .map(|key| prop::option::of(any_value(key)))
        .collect();
    values.prop_map(|values| {
        let mut options = Options::default();
        for (key, value) in kind.keys.iter().zip(values) {
            if let Some(value) = value {
                key.set(&mut options, &value).unwrap();
            }
        }
        options
    })
}

fn any_device() -> impl Strategy<Value = DeviceSpec> {
    prop::sample::select(kinds::KINDS.to_vec()).prop_flat_map(|kind| {
        let name = match kind.name_of {
            NameOf::Interface => "[a-z0-9.,?@%_-]{3,15}".boxed(),
            NameOf::Link => prop::sample::select(vec!["max", "10Gbps", "1.488Mpps", "2.5 Gbit/s"])
                .prop_map(str::to_owned)
                .boxed(),
            NameOf::File | NameOf::Group => ".{1,40}".boxed(),
        };
        let ranges = prop::collection::vec((any::<u16>(), any::<u16>()), 0..5);
        (name, ranges, any_options(kind))
            .prop_filter("not a name", move |(name, ..)| !name.contains('\0'))
            .prop_map(move |(name, ranges, options)| DeviceSpec {
                kind,
                name: if name == "..." { "x".into() } else { name },
                queues: if kind.names_an_interface() {
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
