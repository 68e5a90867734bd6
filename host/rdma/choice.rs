//! Choice of device and port: by name, or the nearest to a GPU.

use super::{LinkLayer, Port, RdmaDevice, RdmaError, TrafficClass, Transport};
use crate::data_path::{DoorbellChoice, UnknownWord, choices};
use crate::pci::{Bdf, Distance, Sysfs, Topology};
use std::fmt;
use std::str::FromStr;

/// Default of the retransmission timer: 4.096 us * 2^16 = 0.27 s. With seven retries, the loss of a peer is detected
/// within seconds.
pub const ACK_TIMEOUT: u8 = 16;
/// Largest value of the timer's field.
const MAX_ACK_TIMEOUT: u8 = 31;

choices! {
    /// Requested memory for the rings of an mlx5 NIC.
    #[derive(Default)]
    QueueChoice:
    /// GPU memory, or host memory if the NIC cannot reach GPU memory.
    #[default]
    Auto = "auto",
    /// GPU memory; opening fails if the NIC cannot reach it.
    Gpu = "gpu",
    /// Host memory.
    Host = "host"
}

choices! {
    /// Requested doorbell records of an mlx5 NIC's queue pairs.
    #[derive(Default)]
    RecordChoice:
    /// None if the NIC can work without them (ConnectX-8).
    Auto = "auto",
    /// Each queue pair has one. The default, because all mlx5 NICs work with them.
    #[default]
    On = "on",
    /// None; opening fails if the NIC needs them.
    Off = "off"
}

/// Requested properties of an adapter. Fields that are `None` are chosen automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceChoice {
    /// Device name, as in `mlx5_0`.
    pub device: Option<String>,
    /// Port number, from 1.
    pub port: Option<u32>,
    /// Index of the source GID in the port's table.
    pub gid_index: Option<u32>,
    /// Traffic class of RoCE packets, and of InfiniBand packets with a global route header.
    pub traffic_class: Option<TrafficClass>,
    /// InfiniBand service level (0 to 15), or Ethernet priority.
    pub service_level: Option<u8>,
    /// Retransmission timer (0 to 31): 4.096 us * 2^n.
    pub ack_timeout: Option<u8>,
    /// Requested writer of the doorbell.
    pub doorbell: DoorbellChoice,
    /// Requested memory for the rings.
    pub queues: QueueChoice,
    /// Requested doorbell records of an mlx5 NIC's queue pairs.
    pub record: RecordChoice,
    /// True if kernels store an entry that they post alone to a BlueFlame register of an mlx5 NIC, which then need not
    /// fetch the entry. Opening fails if the NIC has no such registers.
    pub blue_flame: bool,
}

impl DeviceChoice {
    /// Reads the choice from environment variables: `WARPBELL_RDMA_DEVICE` (`mlx5_0`, `mlx5_0:1`),
    /// `WARPBELL_RDMA_GID_INDEX`, `WARPBELL_RDMA_TRAFFIC_CLASS`, `WARPBELL_RDMA_SERVICE_LEVEL`,
    /// `WARPBELL_RDMA_TIMEOUT`, `WARPBELL_RDMA_DOORBELL` (`auto`, `gpu`, `cpu`), `WARPBELL_RDMA_QUEUES` (`auto`, `gpu`,
    /// `host`), `WARPBELL_RDMA_RECORD` (`auto`, `on`, `off`) and `WARPBELL_RDMA_BLUEFLAME` (`on`, `off`).
    ///
    /// # Errors
    /// [`RdmaError::System`] with `InvalidInput` if a variable has an invalid value.
    pub fn from_environment() -> Result<Self, RdmaError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, RdmaError> {
        let value = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let number = |name: &str, most: u32| match value(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u32>() {
                Ok(n) if n <= most => Ok(Some(n)),
                _ => Err(wrong(name, &text, format!("write a number from 0 to {most}"))),
            },
        };
        let mut choice = Self::default();
        if let Some(text) = value("WARPBELL_RDMA_DEVICE") {
            let (device, port) =
                device_and_port(&text).map_err(|reason| wrong("WARPBELL_RDMA_DEVICE", &text, reason.to_owned()))?;
            (choice.device, choice.port) = (Some(device), port);
        }
        choice.gid_index = number("WARPBELL_RDMA_GID_INDEX", u32::from(u8::MAX))?;
        choice.traffic_class =
            number("WARPBELL_RDMA_TRAFFIC_CLASS", u32::from(u8::MAX))?.map(|n| TrafficClass(n as u8));
        choice.service_level = number("WARPBELL_RDMA_SERVICE_LEVEL", 15)?.map(|n| n as u8);
        choice.ack_timeout = number("WARPBELL_RDMA_TIMEOUT", u32::from(MAX_ACK_TIMEOUT))?.map(|n| n as u8);
        choice.doorbell = axis("WARPBELL_RDMA_DOORBELL", value("WARPBELL_RDMA_DOORBELL"))?;
        choice.queues = axis("WARPBELL_RDMA_QUEUES", value("WARPBELL_RDMA_QUEUES"))?;
        choice.record = axis("WARPBELL_RDMA_RECORD", value("WARPBELL_RDMA_RECORD"))?;
        choice.blue_flame = match value("WARPBELL_RDMA_BLUEFLAME").as_deref() {
            None | Some("off") => false,
            Some("on") => true,
            Some(text) => return Err(wrong("WARPBELL_RDMA_BLUEFLAME", text, "write `on` or `off`".to_owned())),
        };
        Ok(choice)
    }

