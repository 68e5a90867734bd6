//! Packages in a folder of their own, as users of the crate have them, and compilers that stand in for real ones.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel that doubles numbers.
pub const KERNEL: &str = "#include <warpbell/kernel.h>\n#include \"factor.h\"\n\n\
    WB_KERNEL void scale(WB_PARAM uint32_t count, uint32_t* numbers) {\n\
    \x20 for (uint64_t i = warpbell::warp::thread_index(); i < count; i += warpbell::warp::thread_total()) numbers[i] *= FACTOR;\n\
    }\nWB_EXPORT(scale)\n";

/// Returns the root of this repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Result of a call of cargo.
pub struct Outcome {
    pub succeeded: bool,
    /// Standard error and standard output.
    pub text: String,
}

impl Outcome {
    /// Fails unless cargo ended like this, and its output has all of these words.
    #[track_caller]
    pub fn has(&self, succeeded: bool, words: &[&str]) {
        assert_eq!(self.succeeded, succeeded, "{}", self.text);
        for word in words {
            assert!(self.text.contains(word), "`{word}` is missing:\n{}", self.text);
        }
    }
}

/// A package with kernels. The target folder is that of this repository: with its profile, most dependencies are there already.
pub struct Package {
    pub folder: PathBuf,
    environment: Vec<(&'static str, OsString)>,
}

impl Package {
    /// Writes a package whose build script calls `build`, an expression that makes an `Image` named `image`.
    pub fn new(name: &str, dependencies: &str, build: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::remove_dir_all(&folder).ok();
        let package = Self { folder, environment: Vec::new() };
        package.write(
            "Cargo.toml",
            &format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n\n\
                 [build-dependencies]\nwarpbell-build = {{ path = {:?} }}\n\n[profile.dev]\ndebug = \"line-tables-only\"\n\n\
                 [profile.dev.package.\"*\"]\ndebug = false\n\n[workspace]\n",
                root().join("bindings/build")
            ),
        );
        // The versions of this repository, which are on this machine.
        fs::copy(root().join("Cargo.lock"), package.folder.join("Cargo.lock")).expect("a writable folder");
        package.write(
            "build.rs",
            &format!(
                "use warpbell_build::*;\n\nfn main() {{\n    println!(\"cargo::rerun-if-changed=build.rs\");\n    let image = {build};\n    \
                 std::fs::write(\"module\", image.module.to_str().unwrap()).unwrap();\n    \
                 println!(\"cargo::warning=compiled {{:?}} with {{:?}}\", image.architectures, image.nvcc.map(|n| n.release));\n}}\n"
            ),
        );
        package.write("src/main.rs", "fn main() {}\n");
        package.write("kernels/scale.cu", KERNEL);
        package.write("kernels/factor.h", "#define FACTOR 2\n");
        package
    }

    /// Writes a package without a dependency, whose headers are those of this repository: its build takes a second. `settings` are
    /// calls of `Kernels`.
    pub fn of_kernels_alone(name: &str, settings: &str) -> Self {
        let headers = root().join("kernels/include");
        Self::new(
            name,
            "",
            &format!("Kernels::new().headers({headers:?}).file(\"kernels/scale.cu\"){settings}.compile(\"my_image\")"),
        )
    }

    /// Writes a file of the package.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("in the package")).expect("a writable folder");
        fs::write(path, text).expect("a writable folder");
    }

    /// Writes a program of the shell into the package, and returns its path.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        self.write(name, &format!("#!/bin/sh\n{text}"));
        let path = self.folder.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a writable folder");
        path
    }

    /// Writes a program in the place of nvcc 99.1: it knows sm_75, sm_80 and sm_90, adds its arguments to the file `nvcc.log`, and
    /// writes `fat` as output.
    pub fn stand_in_nvcc(&self) -> PathBuf {
        self.program(
            "bin/nvcc",
            r#"case "$1" in
  --version) echo "Cuda compilation tools, release 99.1, V99.1.0"; exit ;;
  --list-gpu-code) printf 'sm_75\nsm_80\nsm_90\n'; exit ;;
esac
echo "$@" >> "$(dirname "$0")/../nvcc.log"
while [ $# -gt 0 ]; do
  case "$1" in
    -o) printf fat > "$2" ;;
    -MF) printf 'out : %s\n' "$(dirname "$0")/../kernels/scale.cu" > "$2" ;;
  esac
  shift
done
"#,
        )
    }

    /// Returns the commands of the program in the place of nvcc so far.
    pub fn nvcc_log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.join("nvcc.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Sets a variable for later calls of cargo.
    pub fn set(&mut self, variable: &'static str, value: impl Into<OsString>) -> &mut Self {
        self.environment.push((variable, value.into()));
        self
    }

    /// Calls cargo without network, and without nvcc unless a variable names one.
    pub fn cargo(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        for variable in ["NVCC", "CUDA_HOME", "CUDA_PATH", "WARPBELL_CUDA_ARCHS", "DOCS_RS", "RUSTC_WRAPPER"] {
            command.env_remove(variable);
        }
        command.args(arguments).arg("--offline").current_dir(&self.folder);
        command
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's target folder"));
        command.env("PATH", self.path_without_nvcc()).envs(self.environment.iter().cloned());
        let output = command.output().expect("cargo, which runs these tests");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        Outcome { succeeded: output.status.success(), text }
    }

    /// Returns the text of the module that the build script has generated.
    pub fn module(&self) -> String {
        let path = fs::read_to_string(self.folder.join("module")).expect("the build script ran");
        fs::read_to_string(path).expect("the module")
    }

    /// Returns PATH, where a folder with nvcc is replaced by one with links to all of its programs but nvcc.
    fn path_without_nvcc(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).enumerate().map(|(at, folder)| {
            if !folder.join("nvcc").is_file() {
                return folder;
            }
            let links = self.folder.join(format!("path{at}"));
            fs::create_dir_all(&links).expect("a writable folder");
            for program in fs::read_dir(&folder).into_iter().flatten().flatten().filter(|p| p.file_name() != "nvcc") {
                // One that is there already is from an earlier call.
                symlink(program.path(), links.join(program.file_name())).ok();
            }
            links
        });
        std::env::join_paths(folders).expect("parts of PATH")
    }
}
