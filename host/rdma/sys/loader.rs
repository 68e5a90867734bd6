//! Shared libraries that are loaded at their first use and stay loaded.

use crate::rdma::RdmaError;
use libloading::Library;
use libloading::os::unix;
use std::error::Error;
use std::sync::OnceLock;

/// Names of a library's packages.
#[derive(Clone, Copy)]
pub(in crate::rdma) struct Package(&'static str);

impl Package {
    /// Those that contain both libibverbs and libmlx5.
    pub const VERBS: Self =
        Self("libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs and rdma-core (Fedora, RHEL)");
    /// Those that contain librdmacm.
    pub const CM: Self = Self("librdmacm1 (Debian, Ubuntu) or librdmacm (Fedora, RHEL)");
}

/// A shared library with its functions `F`. Each library has one in a `static`; it is never unloaded.
pub(in crate::rdma) struct Shared<F> {
    name: &'static str,
    package: Package,
    /// First version of rdma-core whose library has all of `F`.
    since: u32,
    functions: unsafe fn(Library) -> Result<F, libloading::Error>,
    loaded: OnceLock<Result<F, Failure>>,
}

/// Reason why a library is not available.
#[derive(Clone, Debug)]
struct Failure {
    reason: String,
    remedy: String,
}

impl<F> Shared<F> {
    /// Names a library without loading it. `since` is the first version of rdma-core whose library has all of `F`.
    ///
    /// # Safety
    /// The functions that `functions` looks up must have the types under which `F` calls them.
    pub const unsafe fn new(
        name: &'static str,
        package: Package,
        since: u32,
        functions: unsafe fn(Library) -> Result<F, libloading::Error>,
    ) -> Self {
        Self { name, package, since, functions, loaded: OnceLock::new() }
    }

    /// Returns the functions. The first call loads the library. Later calls return its result.
    ///
    /// # Errors
    /// [`RdmaError::Library`] if the loader finds no such library, or the library lacks a function.
    pub fn get(&'static self) -> Result<&'static F, RdmaError> {
        self.loaded.get_or_init(|| self.load()).as_ref().map_err(|f| RdmaError::Library {
            library: self.name,
            reason: f.reason.clone(),
            remedy: f.remedy.clone(),
        })
    }

    fn load(&self) -> Result<F, Failure> {
        // Resolves all symbols of the library now, so that none can be missing in the middle of a run.
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
        // SAFETY: rdma-core's libraries only register themselves when they are loaded.
        let library = unsafe { unix::Library::open(Some(self.name), flags) }.map_err(|e| Failure {
            reason: format!("it cannot be loaded ({})", loaders_words(&e)),
            remedy: format!("install {}", self.package.0),
        })?;
        // SAFETY: the types are right by the promise to `new`; the library stays loaded, since no `Shared` is ever
        // dropped.
        unsafe { (self.functions)(library.into()) }.map_err(|e| Failure {
            reason: format!("it lacks a function ({})", loaders_words(&e)),
            remedy: format!("install rdma-core {} or later: {}", self.since, self.package.0),
        })
    }
}

/// Returns the loader's own message, which names the file and the function.
fn loaders_words(e: &libloading::Error) -> String {
    e.source().map_or_else(|| e.to_string(), ToString::to_string)
}

impl<F> std::fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::sys::bindings::Verbs;
    use std::path::Path;
    use std::process::Command;

    /// One function of a library that the test compiles.
    struct Answer {
        answer: unsafe extern "C" fn() -> i32,
        _library: Library,
    }

    /// # Safety
    /// The library's function `answer` has this type.
    unsafe fn answer(library: Library) -> Result<Answer, libloading::Error> {
        // SAFETY: the caller's promise.
        let answer = *unsafe { library.get(b"answer\0") }?;
        Ok(Answer { answer, _library: library })
    }

    /// Compiles a library with one function. Its path is valid for the whole process, like the names of libraries.
    fn compiled(folder: &Path) -> &'static str {
        let (source, library) = (folder.join("tiny.c"), folder.join("libtiny.so"));
        std::fs::write(&source, "int answer(void) { return 42; }\n").unwrap();
        let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let done = Command::new(cc).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
        assert!(done.success());
        library.into_os_string().into_string().unwrap().leak()
    }

    fn shared<F>(
        name: &'static str,
        functions: unsafe fn(Library) -> Result<F, libloading::Error>,
    ) -> &'static Shared<F> {
        // SAFETY: of the libraries named here only `tiny` exists, and its function has the type above.
        Box::leak(Box::new(unsafe { Shared::new(name, Package::VERBS, 28, functions) }))
    }

    #[test]
    fn a_library_that_is_absent_is_named_with_the_loaders_reason_and_the_package() {
        let absent = shared("libibverbs-absent.so.1", Verbs::from_library::<Library>);
        let e = absent.get().expect_err("there is no such library");
        assert!(matches!(e, RdmaError::Library { library: "libibverbs-absent.so.1", .. }), "{e:?}");
        let said = e.to_string();
        for word in ["libibverbs-absent.so.1: it cannot be loaded", "No such file", "libibverbs1", "rdma-core (Fedora"]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(absent.get().err().map(|e| e.to_string()), Some(said));
    }

    #[test]
    fn a_function_that_is_missing_is_named_with_the_version_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let name = compiled(folder.path());
        let e = shared(name, Verbs::from_library::<Library>).get().expect_err("it has one function alone");
        assert!(matches!(e, RdmaError::Library { .. }), "{e:?}");
        let said = e.to_string();
        for word in [name, "undefined symbol: ibv_", "install rdma-core 28 or later: libibverbs1"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    #[test]
    fn a_library_is_loaded_once_and_its_functions_are_called() {
        let folder = tempfile::tempdir().unwrap();
        let tiny = shared(compiled(folder.path()), answer);
        let first = tiny.get().unwrap();
        // SAFETY: a function of that type.
        assert_eq!(unsafe { (first.answer)() }, 42);
        drop(folder);
        assert!(std::ptr::eq(first, tiny.get().unwrap()), "loaded again");
    }
}
