//! Counters of this process, as values with names and labels.
//!
//! Engines, volumes, tables and worlds register themselves while they live. [`snapshot`] reads the counters of all of
//! them. Kernels keep these counters anyway, so that reading costs them nothing and does not wait for them: counters in GPU memory are copied
//! by a stream of their own, counters in host memory are loaded.
//!
//! [`Snapshot::to_text`] prints the exposition format of Prometheus, version 0.0.4.

pub(crate) mod family;

pub(crate) use family::{FAMILIES, Family};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Value of one counter at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// Name of the sample's family.
    pub name: Cow<'static, str>,
    /// Labels, by name.
    pub labels: BTreeMap<Cow<'static, str>, String>,
    /// The value, in the unit that the name ends with. Integers above 2^53 are rounded.
    pub value: f64,
}

impl Sample {
    /// Returns the value of a label, or an empty text if the sample does not have it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Values of all counters of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Seconds since the process first used this module.
    pub uptime_s: f64,
    /// The values, in the order in which their objects were created.
    pub samples: Vec<Sample>,
}

/// Collects the values of one object. All of them have the labels of the object.
pub(crate) struct Samples<'a> {
    labels: &'a [(&'static str, String)],
    out: Vec<Sample>,
}

impl Samples<'_> {
    /// Adds a value of the family, with labels of its own.
    pub(crate) fn add(&mut self, family: &'static Family, labels: &[(&'static str, &str)], value: u64) {
        let object = self.labels.iter().map(|(k, v)| (Cow::Borrowed(*k), v.clone()));
        let own = labels.iter().map(|(k, v)| (Cow::Borrowed(*k), (*v).to_owned()));
        self.out.push(Sample {
            name: Cow::Borrowed(family.name),
            labels: object.chain(own).collect(),
            value: value as f64,
        });
    }
}

/// Adds the values of one object. Returns false if they cannot be read.
type Reader = Box<dyn FnMut(&mut Samples<'_>) -> bool + Send>;

/// An object, and the values that were last read from it.
struct Entry {
    labels: Vec<(&'static str, String)>,
    /// `None` once the object is dropped.
    reader: Option<Reader>,
    last: Vec<Sample>,
}

#[derive(Default)]
struct Registry {
    started: OnceLock<Instant>,
    entries: Mutex<Vec<Arc<Mutex<Entry>>>>,
    next: AtomicU64,
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    let registry = REGISTRY.get_or_init(Registry::default);
    registry.started.get_or_init(Instant::now);
    registry
}

/// Place of an object among those that [`snapshot`] reads. Dropping it waits for a reading in progress, and ends all
/// later ones. Thus no reader keeps a dropped object's memory.
pub(crate) struct Registration(Arc<Mutex<Entry>>);

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registration")
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry().entries.lock().retain(|e| !Arc::ptr_eq(e, &self.0));
        let reader = self.0.lock().reader.take();
        drop(reader);
    }
}

/// Registers an object, with the label of its kind and its name. A number that is unique in the process becomes the label `id`.
///
/// The reader must own what it reads, and must not own the object: the last owner of an object closes it.
pub(crate) fn register(
    kind: &'static str,
    name: &str,
    reader: impl FnMut(&mut Samples<'_>) -> bool + Send + 'static,
) -> Registration {
    let registry = registry();
    let id = registry.next.fetch_add(1, Ordering::Relaxed);
    let labels = vec![("id", id.to_string()), (kind, name.to_owned())];
    let entry = Arc::new(Mutex::new(Entry { labels, reader: Some(Box::new(reader)), last: Vec::new() }));
    registry.entries.lock().push(entry.clone());
    Registration(entry)
}

/// Reads the counters of all objects of this process. Does not wait for kernels.
///
/// Values of an object that cannot be read, as after the loss of a GPU, are those of the last time. The family
/// `warpbell_unreadable_objects` has the number of such objects.
///
/// # Examples
///
/// ```
/// # #[cfg(all(feature = "storage", feature = "soft", feature = "cpu-image"))] {
/// use warpbell::engine::Engine;
/// use warpbell::metrics;
/// use warpbell::storage::{Drive, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
///
/// let now = metrics::snapshot();
/// let of_volume = now.samples.iter().filter(|s| s.label("volume") == volume.name());
/// assert!(of_volume.count() > 10);
/// assert!(now.to_text().contains("# TYPE warpbell_volume_commands_total counter"));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn snapshot() -> Snapshot {
    let registry = registry();
    let entries = registry.entries.lock().clone();
    let (mut samples, mut unreadable) = (Vec::new(), 0);
    for entry in entries {
        let mut entry = entry.lock();
        let Entry { labels, reader: Some(reader), last } = &mut *entry else { continue };
        let mut own = Samples { labels, out: Vec::with_capacity(last.len()) };
        if reader(&mut own) {
            *last = own.out;
        } else {
            unreadable += 1;
        }
        samples.extend_from_slice(last);
    }
    let uptime_s = registry.started.get().map_or(0.0, |t| t.elapsed().as_secs_f64());
    let mut process = Samples { labels: &[], out: Vec::new() };
    process.add(&family::UNREADABLE, &[], unreadable);
    samples.extend(process.out);
    Snapshot { uptime_s, samples }
}

impl Snapshot {
    /// Returns the values in the text format of Prometheus, version 0.0.4.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let head = |out: &mut String, f: &Family| {
            // Writing to a `String` does not fail.
            let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {}", f.name, f.help, f.name, f.kind.name());
        };
        head(&mut out, &family::UPTIME);
        let _ = writeln!(out, "{} {}", family::UPTIME.name, self.uptime_s);
        // The format wants all samples of a family in one group.
        for family in FAMILIES {
            let mut own = self.samples.iter().filter(|s| s.name == family.name).peekable();
            if own.peek().is_some() {
                head(&mut out, family);
            }
            for sample in own {
                let _ = writeln!(out, "{}{} {}", sample.name, Labels(&sample.labels), sample.value);
            }
        }
        out
    }
}

/// Labels as the text format writes them: nothing, or `{a="b",c="d"}`.
struct Labels<'a>(&'a BTreeMap<Cow<'static, str>, String>);

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "{" } else { "," })?;
            write!(f, "{name}=\"")?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// A counter of 64 bits, made of a word of 32 bits that kernels count in and that starts again at 0 after a reset.
///
/// It is right if less than 2^31 events lie between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wide {
    last: u32,
    sum: u64,
}

impl Wide {
    /// Returns the counter, now that its word has this value.
    pub(crate) fn at(&mut self, word: u32) -> u64 {
        let since = word.wrapping_sub(self.last);
        // A word that went backwards was reset.
        self.sum += u64::from(if since > u32::MAX / 2 { word } else { since });
        self.last = word;
        self.sum
    }
}

#[cfg(test)]
mod tests;
