//! Prints a report for people: short, aligned lines with the remedy below each problem.

use super::check::{Area, Check};
use super::{Report, gpu, nic, nvme, pci};
use std::fmt;

/// Width of the status column.
const STATUS_WIDTH: usize = 6;
/// Minimum width of the column of names, without the two spaces behind it.
const NAME_WIDTH: usize = 11;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|c| c.name.len()).max().unwrap_or(0).max(NAME_WIDTH) + 2;
        writeln!(f, "warpbell {}   {}", self.version, self.host)?;
        for g in self.gpus() {
            writeln!(f, "gpu {}  {}", g.ordinal, gpu::heading(&self.machine, g))?;
            self.section(f, Area::Gpu, &gpu::subject(g), width)?;
        }
        for subject in self.others(Area::Gpu, |s| self.gpus().iter().any(|g| gpu::subject(g) == s)) {
            writeln!(
                f,
                "{}",
                if subject.is_empty() {
                    "gpu    none".to_owned()
                } else {
                    format!("gpu    {subject}, not shown by CUDA")
                }
            )?;
            self.section(f, Area::Gpu, subject, width)?;
        }
        for c in &self.nvme {
            writeln!(f, "nvme {}  {}", c.bdf, nvme::heading(c))?;
            self.section(f, Area::Nvme, &c.bdf.to_string(), width)?;
        }
        for subject in self.others(Area::Nvme, |s| self.nvme.iter().any(|c| c.bdf.to_string() == s)) {
            writeln!(f, "{}", if subject.is_empty() { "nvme   none".to_owned() } else { format!("nvme {subject}") })?;
            self.section(f, Area::Nvme, subject, width)?;
        }
        self.nics(f, width)?;
        for subject in self.others(Area::Remote, |_| false) {
            writeln!(f, "remote {subject}")?;
            self.section(f, Area::Remote, subject, width)?;
        }
        self.pci(f, width)?;
        writeln!(f, "host")?;
        self.section(f, Area::Host, "", width)?;
        writeln!(f, "paths")?;
        self.backends(f, width)?;
        self.summary(f)
    }
}

impl Report {
    /// Returns the subjects of an area that have no heading of their own, each once.
    fn others(&self, area: Area, has_heading: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for c in self.checks.iter().filter(|c| c.area == area && !has_heading(&c.subject)) {
            if !found.contains(&c.subject.as_str()) {
                found.push(&c.subject);
            }
        }
        found
    }

    fn section(&self, f: &mut fmt::Formatter<'_>, area: Area, subject: &str, width: usize) -> fmt::Result {
        self.checks.iter().filter(|c| c.area == area && c.subject == subject).try_for_each(|c| line(f, c, "", width))
    }

    /// Prints a device's own checks, then those of its ports, with the ports' numbers if there are several ports.
    fn nics(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        for n in &self.nics {
            writeln!(f, "nic {}", nic::heading(n).trim_end())?;
            self.section(f, Area::Nic, &n.name, width)?;
            for p in &n.ports {
                let subject = nic::port_subject(n, p);
                let before = if n.ports.len() > 1 { format!("port {}: ", p.number) } else { String::new() };
                for c in self.checks.iter().filter(|c| c.area == Area::Nic && c.subject == subject) {
                    line(f, c, &before, width)?;
                }
            }
        }
        let of_device = |s: &str| self.nics.iter().any(|n| s.split(':').next() == Some(&n.name));
        for subject in self.others(Area::Nic, of_device) {
            writeln!(f, "{}", if subject.is_empty() { "nic    none".to_owned() } else { format!("nic {subject}") })?;
            self.section(f, Area::Nic, subject, width)?;
        }
        Ok(())
    }

    fn pci(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        if self.checks.iter().all(|c| c.area != Area::Pci) {
            return Ok(());
        }
        writeln!(f, "pci")?;
        let rows = self.locations.len() + self.nic_locations.len();
        if rows > 0 && rows + self.nvme.len() > 1 {
            let (gpus, nics) = (&self.locations, &self.nic_locations);
            for row in pci::matrix(gpus, nics, &self.nvme, &self.distances, &self.nic_distances) {
                writeln!(f, "  {}", row.trim_end())?;
            }
        }
        for c in self.checks.iter().filter(|c| c.area == Area::Pci) {
            let subject = if c.subject.is_empty() { String::new() } else { format!("{}: ", c.subject) };
            line(f, c, &subject, width)?;
        }
        Ok(())
    }

    /// Prints the mapping backends. Consecutive backends that are closed for the same reason share a line.
    fn backends(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let mut rest: &[Check] = match self.checks.iter().position(|c| c.area == Area::Path) {
            Some(first) => &self.checks[first..],
            None => &[],
        };
        while let Some(first) = rest.first() {
            let same =
                rest.iter().take_while(|c| (c.status, &c.detail, &c.fix) == (first.status, &first.detail, &first.fix));
            let names: Vec<_> = same.map(|c| c.name).collect();
            match names.len() {
                1 => line(f, first, "", width)?,
                _ => {
                    let merged = Check {
                        name: "GPU memory",
                        detail: format!("{} ({})", first.detail, names.join(", ")),
                        ..first.clone()
                    };
                    line(f, &merged, "", width)?;
                }
            }
            rest = &rest[names.len()..];
        }
        Ok(())
    }

    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.storage;
        let by = if s.by == "soft" { String::new() } else { format!(" by {}", s.by) };
        write!(
            f,
            "storage path   {}{by} (engine {}, queues {}, landing {}, doorbell {})",
            s.device, s.engine, s.queues, s.landing, s.doorbell
        )?;
        for why in &s.why {
            write!(f, "\n               {why}")?;
        }
        write!(f, "\nnetwork path   {}", self.network.line())?;
        for why in &self.network.why {
            write!(f, "\n               {why}")?;
        }
        for r in &self.requirements {
            match &r.because {
                None => write!(f, "\nrequired       {}: possible", r.require)?,
                Some(because) => write!(f, "\nrequired       {}: not possible: {because}", r.require)?,
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, check: &Check, before: &str, width: usize) -> fmt::Result {
    writeln!(f, "  {:STATUS_WIDTH$}{:width$}{before}{}", check.status, check.name, check.detail)?;
    match &check.fix {
        Some(fix) => writeln!(f, "{:indent$}{fix}", "", indent = 2 + STATUS_WIDTH + width),
        None => Ok(()),
    }
}
