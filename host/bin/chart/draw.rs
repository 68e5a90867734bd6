//! Draws the parts of a chart as SVG, by `plotters`.

use super::coordinate::Coordinate;
use super::describe::describe;
use super::layout::{Entry, MARGIN, Part, SAMPLE, Sample, TEXT, WIDTH, layout, width_of};
use super::marker::{Canvas, DrawError, marker, path, stroke};
use super::model::{Chart, Form, Line, Panel, Point, Statistic};
use super::svg::{Ink, UNITS, allowed, document};
use plotters::prelude::{
    ChartBuilder, Color, FontDesc, FontFamily, FontStyle, IntoDrawingArea, Polygon, Rectangle, SVGBackend, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Ratio by which the backend makes texts smaller than they are said to be.
const FONT_RATIO: f64 = 1.24;
/// Widths of lines, in units.
const LINE_WIDTH: u32 = 20;
const BAR_WIDTH: u32 = 12;
/// Half of the length of the ends of a bar, in units.
const BAR_END: i32 = 30;
/// Opacity of a band.
const BAND: f64 = 0.18;
/// Frame of a plot, in pixels: space above it, above one of rows, on its right, for labels below it, and the least for
/// labels on its left.
const ABOVE: u32 = 28;
const ABOVE_ROWS: u32 = 6;
const RIGHT: u32 = 28;
const BELOW: u32 = 42;
const LEAST_LEFT: u32 = 58;
/// Length of ticks in pixels.
const TICK: u32 = 4;
/// Distance of lines of one row, in pixels.
const ROW_OF_LINE: i32 = 12;
/// Number of points from which on a curve has a marker for some of them alone, and the number of these.
const MANY_POINTS: usize = 24;
const MARKERS: usize = 8;

/// Draws a chart.
///
/// # Errors
/// The error of the backend, which writes to memory and has none.
pub fn draw(chart: &Chart) -> Result<String, DrawError> {
    let (parts, height) = layout(chart);
    let mut drawn = String::new();
    {
        let canvas = SVGBackend::with_string(&mut drawn, (WIDTH * UNITS, height * UNITS)).into_drawing_area();
        canvas.fill(&Ink::Page.placeholder())?;
        parts.iter().try_for_each(|part| draw_part(&canvas, part))?;
        canvas.present()?;
    }
    Ok(document(&drawn, (WIDTH, height), &chart.title, &describe(chart)))
}

fn draw_part(canvas: &Canvas<'_>, part: &Part<'_>) -> Result<(), DrawError> {
    match part {
        Part::Text { x, y, text, size, bold, ink } => {
            let style = text_style(*size, *bold, *ink, Pos::new(HPos::Left, VPos::Top));
            canvas.draw_text(&allowed(text), &style, (units(*x), units(*y)))
        }
        Part::Entry { x, y, entry } => legend_entry(canvas, (units(*x), units(*y)), entry),
        Part::Panel { x, y, width, height, panel } => draw_panel(canvas, (*x, *y), (*width, *height), panel),
    }
}

/// Returns the units of so many pixels.
fn units(pixels: u32) -> i32 {
    (pixels * UNITS) as i32
}

fn text_style(size: u32, bold: bool, ink: Ink, pos: Pos) -> TextStyle<'static> {
    let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
    let font = FontDesc::new(FontFamily::SansSerif, f64::from(size * UNITS) * FONT_RATIO, weight);
    TextStyle { font, color: ink.placeholder().to_backend_color(), pos }
}

