//! Axes: scales, ranges, and ticks with the units of the field.

use warpbell::units::{Bytes, binary_rate, grouped, real, si, three_digits};

/// Largest value that is drawn. Nothing that is measured comes near it.
const LARGEST: f64 = 1e21;
/// Largest value of a linear axis that is taken for zero.
const LEAST: f64 = 1e-9;
/// Share of the range of swept values that is left free at both ends.
const SWEPT_MARGIN: f64 = 0.04;
/// Ratio of latencies above which their axis is logarithmic.
const WIDE: f64 = 20.0;
/// Intervals between the ticks of a linear axis, about.
const INTERVALS: f64 = 5.0;
/// Decades above which a logarithmic axis has no ticks between powers of ten.
const FINE_DECADES: f64 = 2.0;
/// Percentiles with ticks.
const NINES: [f64; 9] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999];

/// Units of a quantity: how much one is, and its name.
type Units = &'static [(f64, &'static str)];
const RATES: Units = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
const BYTE_RATES: Units = &[
    (1.0, "B/s"),
    (1024.0, "KiB/s"),
    (1_048_576.0, "MiB/s"),
    (1_073_741_824.0, "GiB/s"),
    (1_099_511_627_776.0, "TiB/s"),
];
const TIMES: Units = &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

/// Relation between values and places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Log2,
    Log10,
    /// Percentiles by the number of their nines: 90 % is at 1, 99 % at 2.
    Nines,
}

impl Scale {
    /// Returns true if the value has a place.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Linear => (0.0..=LARGEST).contains(&value),
            Self::Log2 | Self::Log10 => (1.0 / LARGEST..=LARGEST).contains(&value),
            Self::Nines => (0.0..100.0).contains(&value),
        }
    }

    /// Returns the place of a value.
    pub fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.log2(),
            Self::Log10 => value.log10(),
            Self::Nines => -(1.0 - value / 100.0).log10(),
        }
    }
}

/// Quantity of the values of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    PerS,
    BytesPerS,
    Ns,
    /// Without a unit.
    Number,
}

impl Quantity {
    /// Returns a value with its unit.
    pub fn words(self, value: f64) -> String {
        match self {
            Self::PerS => si(value),
            Self::BytesPerS => binary_rate(value),
            Self::Ns => {
                let (scale, unit) = unit_of(TIMES, value);
                format!("{} {unit}", three_digits(value / scale))
            }
            Self::Number => real(value),
        }
    }
}

/// A labelled place.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub at: f64,
    pub label: String,
}

