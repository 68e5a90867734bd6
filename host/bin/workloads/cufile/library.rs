//! libcufile: where it is found, its configuration, and its driver session.

use super::abi::{Code, Functions, Outcome, Properties};
use super::error::{CufileError, check};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::Serialize;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// Environment variable with the path of the library.
pub const PATH_VARIABLE: &str = "WARPBELL_CUFILE";
/// The library's own variable with the path of its configuration.
const CONFIGURATION: &str = "CUFILE_ENV_PATH_JSON";
/// Name that the loader looks for.
const NAME: &str = "libcufile.so.0";
/// Time limit of `cuFileDriverOpen`, which never returns without the CUDA driver (seen with version 1.20).
const OPENING: Duration = Duration::from_secs(30);

/// The loaded library with its configuration. The driver is not open yet.
pub struct Cufile {
    pub(super) functions: Functions,
    path: PathBuf,
    configuration: Configuration,
}

/// The library's configuration.
enum Configuration {
    /// A file of the user.
    Given(OsString),
    /// A file that allows compatible mode, removed at the end.
    Temporary(TempDir),
}

/// Returns the paths to try, in this order.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(PATH_VARIABLE) {
        return vec![named.into()];
    }
    let mut all = vec![PathBuf::from(NAME)];
    let variables = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkits = variables.chain(folders("/usr/local", "cuda"));
    all.extend(toolkits.flat_map(|t| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|l| t.join(l).join(NAME))));
    // The wheel nvidia-cufile, in the environment that is active and in those of the system.
    let environment = std::env::var_os("VIRTUAL_ENV").map(|v| PathBuf::from(v).join("lib"));
    for lib in environment.into_iter().chain(["/usr/local/lib".into(), "/usr/lib".into()]) {
        for python in folders(&lib, "python3") {
            let packages = ["site-packages", "dist-packages"].map(|p| python.join(p).join("nvidia"));
            all.extend(packages.iter().flat_map(|p| ["cu13/lib", "cufile/lib"].map(|l| p.join(l).join(NAME))));
        }
    }
    all.retain(|path| path.as_os_str() == NAME || path.exists());
    all
}

/// Returns the entries of a folder whose names begin with `prefix`, the last first.
fn folders(parent: impl AsRef<Path>, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix)).map(|e| e.path()).collect();
    found.sort();
    found.reverse();
    found
}

impl Cufile {
    /// Loads the library, and writes a configuration that allows compatible mode unless the user has set one.
    ///
    /// # Errors
    /// [`CufileError::Library`] if the library is not found or lacks a function, [`CufileError::Setup`] if the
    /// configuration cannot be written.
    ///
    /// # Safety
    /// No other thread of the process reads or writes the environment during the call.
    pub unsafe fn load() -> Result<Self, CufileError> {
        let configuration = match std::env::var_os(CONFIGURATION) {
            Some(given) => Configuration::Given(given),
            None => {
                let folder = temporary().map_err(|source| CufileError::Setup {
                    what: "writing a temporary configuration of cuFile",
                    source,
                })?;
                // SAFETY: the caller promises that no other thread uses the environment. The library reads it when it is
                // loaded.
                unsafe { std::env::set_var(CONFIGURATION, folder.path().join(FILE)) };
                Configuration::Temporary(folder)
            }
        };
        let mut reasons = Vec::new();
        for path in candidates() {
            // SAFETY: the initialisers of NVIDIA's library only prepare its own data. The user vouches for a library
            // that the variable names.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => {
                    // SAFETY: the library is libcufile by its name.
                    let functions = unsafe { Functions::of(&library) }.map_err(|e| CufileError::Library {
                        reason: format!("{} lacks a function ({})", path.display(), loaders_words(&e)),
                    })?;
                    // Its threads may run until the process ends.
                    std::mem::forget(library);
                    return Ok(Self { functions, path, configuration });
                }
                Err(e) => reasons.push(loaders_words(&e)),
            }
        }
        Err(CufileError::Library { reason: format!("it cannot be loaded ({})", reasons.join("; ")) })
    }

    /// Opens the library's driver, with the context of a GPU current if there is one.
    ///
    /// # Errors
    /// [`CufileError::Call`] if a call fails, [`CufileError::Late`] if opening does not end in 30 s.
    pub fn open(self) -> Result<Session, CufileError> {
        let open = self.functions.driver_open;
        let (done, ended) = channel();
        // A thread of its own, because the call may never return.
        let thread = std::thread::Builder::new().name("wb-cufile-open".to_owned()).spawn(move || {
            // SAFETY: the function has this type; it takes no arguments.
            _ = done.send(unsafe { open() });
        });
        thread.map_err(|source| CufileError::Setup { what: "starting a thread", source })?;
        let outcome = ended.recv_timeout(OPENING).map_err(|_| CufileError::Late {
            what: "cuFileDriverOpen",
            seconds: OPENING.as_secs(),
            next: "is the CUDA driver (libcuda.so.1) installed?",
        })?;
        self.check("cuFileDriverOpen", outcome)?;
        let (mut properties, mut version) = (Properties::default(), 0);
        // SAFETY: writes a structure that is larger than that of any known version.
        let told = unsafe { (self.functions.properties)(&mut properties) };
        // SAFETY: writes one number.
        let versioned = unsafe { (self.functions.version)(&mut version) };
        let session = Session { library: self, properties, version };
        session.library.check("cuFileDriverGetProperties", told)?;
        session.library.check("cuFileGetVersion", versioned)?;
        Ok(session)
    }

    /// Returns an error unless a call succeeded. Where compatible mode is missing, the error says how to allow it.
    pub(super) fn check(&self, function: &'static str, outcome: Outcome) -> Result<(), CufileError> {
        check(function, outcome).map_err(|e| match e {
            CufileError::Call { function, code, cuda, next: None } => {
                CufileError::Call { function, code, cuda, next: self.advice(code) }
            }
            other => other,
        })
    }

    fn advice(&self, code: Code) -> Option<String> {
        match &self.configuration {
            Configuration::Given(path) => code.wants_compat().then(|| {
                format!(
                    "set \"allow_compat_mode\": true under \"properties\" in {}, or unset {CONFIGURATION}",
                    path.to_string_lossy()
                )
            }),
            Configuration::Temporary(folder) => log_errors(folder.path()),
        }
    }
}

