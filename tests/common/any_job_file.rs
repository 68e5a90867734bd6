//! Reads any bytes as a job file of fio, for the fuzz target and for property tests of the reader.

use super::{Environment, parse};
use std::io;
use std::path::Path;

/// Included files that include each other, and one variable.
struct Around;

impl Environment for Around {
    fn exists(&self, path: &Path) -> bool {
        self.read(path).is_ok()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("options.inc") => Ok(b"bs=4k\nloops=2".to_vec()),
            Some("one.inc") => Ok(b"include two.inc".to_vec()),
            Some("two.inc") => Ok(b"include one.inc".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "A").then(|| "1".to_owned())
    }
}

/// Reads bytes as a job file. An error is one line that begins with the name of a file. Each job can run: it has commands
/// in flight, clones, loops and blocks, and all that is printed about it is one line.
pub fn read_any(text: &[u8]) {
    match parse(Path::new("job.fio"), text, &Around) {
        Ok(file) => {
            assert!(!file.jobs.is_empty());
            for job in &file.jobs {
                assert!(job.iodepth > 0 && job.numjobs > 0 && job.loops > 0 && job.read_percent <= 100);
                assert!(job.blocks.read.least() > 0 && job.blocks.write.least() > 0);
                assert!(job.reads() || job.writes());
                assert!(!job.paths(0).is_empty());
            }
            let jobs = file.jobs.iter().map(ToString::to_string);
            let unapplied = file.unapplied.iter().map(ToString::to_string);
            let notes = file.notes().into_iter().map(ToString::to_string);
            assert!(jobs.chain(unapplied).chain(notes).all(|line| !line.contains('\n')));
        }
        Err(error) => {
            let text = error.to_string();
            let names_a_file =
                ["job.fio", "options.inc", "one.inc", "two.inc"].iter().any(|file| text.starts_with(file));
            assert!(names_a_file && !text.contains('\n'), "{text}");
        }
    }
}
