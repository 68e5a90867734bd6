//! Job files of fio: what fio 3.33 would run, as typed jobs for measurements by kernels.
//!
//! Each value is read as fio reads it. Where fio's reading may surprise, the job has a note. Options that say nothing to
//! kernels are listed with the reason, and options that fio does not know are errors. `docs/fio-jobs.md` has the table.

pub mod access;
pub mod blocks;
pub mod distribution;
mod draft;
mod engines;
mod error;
mod given;
pub mod job;
mod known;
mod lines;
pub mod number;
pub mod steady_state;
#[cfg(test)]
mod tests;

pub use error::{JobFileError, Note, Place};
pub use job::FioJob;
pub use known::Treatment;
pub use lines::{Environment, System};

use draft::{Draft, MOST_JOBS};
use error::Fault;
use given::Given;
use known::Known;
use lines::{Section, Setting};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use warpbell::suggest::hint;
use warpbell::units::grouped;

/// Jobs of a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Jobs, in the order of their sections.
    pub jobs: Vec<FioJob>,
    /// Options that are not applied, each once.
    pub unapplied: Vec<Unapplied>,
}

/// Option that is not applied to any job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unapplied {
    /// First line with the option.
    pub place: Place,
    /// Main name of the option.
    pub key: &'static str,
    /// Treatment, with the reason.
    pub treatment: Treatment,
}

impl fmt::Display for Unapplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.key, self.treatment)
    }
}

impl JobFile {
    /// Returns the notes of all jobs, each once.
    pub fn notes(&self) -> Vec<&Note> {
        let mut seen = BTreeSet::new();
        let all = self.jobs.iter().flat_map(|job| &job.notes);
        all.filter(|note| seen.insert((&*note.place.file, note.place.line, note.text.as_str()))).collect()
    }
}

/// Reads a job file, the files that it includes, and the variables that it names.
///
/// # Errors
/// [`JobFileError`] names the line, and what is wrong with it.
pub fn read(path: &Path) -> Result<JobFile, JobFileError> {
    let text = System.read(path).map_err(|source| JobFileError::File { file: path.display().to_string(), source })?;
    parse(path, &text, &System)
}

/// Reads the text of a job file. `path` is its name in messages, and the place from which included files are found.
///
/// # Errors
/// [`JobFileError`] names the line, and what is wrong with it.
pub fn parse(path: &Path, text: &[u8], environment: &dyn Environment) -> Result<JobFile, JobFileError> {
    let mut file = JobFile { jobs: Vec::new(), unapplied: Vec::new() };
    let (mut global, mut clones) = (Draft::default(), 0);
    for section in lines::sections(path, text, environment)? {
        let mut draft = if section.is_global() { std::mem::take(&mut global) } else { global.of_job() };
        apply(&mut draft, &section, &mut file.unapplied)?;
        if section.is_global() {
            global = draft;
            continue;
        }
        let job = draft.job(&section, file.jobs.last().map(|job| job.group))?;
        clones += u64::from(job.numjobs);
        check_beside(&job, file.jobs.last(), clones).map_err(|fault| fault.at(&section.place))?;
        file.jobs.push(job);
    }
    match file.jobs.is_empty() {
        true => Err(JobFileError::Empty { file: path.display().to_string() }),
        false => Ok(file),
    }
}

/// Refuses what fio refuses about a job beside those before it.
fn check_beside(job: &FioJob, before: Option<&FioJob>, clones: u64) -> Result<(), Fault> {
    if clones > MOST_JOBS {
        let text =
            format!("numjobs: {} jobs up to here, and fio has {MOST_JOBS} at most; write fewer", grouped(clones));
        return Err(Fault(text));
    }
    if before.is_some_and(|before| before.group == job.group && before.steady_state != job.steady_state) {
        let text = "steadystate: fio takes one steady state for all jobs of a group; write stonewall, or the same one";
        return Err(Fault(text.to_owned()));
    }
    Ok(())
}

/// Applies the lines of a section in the order in which fio does: the base of the numbers first, files at the end, and
/// then the options of the I/O engine.
fn apply(draft: &mut Draft, section: &Section, unapplied: &mut Vec<Unapplied>) -> Result<(), JobFileError> {
    let settings = section.settings.iter().map(|setting| (setting, known::find(&setting.key)));
    let mut settings: Vec<(&Setting, Option<Known>)> = settings.collect();
    settings.sort_by_key(|(_, known)| match known.map(|known| known.name) {
        Some("kb_base") => 0,
        Some("filename") => 2,
        Some(_) => 1,
        None => 3,
    });
    for (setting, known) in settings {
        let applied = match known {
            Some(known) => apply_known(draft, setting, known, unapplied),
            None => apply_of_engine(draft, setting, unapplied),
        };
        applied.map_err(|fault| fault.at(&setting.place))?;
    }
    Ok(())
}

fn apply_known(
    draft: &mut Draft,
    setting: &Setting,
    known: Known,
    unapplied: &mut Vec<Unapplied>,
) -> Result<(), Fault> {
    let value = setting.value.as_deref();
    let mut given = Given::new(known.name, value, draft.base);
    match known.treatment_of(value) {
        Treatment::Applied => return draft.apply(given, &setting.place),
        Treatment::Refused(reason) => {
            let (fact, step) = reason.split_once("; ").unwrap_or((reason, "leave it out"));
            return Err(given.fault(fact, step));
        }
        treatment => {
            known.form.check(&mut given)?;
            list(unapplied, setting, known.name, treatment);
        }
    }
    match (known.name, value) {
        ("ioengine", Some(engine)) => draft.engine = engine.to_owned(),
        ("io_submit_mode", mode) => draft.offloads = mode == Some("offload"),
        _ => {}
    }
    Ok(())
}

/// Lists an option of an I/O engine, or refuses an option that fio does not know.
fn apply_of_engine(draft: &Draft, setting: &Setting, unapplied: &mut Vec<Unapplied>) -> Result<(), Fault> {
    let Some((name, engines)) = engines::having(&setting.key) else {
        let known = known::all().flat_map(|known| [Some(known.name), known.alias]).flatten();
        let meant = hint(&setting.key, known.chain(engines::names()));
        let text = format!("fio 3.33 has no option `{}`{meant}; correct it, or leave it out", setting.key);
        return Err(Fault(text));
    };
    if !engines.contains(&draft.engine.as_str()) {
        let text = format!(
            "{name} is an option of the I/O engines {}, and this section has ioengine={}; leave it out",
            engines.join(", "),
            draft.engine
        );
        return Err(Fault(text));
    }
    list(unapplied, setting, name, Treatment::NotApplicable("an option of an I/O engine, and kernels submit commands"));
    Ok(())
}

/// Adds an option to the list of those that are not applied, unless the list has it with the same reason.
fn list(unapplied: &mut Vec<Unapplied>, setting: &Setting, key: &'static str, treatment: Treatment) {
    if !unapplied.iter().any(|other| other.key == key && other.treatment == treatment) {
        unapplied.push(Unapplied { place: setting.place.clone(), key, treatment });
    }
}
