// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots as SVG.

use plotters::prelude::*;

use super::{FlowReport, ReportError, TrafficSum, as_f64};

const SIZE: (u32, u32) = (900, 260);
/// Most points of a line.
const POINTS: i64 = 300;

/// One plot's title and what it shows of a second.
type RateOf = fn(&TrafficSum) -> f64;
const RATES: [(&str, RateOf); 3] = [
    ("Mbit/s (IP)", |sum| sum.bytes * 8.0 / 1e6),
    ("Packets/s", |sum| sum.packets),
    (
        "Active flows/s (a flow is spread over its seconds)",
        |sum| sum.flows,
    ),
];

/// On the same axis, if the probe's ledger is among the results.
const LOSSES: (&str, RateOf) = ("Packets lost/s", |sum| sum.lost);

impl FlowReport {
    /// All plots, each a complete SVG element.
    pub(super) fn plots(&self) -> Result<Vec<String>, ReportError> {
        let losses = Some(LOSSES).filter(|_| self.has_losses);
        let lines = RATES.into_iter().chain(losses);
        let lines = lines.map(|(title, rate)| self.line(title, rate));
        let plots = lines.chain([self.bars()]).collect::<Result<_, _>>();
        plots.map_err(|error| ReportError(format!("a plot cannot be drawn: {error}")))
    }

    /// Means of equal intervals: time since the first in seconds, sum per second.
    fn means(&self, rate: RateOf) -> Vec<(f64, f64)> {
        let (Some((first, _)), Some((last, _))) = (
            self.seconds.first_key_value(),
            self.seconds.last_key_value(),
        ) else {
            return Vec::new();
        };
        let width = (last - first) / POINTS + 1;
        let mut means = Vec::new();
        let mut from = *first;
        while from <= *last {
            let sum: f64 = self
                .seconds
                .range(from..from + width)
                .map(|(_, sum)| rate(sum))
                .sum();
            means.push((as_f64(from - first), sum / as_f64(width)));
            from += width;
        }
        means
    }

    fn line(&self, title: &str, rate: RateOf) -> Result<String, Box<dyn std::error::Error>> {
        let points = self.means(rate);
        let end = points.last().map_or(1.0, |point| point.0 + 1.0);
        let top = points
            .iter()
            .fold(f64::MIN_POSITIVE, |top, point| top.max(point.1));
        draw(|area| {
            let mut chart = ChartBuilder::on(area)
                .caption(title, ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(30)
                .y_label_area_size(70)
                .build_cartesian_2d(0.0..end, 0.0..top * 1.05)?;
            chart
                .configure_mesh()
                .x_desc("seconds")
                .y_label_formatter(&short)
                .max_light_lines(0)
                .draw()?;
            chart.draw_series(
                AreaSeries::new(points.iter().copied(), 0.0, BLUE.mix(0.15)).border_style(BLUE),
            )?;
            Ok(())
        })
    }

    fn bars(&self) -> Result<String, Box<dyn std::error::Error>> {
        // Fractions, because plotters cannot divide an axis of large whole numbers.
        let bars = self
            .sizes
            .iter()
            .map(|(power, flows)| (f64::from(*power), *flows));
        let bars: Vec<(f64, f64)> = bars.collect();
        let (last, top) = bars.iter().fold((1.0, 1.0), |(last, top), bar| {
            (f64::max(last, bar.0 + 1.0), f64::max(top, bar.1))
        });
        draw(|area| {
            let mut chart = ChartBuilder::on(area)
                .caption("Flows by size", ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(30)
                .y_label_area_size(70)
                .build_cartesian_2d(0.0..last, 0.0..top * 1.05)?;
            chart
                .configure_mesh()
                .x_desc("IP bytes, powers of two")
                .x_label_formatter(&|power| format!("2^{power:.0}"))
                .y_label_formatter(&short)
                .disable_x_mesh()
                .max_light_lines(0)
                .draw()?;
            chart.draw_series(bars.iter().map(|(power, flows)| {
                Rectangle::new(
                    [(*power, 0.0), (power + 1.0, *flows)],
                    BLUE.mix(0.6).filled(),
                )
            }))?;
            Ok(())
        })
    }
}

/// A number with a prefix of the SI instead of many zeros.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the type that plotters asks for"
)]
fn short(number: &f64) -> String {
    match *number {
        number if number >= 1e9 => format!("{} G", number / 1e9),
        number if number >= 1e6 => format!("{} M", number / 1e6),
        number if number >= 1e4 => format!("{} k", number / 1e3),
        number => number.to_string(),
    }
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