fn legend_entry(canvas: &Canvas<'_>, (x, y): (i32, i32), entry: &Entry) -> Result<(), DrawError> {
    let (middle, end) = (x + units(SAMPLE) / 2, x + units(SAMPLE));
    let line = |ink: Ink| path(canvas, vec![(x, y), (end, y)], stroke(ink, LINE_WIDTH));
    let all_dots = |form: Form| form == Form::Dots;
    match entry.sample {
        Sample::Style(style) => {
            line(Ink::Line(style))?;
            marker(canvas, style, (middle, y), Ink::Line(style), false)?;
        }
        Sample::Marker(style) => marker(canvas, style, (middle, y), Ink::Line(style), false)?,
        Sample::Statistic(statistic, form) if all_dots(form) => {
            marker(canvas, 0, (middle, y), Ink::Text, statistic == Statistic::P99)?;
        }
        Sample::Statistic(Statistic::Middle, _) => {
            line(Ink::Text)?;
            marker(canvas, 0, (middle, y), Ink::Text, false)?;
        }
        Sample::Statistic(Statistic::P99, _) => {
            line(Ink::Dashes)?;
            marker(canvas, 0, (middle, y), Ink::Text, true)?;
        }
        Sample::Range(Form::Curves) => {
            let half = units(TEXT) / 2;
            let swatch = Ink::Text.placeholder().mix(BAND).filled();
            canvas.draw(&Rectangle::new([(x, y - half), (end, y + half)], swatch))?;
        }
        Sample::Range(form) => {
            let (half, middle) = (units(TEXT) / 2, end - units(TEXT) / 2);
            let ends = if all_dots(form) {
                [(middle - half, y), (middle + half, y)]
            } else {
                [(middle, y - half), (middle, y + half)]
            };
            bar(canvas, ends, Ink::Text)?;
        }
    }
    let style = text_style(TEXT, false, Ink::Text, Pos::new(HPos::Left, VPos::Center));
    canvas.draw_text(&allowed(&entry.text), &style, (end + units(6), y))
}

/// Draws a horizontal or vertical bar with its ends.
fn bar(canvas: &Canvas<'_>, ends: [(i32, i32); 2], ink: Ink) -> Result<(), DrawError> {
    path(canvas, ends.to_vec(), stroke(ink, BAR_WIDTH))?;
    let (dx, dy) = if ends[0].1 == ends[1].1 { (0, BAR_END) } else { (BAR_END, 0) };
    ends.iter().try_for_each(|(x, y)| path(canvas, vec![(x - dx, y - dy), (x + dx, y + dy)], stroke(ink, BAR_WIDTH)))
}

fn draw_panel(
    canvas: &Canvas<'_>,
    (x, y): (u32, u32),
    (width, height): (u32, u32),
    panel: &Panel,
) -> Result<(), DrawError> {
    let (across, up, above) = match panel.form {
        Form::Dots => (&panel.y, &panel.x, ABOVE_ROWS),
        Form::Lines | Form::Curves => (&panel.x, &panel.y, ABOVE),
    };
    let widest = up.ticks.iter().map(|tick| width_of(&tick.label, TEXT)).max().unwrap_or(0);
    let left = LEAST_LEFT.max(widest + 4 * TICK);
    let plot_size = (width.saturating_sub(left + RIGHT + MARGIN), height.saturating_sub(above + BELOW));
    let horizontal = Coordinate::new(across, plot_size.0, |tick| width_of(&tick.label, TEXT));
    let vertical = Coordinate::new(up, plot_size.1, |_| TEXT);
    let area = canvas.clone().shrink((units(x), units(y)), (units(width), units(height)));
    let mut plot = ChartBuilder::on(&area)
        .margin_left(units(MARGIN))
        .margin_top(units(above))
        .margin_right(units(RIGHT))
        .x_label_area_size(units(BELOW))
        .y_label_area_size(units(left))
        .build_cartesian_2d(horizontal, vertical)?;
    let at = Pos::new(HPos::Left, VPos::Top);
    plot.configure_mesh()
        .axis_style(stroke(Ink::Faint, UNITS))
        .bold_line_style(stroke(Ink::Grid, UNITS))
        .set_all_tick_mark_size(units(TICK))
        .label_style(text_style(TEXT, false, Ink::Text, at))
        .axis_desc_style(text_style(TEXT, false, Ink::Text, at))
        .x_desc(allowed(&across.title))
        .draw()?;
    let title = text_style(TEXT, true, Ink::Text, at);
    canvas.draw_text(&allowed(&up.title), &title, (units(x + MARGIN), units(y + 2)))?;
    let place = |x: f64, y: f64| {
        let (x, y) = (panel.x.scale.position(x), panel.y.scale.position(y));
        plot.backend_coord(&if panel.form == Form::Dots { (y, x) } else { (x, y) })
    };
    let styles = panel.lines.iter().map(|line| line.style + 1).max().unwrap_or(1) as i32;
    let shift = |style: usize| match panel.form {
        Form::Dots => (2 * style as i32 - (styles - 1)) * ROW_OF_LINE * UNITS as i32 / 2,
        Form::Lines | Form::Curves => 0,
    };
    let layers: [Layer; 4] = [band, bars, curve, markers];
    for layer in layers {
        for line in &panel.lines {
            let of = |point: &Point, y: f64| {
                let (x, y) = place(point.x, y);
                (x, y + shift(line.style))
            };
            layer(canvas, panel, line, &of)?;
        }
    }
    Ok(())
}

