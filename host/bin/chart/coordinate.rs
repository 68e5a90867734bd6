//! An axis as `plotters` draws it.

use super::axis::{Axis, Tick};
use super::svg::allowed;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// Least space between the labels of ticks, in pixels.
const LABEL_GAP: f64 = 6.0;
/// Largest number of labels of which one is shown.
const MOST_SKIPPED: usize = 3;

/// Places of an axis, and its ticks.
pub struct Coordinate {
    places: RangedCoordf64,
    ticks: Vec<Tick>,
}

impl Coordinate {
    /// Creates the coordinate of an axis of so many pixels, with the ticks whose labels do not overlap. `size` is that of
    /// a label along the axis, in pixels.
    pub fn new(axis: &Axis, pixels: u32, size: impl Fn(&Tick) -> u32) -> Self {
        let mut ticks: Vec<Tick> = axis.ticks.clone();
        ticks.sort_by(|a, b| a.at.total_cmp(&b.at));
        let ends = |tick: &Tick| {
            let middle = (tick.at - axis.low) / (axis.high - axis.low) * f64::from(pixels);
            let half = f64::from(size(tick)) / 2.0;
            (middle - half, middle + half + LABEL_GAP)
        };
        let free = |each: usize| {
            let mut free_from = f64::NEG_INFINITY;
            let is_free = |tick: &&Tick| {
                let (begin, end) = ends(tick);
                let fits = begin >= free_from;
                free_from = if fits { end } else { free_from };
                fits
            };
            ticks.iter().step_by(each).filter(is_free).cloned().collect::<Vec<_>>()
        };
        // Of ticks at equal distances, every second or third has a label if not all fit. Of others, those that fit have one.
        let regular = (1..=MOST_SKIPPED).map(|each| (each, free(each)));
        let all_fit = |(each, free): &(usize, Vec<Tick>)| free.len() == ticks.len().div_ceil(*each);
        let regular = regular.take(if is_even(&ticks) { MOST_SKIPPED } else { 1 }).find(all_fit);
        let ticks = regular.map_or_else(|| free(1), |(_, free)| free);
        Self { places: (axis.low..axis.high).into(), ticks }
    }
}

/// Returns true if neighbours are about as far apart as one another.
fn is_even(ticks: &[Tick]) -> bool {
    let gaps = ticks.windows(2).map(|pair| pair[1].at - pair[0].at);
    let (least, most) = gaps.fold((f64::INFINITY, 0.0f64), |(least, most), gap| (least.min(gap), most.max(gap)));
    most <= 1.5 * least
}

impl Ranged for Coordinate {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.places.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // All lines of the mesh have labels.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.iter().map(|tick| tick.at).collect() }
    }

    fn range(&self) -> Range<f64> {
        self.places.range()
    }
}

impl ValueFormatter<f64> for Coordinate {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.at == *value);
        tick.map_or_else(String::new, |tick| allowed(&tick.label))
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Scale;
    use super::*;

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let values: Vec<f64> = (1..=64).map(f64::from).collect();
        let axis = Axis::swept("Queues", "queues", &values, Scale::Log2).unwrap();
        let labels = |pixels| {
            let coordinate = Coordinate::new(&axis, pixels, |tick| 7 * tick.label.len() as u32);
            coordinate.ticks.iter().map(|tick| coordinate.format_ext(&tick.at)).collect::<Vec<_>>()
        };
        assert_eq!(labels(120), ["1", "2", "4", "7", "13", "28", "60"]);
        assert_eq!(labels(100_000).len(), 64);
        let values: Vec<f64> = (0..12).map(|i| f64::from(1 << i)).collect();
        let axis = Axis::swept("Queues", "queues", &values, Scale::Log2).unwrap();
        let coordinate = Coordinate::new(&axis, 300, |_| 30);
        let labels: Vec<&str> = coordinate.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["1", "4", "16", "64", "256", "1,024"]);
        let axis = Axis::swept("Size", "bytes", &[4.0, 8.0, 512.0, 32_768.0], Scale::Log2).unwrap();
        let coordinate = Coordinate::new(&axis, 300, |_| 40);
        let labels: Vec<&str> = coordinate.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["4 B", "512 B", "32 KiB"]);
    }
}
