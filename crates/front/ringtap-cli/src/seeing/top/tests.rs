// SPDX-License-Identifier: MIT OR Apache-2.0
//! The screen for simulated hubs, on terminals of several sizes.

use std::path::Path;

use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use ringtap_ipc::protocol::{
    BridgeStatus, BuddyCounts, GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceStatus,
};
use ringtap_pool::counters::{Counters, Dropped};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn hub(seconds: u64) -> HubStatus {
    let lane = |lane: u32| LaneStatus {
        lane,
        counters: Counters {
            offered: seconds * 1_000 * u64::from(lane),
            delivered: seconds * 900 * u64::from(lane),
            bytes: seconds * 1_000_000 * u64::from(lane),
            filtered: seconds * 100 * u64::from(lane),
            ..Counters::default()
        },
        chunks: 100,
        chunks_in_use: 20 * lane,
        ..LaneStatus::default()
    };
    let reader = |reader: u64, name: &str, lost: u64| ReaderStatus {
        counters: Counters {
            delivered: seconds * 2_000 * reader,
            bytes: seconds * 1_000_000,
            dropped: Dropped {
                overrun: lost,
                ..Dropped::default()
            },
            ..Counters::default()
        },
        reader,
        name: name.into(),
        group: "ids".into(),
        pid: 1_234_560 + i32::try_from(reader).unwrap(),
        lag_chunks: 50,
        lag_ms: 1_500,
        credit_chunks: 56,
        ..ReaderStatus::default()
    };
    HubStatus {
        time_ns: seconds * SECOND,
        pid: 77,
        version: "0.2.0".into(),
        sources: vec![SourceStatus {
            device: "tap:eth0".into(),
            lanes: (0..4).map(lane).collect(),
            balanced: true,
            dropped: Dropped {
                nic: 12,
                ..Dropped::default()
            },
            ..SourceStatus::default()
        }],
        readers: vec![reader(1, "fine", 0), reader(2, "late", seconds * 500)],
        ..HubStatus::default()
    }
}

fn drawn(screen: &mut Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width);
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

fn screen(colours: bool) -> Screen {
    let second = Duration::from_secs(1);
    let mut screen = Screen::new(Path::new("/run/x.sock"), second, Palette { colours });
    screen.show(hub(10));
    screen.show(hub(12));
    screen
}

#[track_caller]
fn row<'a>(lines: &'a [String], begin: &str) -> Vec<&'a str> {
    let found = lines
        .iter()
        .find(|line| line.trim_start().starts_with(begin));
    let line = found.unwrap_or_else(|| panic!("no {begin:?} in {lines:#?}"));
    line.split_whitespace().collect()
}

#[test]
fn eighty_by_twenty_four_shows_rates_fill_lag_and_losses() {
    let lines = lines(&drawn(&mut screen(true), 80, 24));
    let source = row(&lines, "tap:eth0");
    assert_eq!(source[1..6], ["0", "12", "6.00k", "5.40k", "600"]);
    assert_eq!(source[6..], ["[###", "]", "30%"]);
    assert_eq!(row(&lines, "lane 3")[4..6], ["3.00k", "2.70k"]);
    assert_eq!(
        row(&lines, "late"),
        [
            "late", "500", "6.00k", "4.00k", "50/224", "1.50k", "8.00M", "ids", "1234562"
        ]
    );
    assert_eq!(
        row(&lines, "reader 2 late")[3..],
        ["overrun", "6,000", "500"]
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("nic ") && line.contains(" 12 "))
    );
    assert!(lines[0].contains("hub 77 at /run/x.sock"));
    assert!(lines[23].starts_with("q quit"));
}

#[test]
fn groups_that_offload_have_a_line_of_what_went_where() {
    let with = |seconds, group: GroupStatus| HubStatus {
        groups: vec![
            GroupStatus {
                name: "plain".into(),
                ..GroupStatus::default()
            },
            group,
        ],
        ..hub(seconds)
    };
    let group = |chunks| GroupStatus {
        name: "busy".into(),
        offload_percent: Some(60),
        buddies: BuddyCounts {
            offloaded_chunks: chunks,
            offloaded_packets: 12_345,
            disordered_packets: 678,
            ..BuddyCounts::default()
        },
        ..GroupStatus::default()
    };
    let mut screen = screen(true);
    assert!(
        lines(&drawn(&mut screen, 80, 24))
            .iter()
            .all(|line| !line.contains("OFFLOADS"))
    );
    screen.show(with(14, group(100)));
    screen.show(with(16, group(300)));
    let lines = lines(&drawn(&mut screen, 80, 24));
    assert_eq!(
        row(&lines, "OFFLOADS")[1..],
        ["ABOVE", "CHUNKS/s", "CHUNKS", "PACKETS", "DISORDERED"]
    );
    assert_eq!(
        row(&lines, "busy"),
        ["busy", "60%", "100", "300", "12.3k", "678"]
    );
    assert!(lines.iter().all(|line| !line.starts_with("plain")));
}

#[test]
fn a_wide_terminal_shows_the_bits_of_sources() {
    let wide = lines(&drawn(&mut screen(true), 120, 24));
    assert_eq!(row(&wide, "SOURCE")[6], "BIT/s");
    // Six million bytes per second.
    assert_eq!(row(&wide, "tap:eth0")[6], "48.0M");
    assert_eq!(row(&wide, "lane 3")[7], "24.0M");
}