/// Place of a point with this value of the y axis, in units.
type Place<'a> = &'a dyn Fn(&Point, f64) -> (i32, i32);
/// Draws a part of a line.
type Layer = fn(&Canvas<'_>, &Panel, &Line, Place<'_>) -> Result<(), DrawError>;

/// Draws the ranges of a curve.
fn band(canvas: &Canvas<'_>, panel: &Panel, line: &Line, place: Place<'_>) -> Result<(), DrawError> {
    if panel.form != Form::Curves || line.points.iter().all(|point| point.range.is_none()) {
        return Ok(());
    }
    let end = |point: &Point, end: usize| place(point, point.range.map_or(point.y, |range| range[end]));
    let below = line.points.iter().map(|point| end(point, 0));
    let above = line.points.iter().rev().map(|point| end(point, 1));
    let style = Ink::Line(line.style).placeholder().mix(BAND).filled();
    canvas.draw(&Polygon::new(below.chain(above).collect::<Vec<_>>(), style))
}

/// Draws the ranges of single points.
fn bars(canvas: &Canvas<'_>, panel: &Panel, line: &Line, place: Place<'_>) -> Result<(), DrawError> {
    if panel.form == Form::Curves {
        return Ok(());
    }
    let ranges = line.points.iter().filter_map(|point| Some(point.range?.map(|end| place(point, end))));
    ranges.into_iter().try_for_each(|ends| bar(canvas, ends, Ink::Line(line.style)))
}

fn curve(canvas: &Canvas<'_>, panel: &Panel, line: &Line, place: Place<'_>) -> Result<(), DrawError> {
    if panel.form == Form::Dots || line.points.len() < 2 {
        return Ok(());
    }
    let ink = match line.statistic {
        Statistic::Middle => Ink::Line(line.style),
        Statistic::P99 => Ink::Dashed(line.style),
    };
    let points = line.points.iter().map(|point| place(point, point.y)).collect();
    path(canvas, points, stroke(ink, LINE_WIDTH))
}

fn markers(canvas: &Canvas<'_>, panel: &Panel, line: &Line, place: Place<'_>) -> Result<(), DrawError> {
    let count = line.points.len();
    // Lines of different styles have theirs at different points.
    let (step, first) = match panel.form {
        Form::Curves if count > MANY_POINTS => (count / MARKERS, (line.style + 1) * (count / MARKERS) / (MARKERS + 1)),
        _ => (1, 0),
    };
    let hollow = line.statistic == Statistic::P99;
    line.points
        .iter()
        .skip(first)
        .step_by(step)
        .try_for_each(|point| marker(canvas, line.style, place(point, point.y), Ink::Line(line.style), hollow))
}