    /// Sets device and port by name: `mlx5_0`, or `mlx5_0:1` with its port.
    ///
    /// # Errors
    /// [`RdmaError::DeviceName`] if the text has another form.
    pub fn named(self, text: &str) -> Result<Self, RdmaError> {
        let (device, port) =
            device_and_port(text).map_err(|reason| RdmaError::DeviceName { name: text.to_owned(), reason })?;
        Ok(Self { device: Some(device), port, ..self })
    }

    /// Chooses the device and the port for kernels on the GPU `gpu`, or on CPU threads if `gpu` is `None`.
    ///
    /// Candidates are the active ports with an address. Hardware precedes software, then the port nearest to the GPU,
    /// then the fastest, then the first by name. iWARP devices are never candidates. With transport `mlx5`, only
    /// devices that mlx5_core drives are.
    ///
    /// # Errors
    /// [`RdmaError::Unavailable`] if there is no such device or port, or if it is not usable with this transport.
    pub fn choose(
        &self,
        transport: Transport,
        sysfs: &Sysfs,
        topology: &Topology,
        gpu: Option<Bdf>,
    ) -> Result<Chosen, RdmaError> {
        let devices = RdmaDevice::all(sysfs);
        let none = |reason: String| RdmaError::Unavailable { transport, reason };
        if devices.is_empty() {
            return Err(none("no RDMA device (/sys/class/infiniband has none); use transport soft".to_owned()));
        }
        let list = || devices.iter().map(describe).collect::<Vec<_>>().join(", ");
        if let Some(name) = &self.device {
            let Some(device) = devices.iter().find(|d| d.name == *name) else {
                return Err(none(format!("there is no {name}; found {}", list())));
            };
            if transport == Transport::Mlx5 && !device.is_mlx5() {
                return Err(none(format!("{} is not an mlx5 device; use transport verbs", describe(device))));
            }
            if device.iwarp {
                let reason = "connections need InfiniBand or RoCE; name such a device, or use transport soft";
                return Err(none(format!("{}: {reason}", describe(device))));
            }
            let port = match self.port {
                Some(n) => device.ports.iter().find(|p| p.number == n),
                None => device.ports.iter().find(|p| usable(p)).or(device.ports.first()),
            };
            let port = port.ok_or_else(|| {
                let numbers: Vec<_> = device.ports.iter().map(|p| p.number.to_string()).collect();
                none(format!("{name} has no port {}; it has {}", self.port.unwrap_or(1), numbers.join(", ")))
            })?;
            if let Some(why) = unusable(port) {
                return Err(none(format!("{name} port {}: {why}", port.number)));
            }
            return Ok(Chosen::new(device, port, gpu, topology));
        }
        let fit: Vec<&RdmaDevice> = devices.iter().filter(|d| transport != Transport::Mlx5 || d.is_mlx5()).collect();
        if fit.is_empty() {
            return Err(none(format!("no mlx5 device; found {}: use transport verbs", list())));
        }
        let fit: Vec<&RdmaDevice> = fit.into_iter().filter(|d| !d.iwarp).collect();
        if fit.is_empty() {
            return Err(none(format!("no InfiniBand or RoCE device; found {}: use transport soft", list())));
        }
        let candidates = fit.iter().flat_map(|d| d.ports.iter().filter(|p| usable(p)).map(move |p| (*d, p)));
        let best = candidates.map(|(d, p)| Chosen::new(d, p, gpu, topology)).min_by_key(Chosen::rank);
        best.ok_or_else(|| {
            let why = fit.iter().flat_map(|d| d.ports.iter().map(move |p| (d, p)));
            let why = why.map(|(d, p)| format!("{} port {}: {}", d.name, p.number, unusable(p).unwrap_or_default()));
            none(format!("no port can be used; {}", why.collect::<Vec<_>>().join("; ")))
        })
    }
}

