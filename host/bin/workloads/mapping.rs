//! Measures the CPU's access to GPU memory: by loads and stores through a mapping, and by copies of the driver.

use super::error::{MeasureError, refuse};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use warpbell::memory::MemoryError;
use warpbell::units::{Bytes, decimal_rate, three_digits};

/// Smallest and largest size, in bytes.
pub const SIZES: [usize; 2] = [4, 1 << 20];
/// Time for one figure.
const TIME: Duration = Duration::from_millis(100);
/// Fewest and most repetitions for one figure.
const TURNS: [usize; 2] = [5, 100_000];

/// One way to move bytes between the CPU and GPU memory.
pub trait Access {
    /// Copies from the start of the GPU memory.
    fn read(&self, out: &mut [u8]) -> Result<(), MemoryError>;
    /// Copies to the start of the GPU memory.
    fn write(&self, data: &[u8]) -> Result<(), MemoryError>;
}

/// Median times of one size, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MappingRow {
    /// Bytes of each access.
    pub bytes: usize,
    /// Loads through the mapping.
    pub mapped_read_ns: f64,
    /// Copies of the driver to the host.
    pub copied_read_ns: f64,
    /// Stores through the mapping.
    pub mapped_write_ns: f64,
    /// Copies of the driver to the GPU.
    pub copied_write_ns: f64,
}

/// Head of the table: two lines that begin with `#`.
pub const HEAD: &str = "#  bytes    mapped      rate    copied      rate    mapped    copied\n#          read us             read us            write us  write us";

impl fmt::Display for MappingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |ns: f64| three_digits(ns / 1e3);
        let rate = |ns: f64| decimal_rate(self.bytes as f64 / ns * 1e9);
        write!(
            f,
            "{:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            Bytes(self.bytes as u64).to_string().replace(' ', ""),
            micro(self.mapped_read_ns),
            rate(self.mapped_read_ns),
            micro(self.copied_read_ns),
            rate(self.copied_read_ns),
            micro(self.mapped_write_ns),
            micro(self.copied_write_ns)
        )
    }
}

/// Measures one size. Each side reads what the other wrote.
///
/// # Errors
/// [`MeasureError::Memory`] if an access fails, [`MeasureError::Wrong`] if the two sides see other bytes.
pub fn measure(mapped: &dyn Access, copied: &dyn Access, bytes: usize) -> Result<MappingRow, MeasureError> {
    let data: Vec<u8> = (0..bytes).map(|i| (i * 31 + bytes) as u8).collect();
    let other: Vec<u8> = data.iter().map(|b| !b).collect();
    let mut seen = vec![0; bytes];
    let mut side = |writer: &dyn Access, reader: &dyn Access, data: &[u8]| -> Result<(f64, f64), MeasureError> {
        let wrote = median(|| writer.write(data))?;
        let read = median(|| reader.read(&mut seen))?;
        match seen == data {
            true => Ok((wrote, read)),
            false => {
                Err(MeasureError::Wrong(format!("{bytes} bytes of GPU memory: a mapping and a copy show other data")))
            }
        }
    };
    let (copied_write_ns, mapped_read_ns) = side(copied, mapped, &data)?;
    let (mapped_write_ns, copied_read_ns) = side(mapped, copied, &other)?;
    Ok(MappingRow { bytes, mapped_read_ns, copied_read_ns, mapped_write_ns, copied_write_ns })
}

/// Returns the median time of an access in nanoseconds.
fn median(mut access: impl FnMut() -> Result<(), MemoryError>) -> Result<f64, MemoryError> {
    access()?;
    let mut times = Vec::new();
    let began = Instant::now();
    while times.len() < TURNS[0] || (times.len() < TURNS[1] && began.elapsed() < TIME) {
        let start = Instant::now();
        access()?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Returns the sizes from `least` to `most`, each four times the one before.
///
/// # Errors
/// [`MeasureError::Refused`] if a size is out of range.
pub fn sizes(least: u64, most: u64) -> Result<Vec<usize>, MeasureError> {
    let [low, high] = SIZES.map(|s| s as u64);
    if least < low || most > high || least > most {
        return refuse!(
            "sizes from {least} to {most} bytes: choose sizes from {low} to {high} bytes, the smaller first"
        );
    }
    Ok(std::iter::successors(Some(least), |s| Some(s * 4)).take_while(|s| *s <= most).map(|s| s as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Host<'a>(&'a RefCell<Vec<u8>>);

    impl Access for Host<'_> {
        fn read(&self, out: &mut [u8]) -> Result<(), MemoryError> {
            out.copy_from_slice(&self.0.borrow()[..out.len()]);
            Ok(())
        }
        fn write(&self, data: &[u8]) -> Result<(), MemoryError> {
            self.0.borrow_mut()[..data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    #[test]
    fn both_sides_are_timed_and_compared() {
        let memory = RefCell::new(vec![0; 4096]);
        let row = measure(&Host(&memory), &Host(&memory), 4096).unwrap();
        let times = [row.mapped_read_ns, row.copied_read_ns, row.mapped_write_ns, row.copied_write_ns];
        assert!(times.iter().all(|t| *t > 0.0), "{row:?}");
        let text = format!("{HEAD}\n{row}");
        assert!(text.contains("4KiB") && text.lines().all(|line| line.len() <= 80), "{text}");
        crate::schema_keys::same("bench-mapping.schema.json#/properties/results/items", &row);
        let elsewhere = RefCell::new(vec![0; 4096]);
        let e = measure(&Host(&elsewhere), &Host(&memory), 64).unwrap_err();
        assert!(matches!(e, MeasureError::Wrong(_)), "{e}");
    }

    #[test]
    fn sizes_grow_fourfold_within_their_range() {
        assert_eq!(sizes(4, 300).unwrap(), [4, 16, 64, 256]);
        for (least, most) in [(0, 4), (8, 4), (4, 2 << 20)] {
            assert!(sizes(least, most).unwrap_err().to_string().contains("from 4 to 1048576"));
        }
    }
}
