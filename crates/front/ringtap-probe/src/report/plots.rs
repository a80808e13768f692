// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots as SVG.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::axis::{clock, number_ticks, short, time_ticks};
use super::{FlowReport, ReportError, TrafficSum, as_f64};

const SIZE: (u32, u32) = (900, 240);
/// Most points of a line.
const POINTS: i64 = 300;
const DAY_S: i64 = 86_400;

/// A line over time: title, unit, color, value of a sum over an interval and its seconds; `None`: nothing was
/// measured.
struct PlotLine {
    title: &'static str,
    unit: &'static str,
    color: RGBColor,
    value: fn(&TrafficSum, f64) -> Option<f64>,
}

const FLOWS: PlotLine = PlotLine {
    title: "Flows (each evenly over its time)",
    unit: "flows/s",
    color: BLUE,
    value: |sum, seconds| Some(sum.flows / seconds),
};
const LOST: PlotLine = PlotLine {
    title: "Packets that the capture lost",
    unit: "packets/s",
    color: RED,
    value: |sum, seconds| Some(sum.lost / seconds),
};
const RETRANSMITTED: PlotLine = PlotLine {
    title: "TCP segments sent again",
    unit: "segments/s",
    color: RED,
    value: |sum, seconds| Some(sum.retransmissions / seconds),
};
const HANDSHAKES: PlotLine = PlotLine {
    title: "TCP handshakes, mean time",
    unit: "ms",
    color: BLUE,
    value: |sum, _| (sum.handshakes > 0.0).then(|| sum.handshake_ns / sum.handshakes / 1e6),
};
/// From the flow records, whose packets are spread over their time.
const SPREAD: [PlotLine; 2] = [
    PlotLine {
        title: "Traffic (IP; each flow evenly over its time)",
        unit: "bit/s",
        color: BLUE,
        value: |sum, seconds| Some(sum.bytes * 8.0 / seconds),
    },
    PlotLine {
        title: "Packets (each flow evenly over its time)",
        unit: "packets/s",
        color: BLUE,
        value: |sum, seconds| Some(sum.packets / seconds),
    },
];
/// From the analysis `sizes`, which counts frames in short intervals.
const COUNTED: [PlotLine; 2] = [
    PlotLine {
        title: "Traffic (whole frames)",
        unit: "bit/s",
        color: BLUE,
        value: |sum, seconds| Some(sum.counted_bytes * 8.0 / seconds),
    },
    PlotLine {
        title: "Packets",
        unit: "packets/s",
        color: BLUE,
        value: |sum, seconds| Some(sum.counted_packets / seconds),
    },
];

impl FlowReport {
    /// All plots, each a complete SVG element.
    pub(super) fn plots(&self) -> Result<Vec<String>, ReportError> {
        let [traffic, packets] = if self.total.counted_packets > 0.0 {
            COUNTED
        } else {
            SPREAD
        };
        let lines = [traffic, packets, FLOWS, LOST, RETRANSMITTED, HANDSHAKES];
        let lines = lines.iter().map(|line| self.line(line));
        let plots = lines.chain([self.bars()]).collect::<Result<_, _>>();
        plots.map_err(|error| ReportError(format!("a plot cannot be drawn: {error}")))
    }

    /// The first and the last second.
    pub(super) fn ends(&self) -> Option<(i64, i64)> {
        let (first, _) = self.seconds.first_key_value()?;
        let (last, _) = self.seconds.last_key_value()?;
        Some((*first, *last))
    }

    /// Values of equal intervals: seconds since the first, and value.
    fn values(&self, line: &PlotLine) -> Vec<(f64, f64)> {
        let Some((first, last)) = self.ends() else {
            return Vec::new();
        };
        let width = last.saturating_sub(first) / POINTS + 1;
        let mut values = Vec::new();
        let mut from = first;
        while from <= last {
            let mut sum = TrafficSum::default();
            for one in self.seconds.range(from..from.saturating_add(width)) {
                sum.add(*one.1, 1.0);
            }
            let value = (line.value)(&sum, as_f64(width));
            values.extend(value.map(|value| (as_f64(from - first), value)));
            from = from.saturating_add(width);
        }
        values
    }