/// Parses `mlx5_0` or `mlx5_0:1`. Returns the expected form if the text has another.
fn device_and_port(text: &str) -> Result<(String, Option<u32>), &'static str> {
    let (device, port) = match text.split_once(':') {
        None => (text, None),
        Some((device, port)) => (device, Some(port)),
    };
    if device.is_empty() || device.contains('/') {
        return Err("a device is named as in mlx5_0, or mlx5_0:1 with its port");
    }
    let number = |port: &str| port.parse().ok().filter(|n| *n > 0).ok_or("a port is a number from 1, as in mlx5_0:1");
    Ok((device.to_owned(), port.map(number).transpose()?))
}

/// Parses the value of an axis; the default if the variable is not set.
fn axis<T: Default + FromStr<Err = UnknownWord>>(variable: &str, value: Option<String>) -> Result<T, RdmaError> {
    value.map_or_else(
        || Ok(T::default()),
        |v| v.parse().map_err(|e: UnknownWord| wrong(variable, &v, format!("write {}", e.known))),
    )
}

fn wrong(name: &str, text: &str, reason: String) -> RdmaError {
    RdmaError::System {
        what: format!("{name}=`{text}`: {reason}"),
        source: std::io::Error::from(std::io::ErrorKind::InvalidInput),
    }
}

/// Returns a device's name and kind: `rxe0 (Soft-RoCE)`.
fn describe(device: &RdmaDevice) -> String {
    let kind = match device.model {
        Some(model) => model,
        _ if device.iwarp => "iWARP",
        None if device.software && device.name.starts_with("rxe") => "Soft-RoCE",
        None if device.software => "software device",
        None => match &device.driver {
            Some(driver) => return format!("{} (driver {driver})", device.name),
            None => return device.name.clone(),
        },
    };
    format!("{} ({kind})", device.name)
}

/// Returns the reason why a port cannot be used; `None` if it can.
fn unusable(port: &Port) -> Option<String> {
    if !port.is_active() {
        let state = port.state.map_or("in an unknown state".to_owned(), |s| s.to_string());
        return Some(format!(
            "it is {state}, not active; check the cable and `ibv_devinfo`, or run `ip link set ... up`"
        ));
    }
    let addressed = port.gid.is_some() || port.link_layer == LinkLayer::InfiniBand && port.lid.is_some();
    (!addressed).then(|| "it has no address: give its network interface one (`ip address add`)".to_owned())
}

fn usable(port: &Port) -> bool {
    unusable(port).is_none()
}

/// A chosen device with the chosen port.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The device.
    pub device: RdmaDevice,
    /// The port.
    pub port: Port,
    /// Distance from the GPU; `None` without a GPU, or if the distance is unknown.
    pub distance: Option<Distance>,
}

impl Chosen {
    fn new(device: &RdmaDevice, port: &Port, gpu: Option<Bdf>, topology: &Topology) -> Self {
        let distance = device.bdf.zip(gpu).and_then(|(nic, gpu)| topology.path(nic, gpu).distance);
        Self { device: device.clone(), port: port.clone(), distance }
    }

    /// Returns the sort key of a candidate; the smallest is the best.
    fn rank(&self) -> (bool, Distance, std::cmp::Reverse<u32>) {
        let rate = self.port.rate.as_ref().map_or(0, |r| r.tenths_of_gbit);
        (self.device.software, self.distance.unwrap_or(Distance::Sys), std::cmp::Reverse(rate))
    }
}

impl fmt::Display for Chosen {
    /// Writes `mlx5_0 port 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.device.name, self.port.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::{Device, Fixture};
    use crate::rdma::fixture::{Link, Nic};

    fn choose(
        tree: &Fixture,
        transport: Transport,
        gpu: Option<&str>,
        choice: &DeviceChoice,
    ) -> Result<Chosen, RdmaError> {
        let sysfs = Sysfs::at(tree.root());
        choice.choose(transport, &sysfs, &Topology::read(&sysfs), gpu.map(|g| g.parse().unwrap()))
    }

    /// Builds a machine with a GPU and a NIC below one switch, another NIC below another root port, and Soft-RoCE.
    fn machine() -> Fixture {
        let tree = Fixture::new();
        let gpu = Device { class: 0x03_02_00, id: (0x10de, 0x2335), ..Device::default() };
        tree.pci("pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:01.0/0000:44:00.0", &gpu);
        Nic::connectx7("mlx5_0").place("pci0000:00/0000:00:01.0/0000:01:00.0").build(&tree);
        let near = "pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:00.0/0000:43:00.0";
        Nic::connectx7("mlx5_1").place(near).node(1, None).build(&tree);
        Nic::soft_roce("rxe0").node(2, None).link(Link::soft("eth0", "10.0.0.1")).build(&tree);
        tree
    }

