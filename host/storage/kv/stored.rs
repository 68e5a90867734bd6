//! Stores as a volume holds them: creating, opening, listing, removing.

use super::layout::{Raw, Shape, check_name, configuration_of, records_of, slab_of, store_of};
use super::load::load;
use super::medium::Medium;
use super::record::RECORD;
use super::state::State;
use super::{Inner, KvOptions, KvStore};
use crate::storage::error::{KvError, ManifestError, StorageError};
use crate::storage::volume::Claim;
use crate::storage::{ElementType, Entry, Volume};
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes of zeros that are written at once.
const ZEROS: u64 = 4 << 20;

/// A store of a volume: [`KvStore::list`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredKv {
    /// Name of the store.
    pub name: String,
    /// Sizes of the store, or the error of one that cannot be opened.
    pub options: Result<KvOptions, KvError>,
    /// Size of its arrays in bytes.
    pub bytes: u64,
}

impl KvStore {
    /// Creates an empty store beside everything that the volume holds, and opens it. Writes zeros as records, 128 bytes for
    /// each object. Space for data is not written.
    ///
    /// # Errors
    /// * [`KvError::Name`] or [`KvError::Options`] if there can be no such store, [`KvError::Exists`] if there is one.
    /// * Otherwise as for [`Volume::add`], [`VolumeWriter::finish`](crate::storage::VolumeWriter::finish) and
    ///   [`KvStore::open`].
    pub fn create(volume: &Volume, name: &str, options: &KvOptions) -> Result<Self, StorageError> {
        check_name(name)?;
        let shape = Shape::new(options, volume.block_bytes())?;
        if entries(volume)?.iter().any(|e| store_of(&e.name) == Some(name)) {
            return Err(KvError::Exists { device: volume.name().to_owned(), name: name.to_owned() }.into());
        }
        let claim = claim(volume, name)?;
        let mut writer = volume.add(shape.plan(name), &format!("KV store `{name}`"))?;
        writer.append(&configuration_of(name), &[shape.to_raw()])?;
        let mut left = shape.objects * RECORD as u64;
        let zeros = vec![0; left.min(ZEROS) as usize];
        while left > 0 {
            let now = left.min(ZEROS);
            writer.append_bytes(&records_of(name), ElementType::Record, &zeros[..now as usize])?;
            left -= now;
        }
        writer.finish()?;
        Self::open_claimed(volume, name, claim)
    }

    /// Opens the store called `name`. Reads its records: 128 bytes for each object that it may hold, whatever it holds.
    ///
    /// A store is open once at a time. Devices that other processes have opened cannot be opened, but for controllers of
    /// other machines: see to it there that one machine has the store open.
    ///
    /// # Errors
    /// * [`KvError::Unknown`] if the volume holds no such store, [`KvError::Open`] if this process has it open already.
    /// * [`KvError::Format`] or [`KvError::Damaged`] if its configuration cannot be used. Damaged records are no error:
    ///   [`KvStats::damaged_records`](crate::storage::KvStats::damaged_records) counts them.
    /// * [`StorageError::Manifest`] if the volume's content cannot be read; [`StorageError::Nvme`] if a device does not
    ///   complete a read; [`StorageError::File`] if the system gives no random number.
    /// * [`StorageError::Option`] if there is no memory for the index.
    pub fn open(volume: &Volume, name: &str) -> Result<Self, StorageError> {
        check_name(name)?;
        Self::open_claimed(volume, name, claim(volume, name)?)
    }

    fn open_claimed(volume: &Volume, name: &str, claim: Claim) -> Result<Self, StorageError> {
        let medium = place(volume, name)?;
        let seed = crate::random::bytes().map_err(|source| StorageError::File {
            path: "the system's random numbers".into(),
            doing: "opening a KV store",
            source,
        })?;
        let loaded = load(&medium, u64::from_le_bytes(seed))?;
        if loaded.damaged > 0 {
            tracing::warn!(
                store = name,
                volume = volume.name(),
                records = loaded.damaged,
                "damaged records were dropped"
            );
        }
        let state = Mutex::new(State::new(loaded, medium.shape.limits.units));
        Ok(Self(Arc::new(Inner { state, changes: Mutex::new(()), medium, claim })))
    }

