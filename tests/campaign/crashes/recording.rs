//! Recordings of scenarios, and the states that a loss of power leaves of them.

use super::devices::{BYTES, BackEnd, Shape};
use super::image::{Image, Progress};
use super::recorder::{Event, Recorder};
use super::scenario::{Scenario, repair};
use crate::program::folder_in_memory;
use crate::random::Random;
use std::fs;
use std::path::PathBuf;
use warpbell::engine::Engine;

/// A scenario that ran, with all that reached the files meanwhile.
pub(super) struct Recording {
    pub(super) shape: Shape,
    pub(super) back_end: BackEnd,
    base: Vec<Vec<u8>>,
    events: Vec<Event>,
    scenario: Box<dyn Scenario>,
}

/// Files of the devices of a volume.
pub(super) struct Files {
    _folder: tempfile::TempDir,
    pub(super) paths: Vec<PathBuf>,
}

impl Files {
    fn new(files: &[Vec<u8>]) -> Result<Self, String> {
        let folder = folder_in_memory();
        let paths: Vec<_> = (0..files.len()).map(|i| folder.path().join(format!("{i}.img"))).collect();
        for (path, bytes) in paths.iter().zip(files) {
            fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Self { _folder: folder, paths })
    }

    fn read(&self) -> Result<Vec<Vec<u8>>, String> {
        self.paths.iter().map(|p| fs::read(p).map_err(|e| e.to_string())).collect()
    }
}

impl Recording {
    /// Prepares new devices, and records the steps of a scenario.
    pub(super) fn new(
        engine: &Engine,
        shape: Shape,
        back_end: BackEnd,
        mut scenario: Box<dyn Scenario>,
    ) -> Result<Self, String> {
        let files = Files::new(&vec![vec![0; BYTES as usize]; shape.devices])?;
        let v = shape.open(engine, &files.paths, BackEnd::Pwrite, None, false)?;
        scenario.prepare(&v).map_err(|e| format!("preparation: {e}"))?;
        drop(v);
        let mut base = files.read()?;
        scenario.disturb(&mut base);
        Self::of(engine, shape, back_end, scenario, &Files::new(&base)?)
    }

    /// Records the steps of a scenario on these files.
    pub(super) fn of(
        engine: &Engine,
        shape: Shape,
        back_end: BackEnd,
        mut scenario: Box<dyn Scenario>,
        files: &Files,
    ) -> Result<Self, String> {
        let recorder = Recorder::new(&files.paths).map_err(|e| e.to_string())?;
        let v = shape.open(engine, &files.paths, back_end, Some(&recorder), scenario.overwrites())?;
        scenario.run(&v, recorder.log()).map_err(|e| format!("without a loss of power: {e}"))?;
        drop(v);
        let (base, events) = recorder.end()?;
        Ok(Self { shape, back_end, base, events, scenario })
    }

    /// Cuts the power once, and checks what is there. Goes on with what is there, by a second recording if `depth` is not 0.
    pub(super) fn cut(&self, engine: &Engine, random: &mut Random, depth: u32) -> Result<&'static str, String> {
        let image = Image::new(&self.base, &self.events, random);
        let told = |e: String| format!("{e}\n  {} device(s), {:?}\n  {}", self.shape.devices, self.shape, image.text);
        let files = Files::new(&image.files)?;
        // Each request to io_uring waits for a thread of the controller: too long for every run.
        let reader = random.of(&[
            BackEnd::Pwrite,
            BackEnd::Pwrite,
            BackEnd::Pwrite,
            BackEnd::Mmap,
            BackEnd::Mmap,
            BackEnd::Uring,
        ]);
        let v = self.shape.open(engine, &files.paths, reader, None, false).map_err(told)?;
        let class = self.scenario.check(&v, image.progress).map_err(told)?;
        // It takes longer than the check.
        if depth == 0 && random.once_in(2) {
            return Ok(class);
        }
        let follow_up = self.scenario.follow_up(&v, random).map_err(told)?;
        drop(v);
        let back_end = if random.once_in(16) { self.back_end } else { reader };
        let next = Self::of(engine, self.shape, back_end, follow_up, &files)
            .map_err(|e| told(format!("the next step on what is there: {e}")))?;
        next.complete(engine, &files).map_err(|e| told(format!("after the next step: {e}")))?;
        if depth > 0 {
            next.cut(engine, random, depth - 1).map_err(|e| told(format!("interrupted once more: {e}")))?;
        }
        Ok(class)
    }

    /// Checks the files as they are after all steps, and repairs them.
    fn complete(&self, engine: &Engine, files: &Files) -> Result<(), String> {
        let steps = self.events.iter().filter(|e| matches!(e, Event::Done)).count();
        let v = self.shape.open(engine, &files.paths, BackEnd::Pwrite, None, false)?;
        self.scenario.check(&v, Progress { done: steps, begun: steps })?;
        repair(&v)
    }
}