#[test]
fn the_busiest_lane_comes_first_and_idle_lanes_are_left_out() {
    let lines = lines(&drawn(&mut screen(true), 80, 24));
    let place = |name: &str| lines.iter().position(|line| line.contains(name));
    assert!(place("lane 3") < place("lane 1"));
    assert_eq!(place("lane 0"), None);
}

#[test]
fn readers_are_sorted_by_what_the_user_chose() {
    let mut screen = screen(true);
    let first = |screen: &mut Screen| {
        let lines = lines(&drawn(screen, 80, 24));
        let head = lines
            .iter()
            .position(|line| line.starts_with("READER"))
            .unwrap();
        lines[head + 1][..4].to_owned()
    };
    assert_eq!(first(&mut screen), "late");
    let s = Event::Key(KeyCode::Char('s').into());
    for wanted in ["late", "fine", "fine", "late"] {
        assert!(handle(&s, &mut screen.view).is_continue());
        assert_eq!(
            first(&mut screen),
            wanted,
            "by {}",
            screen.view.order.word()
        );
    }
}

#[test]
fn colours_mean_something_and_can_be_refused() {
    let colours = |buffer: &Buffer| {
        let all = buffer.content.iter().map(|cell| cell.fg);
        (
            all.clone().filter(|one| *one == Color::Red).count(),
            all.filter(|one| ![Color::Reset, Color::Red, Color::Yellow].contains(one))
                .count(),
        )
    };
    let (red, other) = colours(&drawn(&mut screen(true), 80, 24));
    assert!(red > 0 && other == 0);
    let plain = drawn(&mut screen(false), 80, 24);
    assert!(
        plain
            .content
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
}

#[test]
fn a_bridge_has_its_rates_and_losses() {
    let with = |seconds, lost| HubStatus {
        bridges: vec![BridgeStatus {
            counters: Counters {
                offered: seconds * 100,
                delivered: seconds * 90,
                dropped: Dropped {
                    no_verdict: lost,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            way: "eth0>eth1".into(),
        }],
        ..hub(seconds)
    };
    let mut screen = screen(true);
    screen.show(with(14, 7));
    screen.show(with(16, 9));
    let lines = lines(&drawn(&mut screen, 80, 30));
    assert_eq!(
        row(&lines, "eth0>eth1")[..5],
        ["eth0>eth1", "1.0", "9", "100", "90"]
    );
    let losses = lines.iter().any(|line| line.contains("no_verdict"));
    assert!(losses, "{lines:#?}");
}

#[test]
fn a_narrow_terminal_keeps_the_losses() {
    let narrow = lines(&drawn(&mut screen(true), 32, 24));
    assert_eq!(row(&narrow, "late")[..3], ["late", "500", "6.00k"]);
    assert_eq!(row(&narrow, "tap:eth0")[..3], ["tap:eth0", "0", "12"]);
}

#[test]
fn what_does_not_fit_can_be_scrolled_to() {
    let mut screen = screen(true);
    let small = lines(&drawn(&mut screen, 80, 8));
    assert!(small[7].contains("below"), "{small:#?}");
    let down = Event::Key(KeyCode::PageDown.into());
    for _ in 0..9 {
        assert!(handle(&down, &mut screen.view).is_continue());
    }
    let end = lines(&drawn(&mut screen, 80, 8));
    assert!(
        end[7].contains(" 0 below") && end[6].contains("nic"),
        "{end:#?}"
    );
    // A larger terminal shows every line again.
    assert!(!lines(&drawn(&mut screen, 80, 24))[23].contains("below"));
}

#[test]
fn no_size_of_a_terminal_is_too_small_or_too_large() {
    for (width, height) in [(1, 1), (20, 3), (79, 2), (300, 100)] {
        drawn(&mut screen(true), width, height);
    }
    let wide = lines(&drawn(&mut screen(true), 120, 24));
    assert!(wide.iter().any(|line| line.contains("FILTERED/s")));
}

#[test]
fn a_name_cannot_write_on_the_terminal() {
    let mut status = hub(12);
    status.readers[0].name = "\u{1b}[2J\u{202e}x".into();
    let mut screen = screen(true);
    screen.show(status);
    let text = lines(&drawn(&mut screen, 80, 24)).join("");
    assert!(
        text.chars().all(|c| c.is_ascii_graphic() || c == ' '),
        "{text}"
    );
}

#[test]
fn one_look_has_no_rates_and_a_silent_hub_is_said() {
    let second = Duration::from_secs(1);
    let mut screen = Screen::new(Path::new("x"), second, Palette { colours: true });
    screen.show(hub(12));
    assert_eq!(row(&lines(&drawn(&mut screen, 80, 24)), "fine")[3], "-");
    screen.silence_s = Some(5);
    assert!(lines(&drawn(&mut screen, 80, 24))[0].contains("NOT ANSWERED for 5 s"));
}

#[test]
fn q_escape_and_control_c_quit() {
    let view = &mut View::default();
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for key in [KeyCode::Char('q').into(), KeyCode::Esc.into(), control] {
        assert!(handle(&Event::Key(key), view).is_break());
    }
    let c = Event::Key(KeyCode::Char('c').into());
    assert!(handle(&c, view).is_continue());
    assert!(handle(&Event::Resize(10, 10), view).is_continue());
}
