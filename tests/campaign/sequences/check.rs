//! Conditions after each step: data that is read is what may be there, data that a device holds is found, and no copy in use
//! lacks anything. Files of copies are compared with the arrays' bytes, without reading superblocks.

use super::{Device, Layout, Sequence, State, lost};
use warpbell::engine::Engine;
use warpbell::storage::{Cache, ManifestError, StorageError, Volume};

impl Sequence {
    /// Compares everything that can be read with the states that are allowed. Returns the states that fit, and whether all
    /// could be read.
    pub(super) fn compare(&self, v: &Volume, by_kernels: bool) -> (Vec<State>, Result<(), StorageError>) {
        let names: Vec<String> = match v.manifest() {
            Ok(manifest) => manifest.entries().iter().map(|e| e.name.clone()).collect(),
            Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Vec::new(),
            Err(e) => return (self.allowed.clone(), Err(e)),
        };
        let has_names = |s: &&State| s.len() == names.len() && names.iter().all(|n| s.contains_key(n.as_str()));
        let mut fits: Vec<State> = self.allowed.iter().filter(has_names).cloned().collect();
        let mut outcome = Ok(());
        for name in &names {
            let by_kernel = || Cache::on(v).bytes(64 << 10).build()?.open::<u64>(name).and_then(|a| a.read(0..a.len()));
            let reads = [Some(v.read_array::<u64>(name)), (by_kernels && v.has_page_checksums()).then(by_kernel)];
            for read in reads.into_iter().flatten() {
                match read {
                    Ok(values) => fits.retain(|s| s[name.as_str()] == values),
                    Err(e) => outcome = Err(e),
                }
            }
        }
        if fits.is_empty() {
            self.fail(&format!("what is there, {names:?}, is no state that may be there"));
        }
        (fits, outcome)
    }

    /// Returns true if everything that was acknowledged must be there.
    fn is_held(&self) -> bool {
        match self.layout {
            Layout::Copies(_) => {
                self.devices.iter().any(Device::is_whole) && self.devices.iter().all(|d| d.damaged_heads < 3)
            }
            Layout::Stripes(_) => self.devices.iter().all(|d| !d.is_damaged),
        }
    }

    /// Returns true for the error of copies that went on without each other, if one was put back.
    fn may_refuse(&self, e: &StorageError) -> bool {
        let is_diverged = matches!(e, StorageError::Manifest { source: ManifestError::Diverged { .. }, .. });
        is_diverged && self.devices.iter().any(|d| d.went_back)
    }

    /// Opens the volume without faults. What a copy holds must be there, and no copy in use may lack anything.
    pub(super) fn check(&mut self, engine: &Engine) {
        let is_held = self.is_held();
        let v = match self.open_all(engine, &[]) {
            Ok(v) => v,
            Err(e) if self.may_refuse(&e) => return,
            Err(e) if is_held => self.fail(&format!("the volume does not open: {e}")),
            Err(_) => return,
        };
        let by_kernels = self.random.once_in(3);
        let (mut fits, mut outcome) = self.compare(&v, by_kernels);
        if outcome.as_ref().is_err_and(|e| self.may_refuse(e)) {
            return;
        }
        if let (Err(e), true, true) = (&outcome, is_held, self.devices.iter().any(|d| d.is_damaged)) {
            // Reads of the host take no other copy where the data is damaged; a repair does.
            self.steps.push(format!("repaired because of: {e}"));
            let found = v.verify(true).unwrap_or_else(|e| self.fail(&format!("repair: {e}")));
            if !found.is_intact() {
                self.fail(&format!("not repaired: {found:?}"));
            }
            (fits, outcome) = self.compare(&v, by_kernels);
            self.devices.iter_mut().for_each(|d| d.is_damaged = false);
        }
        if let (Err(e), true) = (&outcome, is_held) {
            self.fail(&format!("a copy holds all data, and it cannot be read: {e}"));
        }
        if outcome.is_err() {
            return;
        }
        let lost = lost(&v);
        let flushed = self.random.once_in(2) && v.flush().is_ok();
        drop(v);
        if flushed {
            self.allowed = fits.clone();
        }
        for device in 0..self.devices.len() {
            self.devices[device].is_lost = lost.contains(&device);
            let is_copy = matches!(self.layout, Layout::Copies(_));
            if is_copy && self.devices[device].is_whole() && !fits.iter().any(|s| self.has_bytes(device, s)) {
                self.fail(&format!("copy {device} is in use and lacks data"));
            }
        }
    }

    /// Returns true if the file of a copy has the bytes of all arrays.
    fn has_bytes(&self, device: usize, state: &State) -> bool {
        let held = std::fs::read(&self.paths[device]).unwrap();
        state.values().all(|values| {
            let bytes: &[u8] = bytemuck::cast_slice(values);
            (0..held.len()).step_by(64 << 10).any(|at| held[at..].starts_with(bytes))
        })
    }

    /// Repairs everything without faults, if a copy holds all data. All copies have to hold all data then.
    pub(super) fn end(&mut self, engine: &Engine) {
        let is_foreign = self.devices.iter().any(|d| d.is_foreign && !d.is_whole());
        if !self.is_held() || is_foreign || self.allowed.len() > 1 || self.allowed[0] == State::new() {
            return;
        }
        let v = match self.open_all(engine, &[]) {
            Ok(v) => v,
            Err(e) if self.may_refuse(&e) => return,
            Err(e) => self.fail(&format!("the volume does not open: {e}")),
        };
        if v.manifest().is_err_and(|e| self.may_refuse(&e)) {
            return;
        }
        let found = v.verify(true).unwrap_or_else(|e| self.fail(&format!("repair: {e}")));
        let lost = lost(&v);
        if !found.is_intact() || !lost.is_empty() {
            self.fail(&format!("not repaired: {found:?}, {lost:?}"));
        }
        drop(v);
        if matches!(self.layout, Layout::Copies(_)) {
            for device in 0..self.devices.len() {
                if !self.has_bytes(device, &self.allowed[0]) {
                    self.fail(&format!("copy {device} was repaired and lacks data"));
                }
            }
        }
        self.devices.fill(Device::default());
        self.steps.push("all repaired".to_owned());
        self.check(engine);
    }
}