    /// Returns the stores of a volume, in the order of their names.
    ///
    /// # Errors
    /// [`StorageError`] if the volume cannot be read. A store that cannot be opened is no error.
    pub fn list(volume: &Volume) -> Result<Vec<StoredKv>, StorageError> {
        let entries = entries(volume)?;
        let of = |name: String| {
            let own = entries.iter().filter(|e| store_of(&e.name) == Some(&name));
            let bytes = own.map(Entry::bytes).sum();
            let options = match place(volume, &name) {
                Ok(medium) => Ok(medium.shape.options()),
                Err(StorageError::Kv(e)) => Err(e),
                Err(StorageError::Manifest { source, .. }) => {
                    Err(KvError::Damaged { name: name.clone(), reason: source.to_string() })
                }
                Err(e) => return Err(e),
            };
            Ok(StoredKv { name, options, bytes })
        };
        names(&entries).into_iter().map(of).collect()
    }

    /// Removes a store from a volume, with all objects. Its space can be used again; its data is not erased.
    ///
    /// # Errors
    /// [`KvError::Unknown`] if the volume holds no such store, [`KvError::Open`] if this process has it open; otherwise as
    /// for [`Volume::remove`].
    pub fn remove(volume: &Volume, name: &str) -> Result<(), StorageError> {
        check_name(name)?;
        let _claim = claim(volume, name)?;
        let entries = entries(volume)?;
        let arrays: Vec<&str> =
            entries.iter().map(|e| e.name.as_str()).filter(|array| store_of(array) == Some(name)).collect();
        if arrays.is_empty() {
            return Err(unknown(volume, name, &entries).into());
        }
        volume.remove(&arrays)?;
        Ok(())
    }
}

fn claim(volume: &Volume, name: &str) -> Result<Claim, KvError> {
    let claim = volume.claim(&configuration_of(name));
    claim.ok_or_else(|| KvError::Open { device: volume.name().to_owned(), name: name.to_owned() })
}

/// Reads the configuration of a store, and finds its arrays. Both are untrusted.
fn place(volume: &Volume, name: &str) -> Result<Medium, StorageError> {
    let raw: Vec<Raw> = match volume.read_array(&configuration_of(name)) {
        Ok(raw) => raw,
        Err(StorageError::Manifest { source: ManifestError::Absent | ManifestError::Unknown { .. }, .. }) => {
            return Err(unknown(volume, name, &entries(volume)?).into());
        }
        Err(e) => return Err(e),
    };
    let damaged = |reason: String| KvError::Damaged { name: name.to_owned(), reason };
    let [raw] = raw[..] else { return Err(damaged(format!("it has {} configurations", raw.len())).into()) };
    let shape = Shape::parse(name, &raw)?;
    let manifest = volume.manifest()?;
    let (unit, units) = (shape.limits.unit, shape.limits.units);
    if unit % volume.block_bytes() as u64 != 0 {
        let block = volume.block_bytes();
        return Err(damaged(format!("its allocation units have {unit} bytes, and a block has {block}")).into());
    }
    let find = |array: String, each: u64, count: u64| {
        let entry = manifest.find(&array).map_err(|source| volume.contents().wrong_manifest(source))?;
        if !entry.self_checked || (entry.count, u64::from(entry.element_bytes)) != (count, each) {
            let (found, bytes) = (entry.count, entry.element_bytes);
            let reason =
                format!("`{array}` has {found} elements of {bytes} bytes, its configuration says {count} of {each}");
            return Err(StorageError::from(damaged(reason)));
        }
        Ok(entry.offset)
    };
    let records = find(records_of(name), RECORD as u64, shape.objects)?;
    let slab = find(slab_of(name), unit, units)?;
    Ok(Medium::new(volume, name, shape, records, slab))
}

/// Returns the arrays of a volume; none if nothing is stored there.
fn entries(volume: &Volume) -> Result<Vec<Entry>, StorageError> {
    match volume.manifest() {
        Ok(manifest) => Ok(manifest.entries().to_vec()),
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Returns the names of the stores with these arrays, in their order.
fn names(entries: &[Entry]) -> Vec<String> {
    let mut names: Vec<String> = entries.iter().filter_map(|e| store_of(&e.name).map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

fn unknown(volume: &Volume, name: &str, entries: &[Entry]) -> KvError {
    KvError::Unknown { device: volume.name().to_owned(), name: name.to_owned(), there: names(entries) }
}
