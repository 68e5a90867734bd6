//! Places of texts, legends and panels in a chart, from top to bottom.

use super::model::{Chart, Form, Group, Panel, Statistic};
use super::names::shortened;
use super::svg::Ink;

/// Width of a chart in pixels.
pub const WIDTH: u32 = 800;
/// Space at the left and right ends.
pub const MARGIN: u32 = 16;
/// Size of most text in pixels.
pub const TEXT: u32 = 12;
/// Size of the title in pixels.
const TITLE: u32 = 16;
/// Height of a line of text, and of a row of a legend.
const LINE: u32 = 19;
/// Width of the line in front of a name in a legend, and of the space behind the line.
pub const SAMPLE: u32 = 28;
const SAMPLE_GAP: u32 = 6;
/// Space between two entries of a legend.
const ENTRY_GAP: u32 = 22;
/// Space above a group of panels.
const GROUP_GAP: u32 = 14;
/// Height of a panel that stands alone, of one of two, and of one of several groups.
const HEIGHTS: [u32; 3] = [380, 262, 240];
/// Height of what a panel has beside its rows, and of a row for each of its lines.
const ROWS_FRAME: u32 = 56;
const ROW: u32 = 26;
const ROW_OF_LINE: u32 = 12;

/// Part of a chart at its place. Coordinates are pixels.
#[derive(Debug)]
pub enum Part<'a> {
    /// A text whose upper left corner is the place.
    Text {
        x: u32,
        y: u32,
        text: String,
        size: u32,
        bold: bool,
        ink: Ink,
    },
    /// An entry of a legend. `y` is its middle.
    Entry {
        x: u32,
        y: u32,
        entry: Entry,
    },
    Panel {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
        panel: &'a Panel,
    },
}

/// Entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub sample: Sample,
    pub text: String,
}

/// Symbol in front of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Line and marker of a style.
    Style(usize),
    /// Marker of a style, without a line.
    Marker(usize),
    /// A line of the median, or of the 99th percentile.
    Statistic(Statistic, Form),
    /// A range of measurements.
    Range(Form),
}

/// Returns the parts of a chart, and its height.
pub fn layout(chart: &Chart) -> (Vec<Part<'_>>, u32) {
    let mut page = Page { parts: Vec::new(), y: 14 };
    page.text(&chart.title, TITLE, true, Ink::Text);
    page.y += 4;
    chart.facts.iter().for_each(|fact| page.text(fact, TEXT, false, Ink::Faint));
    for (i, group) in chart.groups.iter().enumerate() {
        page.y += GROUP_GAP;
        if let Some(heading) = &group.heading {
            page.text(heading, TEXT + 1, true, Ink::Text);
        }
        let symbols = if i == 0 { symbols(chart) } else { Vec::new() };
        page.legend(&entries(group).into_iter().chain(symbols).collect::<Vec<_>>());
        page.panels(&group.panels, chart.groups.len() > 1);
    }
    page.y += 4;
    chart.notes.iter().for_each(|note| page.text(note, TEXT, false, Ink::Faint));
    (page.parts, page.y + 10)
}

/// Returns an entry for each line of a group that has a name.
fn entries(group: &Group) -> Vec<Entry> {
    let is_drawn = |style: usize| group.panels.iter().flat_map(|panel| &panel.lines).any(|line| line.style == style);
    let sample = |style| if form(group) == Form::Dots { Sample::Marker(style) } else { Sample::Style(style) };
    let named = group.legend.iter().enumerate().filter(|(style, name)| !name.is_empty() && is_drawn(*style));
    named.map(|(style, name)| Entry { sample: sample(style), text: name.clone() }).collect()
}

/// Returns entries for the meaning of dashes and bars, where a chart has some.
fn symbols(chart: &Chart) -> Vec<Entry> {
    let form = chart.groups.first().map_or(Form::Lines, form);
    let lines = || chart.groups.iter().flat_map(|group| &group.panels).flat_map(|panel| &panel.lines);
    let mut entries = Vec::new();
    if lines().any(|line| line.statistic == Statistic::P99) {
        for (statistic, text) in [(Statistic::Middle, "median latency"), (Statistic::P99, "99th percentile")] {
            entries.push(Entry { sample: Sample::Statistic(statistic, form), text: text.to_owned() });
        }
    }
    if lines().flat_map(|line| &line.points).any(|point| point.range.is_some()) {
        entries.push(Entry { sample: Sample::Range(form), text: "minimum to maximum of the runs".to_owned() });
    }
    entries
}

fn form(group: &Group) -> Form {
    group.panels.first().map_or(Form::Lines, |panel| panel.form)
}

/// Returns about how many pixels a text takes.
pub fn width_of(text: &str, size: u32) -> u32 {
    // Wide fonts have 4/7 of their size for a letter.
    (text.chars().count() as u32 * size * 4).div_ceil(7)
}

/// Parts that have their places, and the place of the next one.
struct Page<'a> {
    parts: Vec<Part<'a>>,
    y: u32,
}

impl<'a> Page<'a> {
    fn text(&mut self, text: &str, size: u32, bold: bool, ink: Ink) {
        let most = (WIDTH - 2 * MARGIN) * 7 / (size * 4);
        let text = shortened(text, most as usize);
        self.parts.push(Part::Text { x: MARGIN, y: self.y, text, size, bold, ink });
        self.y += LINE + size - TEXT;
    }

    fn legend(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let mut x = MARGIN;
        for entry in entries {
            let most = (WIDTH - 2 * MARGIN - SAMPLE - SAMPLE_GAP) * 7 / (TEXT * 4);
            let entry = Entry { sample: entry.sample, text: shortened(&entry.text, most as usize) };
            let width = SAMPLE + SAMPLE_GAP + width_of(&entry.text, TEXT);
            if x > MARGIN && x + width > WIDTH - MARGIN {
                (x, self.y) = (MARGIN, self.y + LINE);
            }
            self.parts.push(Part::Entry { x, y: self.y + LINE / 2, entry });
            x += width + ENTRY_GAP;
        }
        self.y += LINE + 4;
    }

    /// Adds the panels of a group: side by side if there are several groups.
    fn panels(&mut self, panels: &'a [Panel], beside: bool) {
        let columns = if beside { (panels.len() as u32).max(1) } else { 1 };
        let [alone, stacked, small] = HEIGHTS;
        let lines = match (beside, panels.len()) {
            (true, _) => small,
            (false, 1) => alone,
            (false, _) => stacked,
        };
        let width = WIDTH / columns;
        let height = |panel: &Panel| if panel.form == Form::Dots { rows_height(panel) } else { lines };
        for row in panels.chunks(columns as usize) {
            for (panel, x) in row.iter().zip((0..).map(|column| column * width)) {
                self.parts.push(Part::Panel { x, y: self.y, width, height: height(panel), panel });
            }
            self.y += row.iter().map(height).max().unwrap_or(0);
        }
    }
}

fn rows_height(panel: &Panel) -> u32 {
    let styles = panel.lines.iter().map(|line| line.style + 1).max().unwrap_or(1) as u32;
    ROWS_FRAME + panel.x.ticks.len() as u32 * ROW.max(styles * ROW_OF_LINE + 8)
}