    #[test]
    fn the_nearest_port_is_chosen() {
        let tree = machine();
        let all = DeviceChoice::default();
        let name = |c: Result<Chosen, RdmaError>| c.map(|c| c.to_string()).unwrap();
        assert_eq!(name(choose(&tree, Transport::Mlx5, Some("0000:44:00.0"), &all)), "mlx5_1 port 1");
        assert_eq!(name(choose(&tree, Transport::Verbs, Some("0000:44:00.0"), &all)), "mlx5_1 port 1");
        assert_eq!(name(choose(&tree, Transport::Verbs, None, &all)), "mlx5_0 port 1");
        let named = all.named("rxe0:1").unwrap();
        assert_eq!(name(choose(&tree, Transport::Verbs, Some("0000:44:00.0"), &named)), "rxe0 port 1");
    }

    #[test]
    fn what_is_missing_is_named() {
        let fails = |tree: &Fixture, t, c: &DeviceChoice| choose(tree, t, None, c).unwrap_err().to_string();
        let all = DeviceChoice::default();
        assert!(fails(&Fixture::new(), Transport::Verbs, &all).contains("no RDMA device"));
        let tree = Fixture::new();
        Nic::soft_roce("rxe0").link(Link::soft("eth0", "10.0.0.1")).build(&tree);
        let text = fails(&tree, Transport::Mlx5, &all);
        assert_eq!(text, "mlx5 adapter: no mlx5 device; found rxe0 (Soft-RoCE): use transport verbs");
        let text = fails(&tree, Transport::Mlx5, &all.clone().named("rxe0").unwrap());
        assert!(text.contains("rxe0 (Soft-RoCE) is not an mlx5 device"), "{text}");
        assert!(
            fails(&tree, Transport::Verbs, &all.clone().named("mlx5_3").unwrap())
                .contains("there is no mlx5_3; found rxe0")
        );
        assert!(
            fails(&tree, Transport::Verbs, &all.clone().named("rxe0:2").unwrap()).contains("has no port 2; it has 1")
        );
        let tree = Fixture::new();
        Nic::soft_roce("siw0").link(Link::soft("eth0", "10.0.0.1")).build(&tree);
        tree.file("/sys/class/infiniband/siw0/node_type", "4: RNIC\n");
        let text = fails(&tree, Transport::Verbs, &all);
        assert!(text.contains("no InfiniBand or RoCE device; found siw0 (iWARP)"), "{text}");
        let text = fails(&tree, Transport::Verbs, &all.clone().named("siw0").unwrap());
        assert!(text.contains("siw0 (iWARP): connections need InfiniBand or RoCE"), "{text}");
        let tree = Fixture::new();
        Nic::soft_roce("rxe0").link(Link::down("eth0")).build(&tree);
        assert!(
            fails(&tree, Transport::Verbs, &all).contains("not active"),
            "{}",
            fails(&tree, Transport::Verbs, &all)
        );
    }

    #[test]
    fn variables_are_read_and_checked() {
        let of = |pairs: &[(&str, &str)]| {
            DeviceChoice::from_variables(|n| pairs.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[]).unwrap(), DeviceChoice::default());
        let c = of(&[
            ("WARPBELL_RDMA_DEVICE", "mlx5_2:1"),
            ("WARPBELL_RDMA_GID_INDEX", "3"),
            ("WARPBELL_RDMA_TRAFFIC_CLASS", "106"),
            ("WARPBELL_RDMA_TIMEOUT", "14"),
            ("WARPBELL_RDMA_DOORBELL", "cpu"),
            ("WARPBELL_RDMA_QUEUES", "host"),
            ("WARPBELL_RDMA_RECORD", "off"),
            ("WARPBELL_RDMA_BLUEFLAME", "on"),
        ]);
        let c = c.unwrap();
        assert_eq!((c.device.as_deref(), c.port, c.gid_index), (Some("mlx5_2"), Some(1), Some(3)));
        assert_eq!((c.traffic_class, c.ack_timeout), (Some(TrafficClass(106)), Some(14)));
        assert_eq!((c.record, c.blue_flame), (RecordChoice::Off, true));
        assert_eq!((c.doorbell, c.queues), (DoorbellChoice::Cpu, QueueChoice::Host));
        for (name, text) in [
            ("WARPBELL_RDMA_DEVICE", "mlx5_0:0"),
            ("WARPBELL_RDMA_DEVICE", ":1"),
            ("WARPBELL_RDMA_GID_INDEX", "256"),
            ("WARPBELL_RDMA_TRAFFIC_CLASS", "-1"),
            ("WARPBELL_RDMA_TIMEOUT", "32"),
            ("WARPBELL_RDMA_DOORBELL", "nobody"),
            ("WARPBELL_RDMA_QUEUES", "cpu"),
            ("WARPBELL_RDMA_RECORD", "none"),
            ("WARPBELL_RDMA_BLUEFLAME", "1"),
        ] {
            let e = of(&[(name, text)]).unwrap_err().to_string();
            assert!(e.contains(name), "{e}");
        }
    }
}
