//! Drives of other machines: the route, the connection, and the limits of the target.

use super::check::{Area, Checks};
use crate::nvme::fabrics::{ConnectReport, FabricsConfig, FabricsError, FabricsTransport};
use crate::rdma::{AdapterPath, Doorbell, Transport};
use crate::remedy::Remedies;
use crate::remote;
use crate::units::{Bytes, counted};
use std::time::Duration;

/// Adds the checks of one drive. Each needs the one before it.
pub(super) fn check(config: &FabricsConfig, all: &mut Vec<super::Check>) {
    let mut c = Checks::of(Area::Remote, config.to_string(), all);
    if config.transport == FabricsTransport::Soft {
        return c.skip("route", "software NICs connect when the device is opened");
    }
    let routes: Vec<_> = config.for_each_port().map(|port| remote::route(&port)).collect();
    let is_reached = routes.iter().any(Result::is_ok);
    for route in routes {
        match route {
            Ok(route) => {
                c.ok("route", route.text);
                if let Some(path) = route.adapter {
                    adapter(&mut c, &path, route.declined);
                }
            }
            Err(e) if is_reached => c.warn("route", e.to_string(), e.remedies().into_iter().next()),
            Err(e) => c.fail("route", e.to_string(), e.remedies().into_iter().next()),
        }
    }
    if !is_reached {
        return;
    }
    match remote::check(config) {
        Ok(report) => {
            c.ok("connection", format!("admin and I/O queue connected in {}", milliseconds(report.took)));
            for port in &report.ports {
                if let Some(failure) = &port.failure {
                    c.warn("connection", format!("another port cannot be used now: {failure}"), None);
                }
            }
            target(&mut c, &report);
        }
        Err(e) => {
            let fix = e.remedies().into_iter().next();
            match is_of_target(&e) {
                true => {
                    c.ok("connection", "the target replies");
                    c.fail("target", e.to_string(), fix);
                }
                false => c.fail("connection", e.to_string(), fix),
            }
        }
    }
}

/// Adds the check of the adapter: kernels drive the NIC, or a thread does.
fn adapter(c: &mut Checks<'_>, path: &AdapterPath, declined: Option<String>) {
    let (by, why) = match (path.transport, path.doorbell) {
        (Transport::Mlx5, Doorbell::Cpu) => {
            ("kernels fill the NIC's rings, and a CPU thread writes its doorbells", path.note.clone())
        }
        (Transport::Mlx5, _) => ("kernels drive the NIC", None),
        _ => ("a CPU thread makes verbs calls of what kernels post", declined),
    };
    match why {
        None => c.ok("adapter", format!("{}: {by}", path.transport)),
        Some(why) => c.warn("adapter", format!("{}: {by}: {why}", path.transport), None),
    }
}

/// Returns true for errors of a target that is reached.
fn is_of_target(e: &FabricsError) -> bool {
    use FabricsError as E;
    if let E::NoPort { causes, .. } = e {
        return causes.iter().any(is_of_target);
    }
    matches!(
        e,
        E::Refused { .. }
            | E::AuthenticationRequired { .. }
            | E::Command { .. }
            | E::NotReady { .. }
            | E::Unsupported { .. }
            | E::Inaccessible { .. }
    )
}

fn milliseconds(d: Duration) -> String {
    format!("{:.1} ms", d.as_secs_f64() * 1e3)
}

