//! Devices whose holder has just died: the kernel lets go of what a killed process held only when it has taken it apart.

use std::time::{Duration, Instant};

/// Time that a killed process may take to be gone: it gives back gigabytes of memory and ends its system calls first.
const LETTING_GO: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Attempts to take what another process may be letting go of, for a second at most while `taken` says that it has it.
pub(crate) fn take<T, E>(mut attempt: impl FnMut() -> Result<T, E>, taken: impl Fn(&E) -> bool) -> Result<T, E> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(e) if taken(&e) && started.elapsed() < LETTING_GO => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_of_is_taken_and_other_errors_are_told_at_once() {
        let mut left = 3;
        let mut attempt = || {
            left -= 1;
            if left > 0 { Err("taken") } else { Ok(left) }
        };
        assert_eq!(take(&mut attempt, |e| *e == "taken"), Ok(0));
        let mut attempts = 0;
        let refused: Result<(), _> = take(
            || {
                attempts += 1;
                Err("no such file")
            },
            |e| *e == "taken",
        );
        assert_eq!((refused, attempts), (Err("no such file"), 1));
        assert_eq!(take(|| Err::<(), _>("taken"), |_| true), Err("taken"), "a holder that lives keeps it");
    }
}