/// Errors of the library's log that a message repeats, the last ones.
const LOG_ERRORS: usize = 3;

/// Returns the last errors in the library's log, and what to do about those that are known.
fn log_errors(folder: &Path) -> Option<String> {
    let logs =
        std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).filter(|p| p.extension() == Some("log".as_ref()));
    let text: String = logs.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let mut errors: Vec<&str> = Vec::new();
    for line in text.lines() {
        let Some((_, error)) = line.split_once("ERROR") else { continue };
        // The place in the library's source comes first.
        let error = error.trim().split_once(' ').map_or("", |(_, words)| words.trim());
        if !error.is_empty() && !errors.contains(&error) {
            errors.push(error);
        }
    }
    let next = match errors.iter().any(|e| e.contains("udev property not found")) {
        true => "; cuFile looks the file's disk up in udev's database: in a container mount /run/udev",
        false => "",
    };
    let last = &errors[errors.len().saturating_sub(LOG_ERRORS)..];
    (!last.is_empty()).then(|| format!("its log says: {}{next}", last.join("; ")))
}

/// Name of the temporary configuration.
const FILE: &str = "cufile.json";

/// Writes a configuration into a new folder, in which the library also puts its log.
fn temporary() -> std::io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("warpbell-cufile-").tempdir()?;
    let text = serde_json::json!({
        "logging": { "dir": folder.path().to_string_lossy(), "level": "ERROR" },
        "properties": { "allow_compat_mode": true },
    });
    std::fs::write(folder.path().join(FILE), text.to_string())?;
    Ok(folder)
}

/// Returns the loader's own message, which names the file and the function.
fn loaders_words(e: &libloading::Error) -> String {
    e.source().map_or_else(|| e.to_string(), ToString::to_string)
}

/// The library with its driver open, until it is dropped.
pub struct Session {
    pub(super) library: Cufile,
    pub(super) properties: Properties,
    version: i32,
}

/// Facts about the library for a report. Prints as two lines.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Path or name under which the library was loaded.
    pub library: String,
    /// Version, as in `1.15.0`.
    pub version: String,
    /// True if the kernel module nvidia-fs is loaded.
    pub nvidia_fs: bool,
    /// True if files without GPUDirect Storage may be used.
    pub allow_compat_mode: bool,
    /// Features that the library reports.
    pub features: String,
    /// Largest number of entries in a batch.
    pub max_batch: u32,
    /// Path of the configuration.
    pub configuration: String,
    /// True if this program wrote the configuration.
    pub temporary_configuration: bool,
}

