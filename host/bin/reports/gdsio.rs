//! Figures of gdsio, which prints a line for each run: `IoType: READ XferType: GPUD Threads: 8 DataSetSize: ...(KiB) IOSize:
//! 1024(KiB) Throughput: 6.52 GiB/sec, Avg_Latency: 1197.37 usecs ops: ...`. A line may break before `Throughput`.

use super::figure::{Figure, Unit};
use super::source::Source;

/// First word of a run.
const BEGIN: &str = "IoType:";

/// Returns true if a text has a run of gdsio.
pub fn is_report(text: &str) -> bool {
    text.contains(BEGIN) && text.contains("Throughput:")
}

/// Reads all runs. Runs of equal settings are measurements of one figure.
///
/// # Errors
/// A rate or time in another unit.
pub fn read(text: &str) -> Result<Source, String> {
    let mut figures: Vec<Figure> = Vec::new();
    for run in text.split(BEGIN).skip(1) {
        of_run(run)?.into_iter().for_each(|figure| figure.add_to(&mut figures));
    }
    Ok(Source { tool: "gdsio".to_owned(), command: "gdsio".to_owned(), figures, ..Source::default() })
}

fn of_run(run: &str) -> Result<Vec<Figure>, String> {
    let words: Vec<&str> = run.split_whitespace().collect();
    let after = |name: &str, n: usize| words.iter().position(|w| *w == name).and_then(|at| words.get(at + n)).copied();
    let Some(direction) = words.first() else { return Ok(Vec::new()) };
    let mut row = vec![direction.to_lowercase()];
    row.extend(after("XferType:", 1).map(str::to_owned));
    row.extend(after("IOSize:", 1).map(|size| size.replace("(KiB)", " KiB")));
    row.extend(after("Threads:", 1).map(|threads| format!("{threads} threads")));
    let row = row.join(", ");
    let value = |name: &str, units: &[(&str, f64)]| -> Result<Option<f64>, String> {
        let (Some(number), Some(unit)) = (after(name, 1), after(name, 2)) else { return Ok(None) };
        let unit = unit.trim_end_matches(',');
        let scale = units.iter().find(|(known, _)| *known == unit).map(|(_, scale)| scale);
        match (number.parse::<f64>(), scale) {
            (Ok(number), Some(scale)) => Ok(Some(number * scale)),
            _ => Err(format!("{row}: `{name} {number} {unit}` of gdsio is not understood")),
        }
    };
    let rate =
        value("Throughput:", &[("GiB/sec", 1024f64.powi(3)), ("MiB/sec", 1024f64.powi(2)), ("KiB/sec", 1024.0)])?;
    let latency = value("Avg_Latency:", &[("usecs", 1e3), ("msecs", 1e6)])?;
    let figure = |metric, unit, value: Option<f64>| value.map(|value| Figure::one(&row, metric, unit, value));
    let all = [figure("bytes per s", Unit::BytesPerS, rate), figure("latency mean", Unit::Ns, latency)];
    Ok(all.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::Samples;

    const LINE: &str = "IoType: READ XferType: GPUD Threads: 8 DataSetSize: 818796544/4096000(KiB) IOSize: 1024(KiB) Throughput: 6.5 GiB/sec, Avg_Latency: 1197.5 usecs ops: 799606 total_time 119.67 secs";

    #[test]
    fn a_line_and_a_broken_line_are_two_runs_of_one_row() {
        let text = format!("note\n{LINE}\n{}\n", LINE.replace(" Throughput", "\n Throughput").replace("6.5", "7.5"));
        assert!(is_report(&text));
        let source = read(&text).unwrap();
        assert_eq!(source.figures.len(), 2);
        assert_eq!(source.figures[0].row, "read, GPUD, 1024 KiB, 8 threads");
        let gib = 1024f64.powi(3);
        assert_eq!(source.figures[0].samples, Samples::Values(vec![6.5 * gib, 7.5 * gib]));
        assert_eq!(source.figures[1].samples.middle(), 1_197_500.0);
    }

    #[test]
    fn another_unit_is_not_guessed() {
        assert!(read(&LINE.replace("GiB/sec", "GB/sec")).unwrap_err().contains("6.5 GB/sec"));
        assert!(!is_report("IoType: nothing else"));
    }
}
