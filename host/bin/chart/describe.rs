//! Description of a chart in words, for readers who do not see it.

use super::axis::Axis;
use super::model::{Chart, Group, Line, Panel, Statistic};

/// Returns a sentence for each line: its name, and between which values it is.
pub fn describe(chart: &Chart) -> String {
    let panels = chart.groups.iter().flat_map(|group| group.panels.iter().map(move |panel| of_panel(group, panel)));
    let texts = chart.facts.iter().cloned().chain(panels).chain(chart.notes.iter().cloned());
    texts.map(|text| format!("{text}.")).collect::<Vec<_>>().join(" ")
}

fn of_panel(group: &Group, panel: &Panel) -> String {
    let lines: Vec<String> = panel.lines.iter().map(|line| of_line(group, line, &panel.y)).collect();
    let over = if panel.x.title.is_empty() { String::new() } else { format!(" over {}", panel.x.title) };
    let heading = group.heading.as_ref().map_or_else(String::new, |heading| format!("{heading}, "));
    format!("{heading}{}{over}: {}", panel.y.title, lines.join("; "))
}

fn of_line(group: &Group, line: &Line, y: &Axis) -> String {
    let name = group.legend.get(line.style).map_or("", String::as_str);
    let statistic = if line.statistic == Statistic::P99 { "99th percentile" } else { "" };
    let values = || line.points.iter().map(|point| point.y);
    let words = |value: f64| y.quantity.words(value);
    let ends = (words(values().fold(f64::INFINITY, f64::min)), words(values().fold(0.0, f64::max)));
    let range = if ends.0 == ends.1 { ends.0 } else { format!("{} to {}", ends.0, ends.1) };
    let name: Vec<&str> = [name, statistic, range.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
    name.join(" ")
}