impl Session {
    /// Returns the facts about the library.
    pub fn facts(&self) -> Facts {
        let (configuration, temporary_configuration) = match &self.library.configuration {
            Configuration::Given(path) => (path.to_string_lossy().into_owned(), false),
            Configuration::Temporary(folder) => (folder.path().join(FILE).display().to_string(), true),
        };
        let version = self.version;
        Facts {
            library: self.library.path.display().to_string(),
            // Thousands are the major version, tens the minor one (cufile.h, cuFileGetVersion).
            version: format!("{}.{}.{}", version / 1000, version % 1000 / 10, version % 10),
            nvidia_fs: Path::new("/proc/driver/nvidia-fs").exists(),
            allow_compat_mode: self.properties.allows_compat(),
            features: self.properties.feature_names(),
            max_batch: self.properties.max_batch,
            configuration,
            temporary_configuration,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the function has this type; files and memory are deregistered, because they borrow the session.
        let outcome = unsafe { (self.library.functions.driver_close)() };
        if let Some((code, _)) = outcome.failed() {
            tracing::warn!(%code, "cuFile could not be closed");
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match (self.nvidia_fs, self.allow_compat_mode) {
            (true, _) => "nvidia-fs is loaded: direct where the file system and its drive support it",
            (false, true) => "nvidia-fs is not loaded: compatible mode, data goes through host memory",
            (false, false) => "nvidia-fs is not loaded, and compatible mode is not allowed",
        };
        writeln!(f, "cuFile {} ({})  {mode}", self.version, self.library)?;
        let by = if self.temporary_configuration {
            "  (written by this program, because CUFILE_ENV_PATH_JSON is not set; /etc/cufile.json is not read)"
        } else {
            "  (CUFILE_ENV_PATH_JSON)"
        };
        write!(
            f,
            "  features {}  largest batch {}  allow_compat_mode {}  configuration {}{by}",
            self.features, self.max_batch, self.allow_compat_mode, self.configuration
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_and_the_configuration_are_told() {
        let facts = Facts {
            library: "libcufile.so.0".to_owned(),
            version: "1.15.0".to_owned(),
            nvidia_fs: false,
            allow_compat_mode: true,
            features: "batch streams".to_owned(),
            max_batch: 128,
            configuration: "/tmp/x/cufile.json".to_owned(),
            temporary_configuration: true,
        };
        let text = facts.to_string();
        for words in ["compatible mode, data goes through host memory", "CUFILE_ENV_PATH_JSON is not set", "1.15.0"] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        let given = Facts { temporary_configuration: false, nvidia_fs: true, ..facts };
        assert!(given.to_string().contains("nvidia-fs is loaded"));
    }

    #[test]
    fn the_configuration_is_what_the_library_reads() {
        let folder = temporary().unwrap();
        let text = std::fs::read(folder.path().join(FILE)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["properties"]["allow_compat_mode"], true);
        assert_eq!(json["logging"]["dir"], folder.path().to_str().unwrap());
    }

    #[test]
    fn errors_of_the_log_are_told_once_each() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(log_errors(folder.path()), None);
        let line = |level, words| format!(" 26-11-2026 12:05:51:478 [pid=721 tid=721] {level} {words}\n");
        let lines = [
            line("NOTICE", "cufio-drv:851 running in compatible mode"),
            line("ERROR ", "cufio-udev:67 udev property not found: ID_FS_USAGE vda"),
            line("ERROR ", "cufio-obj:242 unable to get volume attributes for fd 49"),
            line("ERROR ", "cufio-obj:242 unable to get volume attributes for fd 49"),
            line("ERROR ", "cufio:303 cuFileHandleRegister error, failed to allocate file object"),
            line("ERROR ", "cufio:331 cuFileHandleRegister error: file descriptor is not registered"),
        ];
        std::fs::write(folder.path().join("cufile_721.log"), lines.concat()).unwrap();
        assert_eq!(
            log_errors(folder.path()).unwrap(),
            "its log says: unable to get volume attributes for fd 49; cuFileHandleRegister error, failed to allocate file object; \
             cuFileHandleRegister error: file descriptor is not registered; cuFile looks the file's disk up in udev's database: \
             in a container mount /run/udev"
        );
    }

    #[test]
    fn the_name_comes_first_and_newer_toolkits_before_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cuda-12.8", "cuda-13.0", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(folders(folder.path(), "cuda"), ["cuda-13.0", "cuda-12.8"].map(|n| folder.path().join(n)));
        assert!(std::env::var_os(PATH_VARIABLE).is_some() || candidates()[0] == Path::new(NAME));
    }
}