fn target(c: &mut Checks<'_>, r: &ConnectReport) {
    let l = &r.limits;
    let most = l.max_transfer_bytes.map_or("any length".to_owned(), |b| Bytes(b).to_string());
    let facts = format!(
        "{}, {} I/O queues of up to {} entries, transfers of {most}, {} bytes in a capsule, {}",
        r.model.trim(),
        r.queues,
        l.queue_entries,
        l.in_capsule_bytes,
        counted(r.namespaces.len(), "namespace", "namespaces")
    );
    match (r.namespaces.is_empty(), l.keep_alive_granularity_ms) {
        (true, _) => c.fail("target", facts, "add a namespace to the subsystem".to_owned()),
        (false, 0) => c.warn("target", format!("{facts}; it has no Keep Alive"), None),
        (false, _) => c.ok("target", facts),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Status};
    use super::*;
    use std::net::TcpListener;

    fn checks(config: &FabricsConfig) -> Vec<(&'static str, Status, String)> {
        let mut all: Vec<Check> = Vec::new();
        check(config, &mut all);
        let page = include_str!("../../docs/doctor.md");
        for c in &all {
            assert!(page.lines().any(|l| l == format!("### {} {}", c.area, c.name)), "docs/doctor.md: {}", c.name);
            assert_eq!(c.subject, config.to_string());
        }
        all.into_iter().map(|c| (c.name, c.status, format!("{} {:?}", c.detail, c.fix))).collect()
    }

    fn config(port: u16) -> FabricsConfig {
        FabricsConfig::tcp("127.0.0.1", port, "nqn.2026-01.org.example:data").connect_timeout(Duration::from_secs(20))
    }

    #[test]
    fn the_first_step_that_fails_is_named_with_its_remedy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // A program that ends each connection.
        let ends = std::thread::spawn(move || drop(listener.accept()));
        let all = checks(&config(port));
        ends.join().unwrap();
        assert_eq!((all[0].0, all[0].1, all[1].0, all[1].1), ("route", Status::Ok, "connection", Status::Fail));
        assert!(all[0].2.contains("127.0.0.1 from 127.0.0.1"), "{all:?}");
        // The port is closed now.
        let all = checks(&config(port));
        assert_eq!((all.len(), all[1].1), (2, Status::Fail));
        assert!(all[1].2.contains("start the target"), "{all:?}");
        let mut unknown = config(port);
        unknown.host = "host.invalid".to_owned();
        let all = checks(&unknown);
        assert_eq!((all.len(), all[0].0, all[0].1), (1, "route", Status::Fail));
        assert!(all[0].2.contains("/etc/hosts"), "{all:?}");
        let all = checks(&config(port).transport(FabricsTransport::Soft));
        assert_eq!((all.len(), all[0].1), (1, Status::Skip));
        if !std::path::Path::new("/sys/class/infiniband").exists() {
            let all = checks(&config(port).transport(FabricsTransport::Rdma));
            assert_eq!((all.len(), all[0].0, all[0].1), (1, "route", Status::Fail));
        }
    }

    #[test]
    fn an_adapter_tells_who_drives_the_nic_and_why() {
        let told = |transport, doorbell, note: Option<&str>, declined: Option<&str>| {
            let mut path = AdapterPath::new(transport, "mlx5_0 port 1");
            (path.doorbell, path.note) = (doorbell, note.map(str::to_owned));
            let mut all: Vec<Check> = Vec::new();
            adapter(&mut Checks::of(Area::Remote, "nvmf".to_owned(), &mut all), &path, declined.map(str::to_owned));
            let page = include_str!("../../docs/doctor.md");
            assert!(page.lines().any(|l| l == "### remote adapter"));
            assert_eq!((all.len(), all[0].name), (1, "adapter"));
            (all[0].status, all[0].detail.clone())
        };
        let (status, detail) = told(Transport::Mlx5, Doorbell::Gpu, Some("queue memory: host"), None);
        assert_eq!((status, detail.as_str()), (Status::Ok, "mlx5: kernels drive the NIC"));
        let (status, detail) = told(Transport::Mlx5, Doorbell::Cpu, Some("no register"), None);
        assert!(status == Status::Warn && detail.contains("writes its doorbells: no register"), "{detail}");
        let (status, detail) = told(Transport::Verbs, Doorbell::Cpu, None, Some("mlx5 adapter: no DevX"));
        assert!(status == Status::Warn && detail.ends_with("post: mlx5 adapter: no DevX"), "{detail}");
        // Not an mlx5 NIC, or verbs were asked for.
        let (status, detail) = told(Transport::Verbs, Doorbell::Cpu, Some("no atomics"), None);
        assert!(status == Status::Ok && !detail.contains("atomics"), "{detail}");
    }

    #[cfg(feature = "soft")]
    #[test]
    fn a_target_tells_its_limits_or_why_it_refuses() {
        use crate::nvme::fabrics::PortAddress;
        use crate::soft::target::{Target, TargetConfig};
        let drive = crate::storage::Drive::open("soft:mem:1M,threads=1").unwrap();
        let target = Target::start(drive.controller(), TargetConfig::new("nqn.2026-01.org.example:data")).unwrap();
        let mut config = config(target.address().port());
        let all = checks(&config);
        assert_eq!(
            all.iter().map(|c| (c.0, c.1)).collect::<Vec<_>>(),
            [("route", Status::Ok), ("connection", Status::Ok), ("target", Status::Ok)]
        );
        assert!(all[2].2.contains("I/O queues of up to") && all[2].2.contains("1 namespace"), "{all:?}");
        // A second port that is closed: its number was free a moment ago.
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let both = config.clone().more_ports(vec![PortAddress { host: "127.0.0.1".to_owned(), port: closed }]);
        let all = checks(&both);
        let warned: Vec<_> = all.iter().filter(|c| c.1 == Status::Warn).collect();
        assert!(warned.len() == 1 && warned[0].2.contains(&format!("127.0.0.1:{closed}: no connection")), "{all:?}");
        config.subsystem = "nqn.2026-01.org.example:none".to_owned();
        let all = checks(&config);
        assert_eq!((all[1].1, all[2].0, all[2].1), (Status::Ok, "target", Status::Fail));
        assert!(all[2].2.contains("list the target's subsystems"), "{all:?}");
    }
}
