//! Compilations side by side, as many as cargo allows.

use crate::error::BuildError;
use crate::unit::Unit;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// Cargo's permission to keep processors busy beyond the one that a build script has anyway.
#[derive(Clone, Copy)]
pub(crate) struct Tokens(Option<&'static jobserver::Client>);

impl Tokens {
    /// Returns the tokens of this build.
    pub(crate) fn of_this_build() -> Self {
        // One client as long as the process lives: a second would share descriptors with the first and close them.
        static CLIENT: OnceLock<Option<jobserver::Client>> = OnceLock::new();
        // SAFETY: cargo handed the descriptors over to this process, and only the client closes them.
        Self(CLIENT.get_or_init(|| unsafe { jobserver::Client::from_env() }).as_ref())
    }

    /// Returns a token if one is free at once. A jobserver that cannot say so gives none: the build is slower, and never too wide.
    pub(crate) fn try_one(self) -> Option<jobserver::Acquired> {
        self.0?.try_acquire().ok().flatten()
    }
}

/// Compiles in the given order, as many units at a time as cargo gives tokens, and one more. Returns the compilers' warnings, or the
/// first error.
pub(crate) fn compile(units: Vec<&mut Unit>) -> Result<Vec<String>, BuildError> {
    let tokens = Tokens::of_this_build();
    let next = Mutex::new(units.into_iter());
    let result = Mutex::new(Ok(Vec::new()));
    let waiting = || next.lock().expect("no thread panics with it").len();
    let work = || {
        while let Some(unit) = { next.lock().expect("no thread panics with it").next() } {
            let compiled = unit.compile(tokens);
            let mut result = result.lock().expect("no thread panics with it");
            match (compiled, result.as_mut()) {
                (Ok(warnings), Ok(all)) => all.extend(warnings),
                (Err(error), Ok(_)) => {
                    *result = Err(error);
                    // No other compilation starts.
                    next.lock().expect("no thread panics with it").by_ref().for_each(drop);
                }
                (_, Err(_)) => {}
            }
        }
    };
    thread::scope(|s| {
        s.spawn(|| {
            while waiting() > 0 {
                let Some(token) = tokens.try_one() else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                s.spawn(|| {
                    let _held = token;
                    work();
                });
            }
        });
        work();
    });
    result.into_inner().expect("no thread panics with it")
}