    fn line(&self, line: &PlotLine) -> Result<String, Box<dyn std::error::Error>> {
        let (first, last) = self.ends().unwrap_or_default();
        let points = self.values(line);
        let end = as_f64(last.saturating_sub(first).max(1));
        let highest = points.iter().fold(0.0, |top, point| f64::max(top, point.1));
        let values = number_ticks(highest);
        let top = values.last().copied().unwrap_or(1.0);
        let (times, step) = time_ticks(first, last);
        let is_one_day = first.div_euclid(DAY_S) == last.div_euclid(DAY_S);
        let times: Vec<_> = times.iter().map(|time| as_f64(time - first)).collect();
        draw(|area| {
            let mut chart = ChartBuilder::on(area)
                .caption(format!("{}, {}", line.title, line.unit), ("sans-serif", 16))
                .margin(8)
                .margin_right(40)
                .x_label_area_size(28)
                .y_label_area_size(64)
                .build_cartesian_2d(TickedAxis(0.0..end, times), TickedAxis(0.0..top, values))?;
            chart
                .configure_mesh()
                .x_label_formatter(&|at| clock(first.saturating_add(whole(*at)), step, is_one_day))
                .y_label_formatter(&|value| short(*value))
                .label_style(("sans-serif", 13))
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.12))
                .draw()?;
            let fill = line.color.mix(0.15);
            let area = AreaSeries::new(points.iter().copied(), 0.0, fill);
            chart.draw_series(area.border_style(line.color))?;
            if let [(at, value)] = points.as_slice() {
                chart.draw_series([Circle::new((*at, *value), 3, line.color.filled())])?;
            }
            Ok(())
        })
    }

    fn bars(&self) -> Result<String, Box<dyn std::error::Error>> {
        let bars = self
            .sizes
            .iter()
            .map(|(power, flows)| (f64::from(*power), *flows));
        let bars: Vec<(f64, f64)> = bars.collect();
        let first = bars.first().map_or(0.0, |bar| bar.0);
        let last = bars.last().map_or(first + 1.0, |bar| bar.0 + 1.0);
        let highest = bars.iter().fold(0.0, |top, bar| f64::max(top, bar.1));
        let values = number_ticks(highest);
        let top = values.last().copied().unwrap_or(1.0);
        let powers: Vec<_> = (0_u8..64)
            .map(f64::from)
            .filter(|power| (first..=last).contains(power))
            .step_by(if last - first > 12.0 { 2 } else { 1 })
            .collect();
        draw(|area| {
            let mut chart = ChartBuilder::on(area)
                .caption("Flows by size, IP bytes", ("sans-serif", 16))
                .margin(8)
                .margin_right(40)
                .x_label_area_size(28)
                .y_label_area_size(64)
                .build_cartesian_2d(
                    TickedAxis(first..last, powers),
                    TickedAxis(0.0..top, values),
                )?;
            chart
                .configure_mesh()
                .x_label_formatter(&|power| binary(*power))
                .y_label_formatter(&|value| short(*value))
                .label_style(("sans-serif", 13))
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.12))
                .draw()?;
            chart.draw_series(bars.iter().map(|(power, flows)| {
                Rectangle::new(
                    [(power + 0.05, 0.0), (power + 0.95, *flows)],
                    BLUE.mix(0.6).filled(),
                )
            }))?;
            Ok(())
        })
    }
}

/// An axis with these ticks; plotters itself chooses round decimal numbers, which times are not.
struct TickedAxis(Range<f64>, Vec<f64>);

impl Ranged for TickedAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.0.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.1.clone()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

impl ValueFormatter<f64> for TickedAxis {}

/// A power of two in bytes: `64 B`, `1 KiB`.
fn binary(power: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let thousands = (power / 10.0).floor();
    let at = units.iter().zip(0_u8..);
    let unit = at
        .filter(|(_, number)| f64::from(*number) <= thousands)
        .last();
    let (unit, number) = unit.unwrap_or((&"B", 0));
    format!("{} {unit}", 2_f64.powf(power - 10.0 * f64::from(number)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a tick is at a whole second"
)]
fn whole(number: f64) -> i64 {
    number.round() as i64
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    content: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        content(&area)?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}