/// An axis with a range of places, the lower end of which is below the upper one.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit, as in `Latency (us)`.
    pub title: String,
    pub quantity: Quantity,
    pub scale: Scale,
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// Returns an axis of rates up to `max`, from zero.
    pub fn rates(title: &str, max: f64) -> Self {
        let (high, ticks, _) = linear(max, RATES, true);
        Self { title: title.to_owned(), quantity: Quantity::PerS, scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// Returns an axis of bytes per second up to `max`, from zero.
    pub fn byte_rates(max: f64) -> Self {
        let (high, ticks, unit) = linear(max, BYTE_RATES, false);
        Self { title: unit.to_owned(), quantity: Quantity::BytesPerS, scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// Returns an axis of times in nanoseconds up to `max`, from zero.
    pub fn times(title: &str, max: f64) -> Self {
        let (high, ticks, unit) = linear(max, TIMES, false);
        let title = format!("{title} ({unit})");
        Self { title, quantity: Quantity::Ns, scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// Returns a logarithmic axis of times in nanoseconds, which are above zero.
    pub fn log_times(title: &str, [min, max]: [f64; 2]) -> Self {
        let (low, high, ticks) = logarithmic(min, max);
        Self { title: title.to_owned(), quantity: Quantity::Ns, scale: Scale::Log10, low, high, ticks }
    }

    /// Returns the scale that suits latencies between two values.
    pub fn scale_of_latencies([min, max]: [f64; 2]) -> Scale {
        if min > 0.0 && max / min > WIDE { Scale::Log10 } else { Scale::Linear }
    }

    /// Returns an axis of swept values with a tick at each. `None` without values.
    pub fn swept(title: &str, key: &str, values: &[f64], scale: Scale) -> Option<Self> {
        let mut values: Vec<f64> = values.iter().copied().filter(|value| scale.holds(*value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let [first, last] = [*values.first()?, *values.last()?].map(|value| scale.position(value));
        let label = |value: f64| match key {
            _ if is_bytes(key) => Bytes(value as u64).to_string(),
            _ if value.fract() == 0.0 && value < 1e15 => grouped(value as u64),
            _ => real(value),
        };
        let ticks = values.iter().map(|&value| Tick { at: scale.position(value), label: label(value) }).collect();
        let margin = if last > first { SWEPT_MARGIN * (last - first) } else { 0.5 };
        let (low, high) = (first - margin, last + margin);
        Some(Self { title: title.to_owned(), quantity: Quantity::Number, scale, low, high, ticks })
    }

    /// Returns an axis of percentiles up to `max`, which is below 100.
    pub fn percentiles(max: f64) -> Self {
        let scale = Scale::Nines;
        let high = scale.position(max.max(90.0)) * (1.0 + SWEPT_MARGIN / 2.0);
        let ticks = NINES.map(|percent| Tick { at: scale.position(percent), label: format!("{percent} %") });
        let ticks = ticks.into_iter().filter(|tick| tick.at <= high).collect();
        Self { title: "Percentile".to_owned(), quantity: Quantity::Number, scale, low: 0.0, high, ticks }
    }

    /// Returns an axis with a row for each name, the first of them at the highest place, `names.len() - 1`.
    pub fn rows(names: &[String]) -> Self {
        let place = |i: usize| (names.len() - 1 - i) as f64;
        let ticks = names.iter().enumerate().map(|(i, name)| Tick { at: place(i), label: name.clone() }).collect();
        let high = names.len() as f64 - 0.5;
        Self { title: String::new(), quantity: Quantity::Number, scale: Scale::Linear, low: -0.5, high, ticks }
    }
}

/// Returns true if values of this key are bytes.
pub fn is_bytes(key: &str) -> bool {
    key == "bytes" || key.ends_with("_bytes")
}

/// Returns the largest unit that is not above the value.
fn unit_of(units: Units, value: f64) -> (f64, &'static str) {
    let fitting = units.iter().rev().find(|(scale, _)| value >= *scale);
    fitting.or(units.first()).copied().unwrap_or((1.0, ""))
}

/// Returns the upper end, ticks from zero and the unit of a linear axis that holds `max`. With `each`, labels have the
/// unit.
fn linear(max: f64, units: Units, each: bool) -> (f64, Vec<Tick>, &'static str) {
    let max = if max > LEAST { max } else { 1.0 };
    let steps = |scale: f64| {
        let step = round_step(max / scale / INTERVALS);
        (step, (max / scale / step - 1e-9).ceil().max(1.0) as u32)
    };
    let in_unit_of_max = unit_of(units, max);
    let (step, count) = steps(in_unit_of_max.0);
    // The upper end has the next unit if the maximum is just below it.
    let (scale, unit) = unit_of(units, f64::from(count) * step * in_unit_of_max.0 * (1.0 + 1e-9));
    let (step, count) = steps(scale);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let label = |i: u32| match i {
        0 => "0".to_owned(),
        _ => format!("{:.decimals$}{}", f64::from(i) * step, if each { unit } else { "" }),
    };
    let ticks = (0..=count).map(|i| Tick { at: f64::from(i) * step * scale, label: label(i) }).collect();
    (f64::from(count) * step * scale, ticks, unit)
}

/// Returns the smallest step of 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// Returns the ends of a logarithmic axis of times, and its ticks.
fn logarithmic(min: f64, max: f64) -> (f64, f64, Vec<Tick>) {
    let decades = (min.log10().floor() as i32 - 1)..=(max.log10().ceil() as i32 + 1);
    let round: Vec<f64> = decades.flat_map(|e| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(e))).collect();
    let low = round.iter().rev().copied().find(|value| *value <= min * (1.0 + 1e-9)).unwrap_or(min);
    let above = |limit: f64| round.iter().copied().find(|value| *value >= limit).unwrap_or(max);
    let high = above(max * (1.0 - 1e-9)).max(above(low * 1.5));
    let is_fine = (high / low).log10() <= FINE_DECADES;
    let is_power = |value: f64| (value.log10() - value.log10().round()).abs() < 1e-6;
    let label = |value: f64| {
        let (scale, unit) = unit_of(TIMES, value * (1.0 + 1e-9));
        format!("{} {unit}", real(value / scale))
    };
    let shown = round.iter().copied().filter(|v| (low..=high).contains(v) && (is_fine || is_power(*v)));
    let ticks = shown.map(|value| Tick { at: value.log10(), label: label(value) }).collect();
    (low.log10(), high.log10(), ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn linear_axes_have_round_ticks_in_units_of_the_field() {
        let axis = Axis::rates("IOPS", 1_400_000.0);
        assert_eq!(labels(&axis), ["0", "0.5M", "1.0M", "1.5M"]);
        assert_eq!((axis.low, axis.high), (0.0, 1.5e6));
        let axis = Axis::byte_rates(5.3 * 1_073_741_824.0);
        assert_eq!((labels(&axis), axis.title.as_str()), (vec!["0", "2", "4", "6"], "GiB/s"));
        let axis = Axis::times("Latency", 84_000.0);
        assert_eq!((labels(&axis), axis.title.as_str()), (vec!["0", "20", "40", "60", "80", "100"], "Latency (us)"));
        assert_eq!(labels(&Axis::rates("IOPS", 0.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&Axis::rates("IOPS", 950.0)), ["0", "0.2k", "0.4k", "0.6k", "0.8k", "1.0k"]);
        let axis = Axis::byte_rates(1_020.0 * 1024.0);
        assert_eq!((labels(&axis), axis.title.as_str()), (vec!["0", "0.2", "0.4", "0.6", "0.8", "1.0"], "MiB/s"));
    }

    #[test]
    fn logarithmic_axes_begin_and_end_at_round_values() {
        let axis = Axis::log_times("Latency", [6300.0, 84_000.0]);
        assert_eq!(labels(&axis), ["5 us", "10 us", "20 us", "50 us", "100 us"]);
        let axis = Axis::log_times("Latency", [900.0, 31e6]);
        assert_eq!(labels(&axis), ["1 us", "10 us", "100 us", "1 ms", "10 ms"]);
        assert!(axis.low < 900f64.log10() && axis.high > 31e6f64.log10());
        assert_eq!(labels(&Axis::log_times("Latency", [1e3, 1e3])), ["1 us", "2 us"], "one value has a range");
        assert_eq!(Axis::scale_of_latencies([1.0, 30.0]), Scale::Log10);
        assert_eq!(Axis::scale_of_latencies([0.0, 30.0]), Scale::Linear);
    }

    #[test]
    fn swept_values_have_a_tick_each() {
        let axis = Axis::swept("Block size", "bytes", &[4096.0, 512.0, 1_048_576.0, 512.0], Scale::Log2).unwrap();
        assert_eq!(labels(&axis), ["512 B", "4 KiB", "1 MiB"]);
        assert_eq!(axis.ticks[1].at, 12.0);
        let axis = Axis::swept("Queues", "queues", &[16_384.0], Scale::Log2).unwrap();
        assert_eq!((labels(&axis), axis.low, axis.high), (vec!["16,384"], 13.5, 14.5));
        assert!(Axis::swept("Queues", "queues", &[0.0], Scale::Log2).is_none());
    }

    #[test]
    fn nines_are_as_far_apart_as_one_another() {
        let axis = Axis::percentiles(99.99);
        assert_eq!(labels(&axis), ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        let at: Vec<f64> = axis.ticks[2..].iter().map(|tick| (tick.at * 1e9).round() / 1e9).collect();
        assert_eq!(at, [1.0, 2.0, 3.0, 4.0]);
        let rows = Axis::rows(&["a".to_owned(), "b".to_owned()]);
        assert_eq!((rows.ticks[0].at, rows.low, rows.high), (1.0, -0.5, 1.5));
    }

    #[test]
    fn values_are_said_with_their_units() {
        assert_eq!(Quantity::Ns.words(12_340.0), "12.3 us");
        assert_eq!(Quantity::Ns.words(0.5), "0.50 ns");
        assert_eq!(Quantity::BytesPerS.words(3.0 * 1_073_741_824.0), "3.00GiB/s");
        assert_eq!(Quantity::PerS.words(12_000.0), "12.0k");
    }

    proptest! {
        #[test]
        fn axes_hold_their_values(max in 0.0f64..LARGEST, small in 1e-18f64..1e18, wide in 1.0f64..1e3) {
            for axis in [Axis::rates("r", max), Axis::byte_rates(max), Axis::times("t", max)] {
                prop_assert!(axis.high >= max * (1.0 - 1e-9) && axis.low < axis.high, "{axis:?}");
                prop_assert!((2..=11).contains(&axis.ticks.len()), "{axis:?}");
            }
            let axis = Axis::log_times("t", [small, small * wide]);
            prop_assert!(axis.low <= small.log10() + 1e-6 && axis.high >= (small * wide).log10() - 1e-6, "{axis:?}");
            prop_assert!(axis.low < axis.high && (2..=8).contains(&axis.ticks.len()), "{axis:?}");
        }
    }
}
