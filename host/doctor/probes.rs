//! Checks that briefly use RDMA devices, for facts that only a probe shows.

use super::check::{Area, Check, Checks};
use crate::cuda;
use crate::memory::Space;
use crate::memory::mapping::TOPOLOGY_CHECK;
use crate::rdma::{Probe, ProbeStep, RdmaDevice, try_device};
use crate::remedy::Remedy;

/// Remedy of too small a limit on locked memory.
const MEMLOCK: &str = "ulimit -l unlimited (for good: `* - memlock unlimited` in /etc/security/limits.d; a container: --ulimit memlock=-1)";

/// Probes every device that this process may open, with the memory of GPU number `gpu` if there is one.
pub(super) fn try_all(nics: &[RdmaDevice], gpu: Option<usize>) -> Vec<(String, Vec<Probe>)> {
    if nics.is_empty() {
        return Vec::new();
    }
    let space = gpu.and_then(|ordinal| cuda::Context::open(ordinal).ok()).map(Space::gpu);
    nics.iter().map(|n| (n.name.clone(), try_device(n, space.as_ref()))).collect()
}

/// Adds a check with a remedy for each step of the probes.
pub(super) fn check(tried: &[(String, Vec<Probe>)], all: &mut Vec<Check>) {
    for (name, probes) in tried {
        let mut c = Checks::of(Area::Nic, name.clone(), all);
        for Probe { step, outcome } in probes {
            let title = title(*step);
            match (outcome, step) {
                (Ok(detail), _) => c.ok(title, detail.clone()),
                (Err(why), ProbeStep::Open | ProbeStep::HostMemory | ProbeStep::Queues) => {
                    c.fail(title, why.clone(), remedy(*step, why))
                }
                (Err(why), _) => c.warn(title, why.clone(), remedy(*step, why)),
            }
        }
    }
}

fn title(step: ProbeStep) -> &'static str {
    match step {
        ProbeStep::Open => "opening",
        ProbeStep::HostMemory => "host memory",
        ProbeStep::GpuMemory => "gpu memory",
        ProbeStep::Queues => "queues",
        ProbeStep::Devx => "commands",
        ProbeStep::Doorbell => "doorbell",
        ProbeStep::Mlx5Queues => "mlx5 queues",
        ProbeStep::GpuQueues => "gpu queues",
    }
}

/// Returns the command, the line of a file, or the setting that fixes a failed step.
fn remedy(step: ProbeStep, why: &str) -> Option<Remedy> {
    let has = |word: &str| why.contains(word);
    Some(Remedy::step(match step {
        ProbeStep::Open if has("Permission denied") || has("not permitted") => {
            "chmod 666 /dev/infiniband/uverbs*, or give a container --device /dev/infiniband"
        }
        ProbeStep::Open if has("ib_uverbs") => "modprobe ib_uverbs, or give a container --device /dev/infiniband",
        ProbeStep::Open if has("ibverbs-providers") => {
            "apt install libibverbs1 ibverbs-providers (dnf install libibverbs)"
        }
        ProbeStep::HostMemory if has("locked") => MEMLOCK,
        // 524 is ENOTSUPP, for which libc has no message.
        ProbeStep::GpuMemory if has("os error 524") => TOPOLOGY_CHECK,
        ProbeStep::GpuMemory => {
            "modprobe nvidia_peermem, or install the open kernel modules of the GPU driver (nvidia-open)"
        }
        ProbeStep::Devx if has("libmlx5") => "apt install ibverbs-providers (dnf install libibverbs)",
        ProbeStep::Devx => "start a container with --device /dev/infiniband --cap-add NET_RAW; see dmesg for mlx5_core",
        ProbeStep::Doorbell => {
            "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d, then rebuild the initramfs and reboot; \
                 until then a CPU thread writes the doorbells"
        }
        ProbeStep::Queues | ProbeStep::Mlx5Queues | ProbeStep::GpuQueues if has("locked") => MEMLOCK,
        ProbeStep::GpuQueues if has("os error 524") => TOPOLOGY_CHECK,
        ProbeStep::GpuQueues => {
            "queues in GPU memory need Linux 6.1, rdma-core 44 and dma-buf of the open GPU driver (or nvidia_peermem); until then they are in \
                 host memory (WARPBELL_RDMA_QUEUES=host)"
        }
        ProbeStep::Mlx5Queues => {
            "use transport verbs, and report the refused command (an acceptance run has its bytes)"
        }
        ProbeStep::Queues if has("hardware address") => {
            "give the interface an address that it reaches itself (ping it)"
        }
        ProbeStep::Open | ProbeStep::HostMemory | ProbeStep::Queues => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn of(step: ProbeStep, outcome: Result<&str, &str>) -> Check {
        let probe = Probe { step, outcome: outcome.map(str::to_owned).map_err(str::to_owned) };
        let mut all = Vec::new();
        check(&[("mlx5_0".to_owned(), vec![probe])], &mut all);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].area, all[0].subject.as_str()), (Area::Nic, "mlx5_0"));
        all.remove(0)
    }

    #[test]
    fn a_failed_step_comes_with_its_remedy() {
        let fixed = |step, why, status, word: &str| {
            let c = of(step, Err(why));
            assert_eq!((c.status, c.detail.as_str()), (status, why));
            assert!(c.fix.as_ref().is_some_and(|f| f.to_string().contains(word)), "{c:?}");
        };
        fixed(ProbeStep::Open, "opening mlx5_0: Permission denied (os error 13)", Status::Fail, "chmod 666");
        fixed(ProbeStep::Open, "the kernel has no RDMA: modprobe ib_uverbs", Status::Fail, "modprobe ib_uverbs");
        let absent = "libibverbs.so.1: it cannot be loaded; install libibverbs1 and ibverbs-providers (Debian, Ubuntu)";
        fixed(ProbeStep::Open, absent, Status::Fail, "apt install libibverbs1");
        fixed(ProbeStep::HostMemory, "more than the limit of locked memory", Status::Fail, "memlock");
        fixed(ProbeStep::GpuMemory, "GPU memory: no dma-buf", Status::Warn, "nvidia_peermem");
        let refused = "GPU memory: Unknown error 524 (os error 524)";
        fixed(ProbeStep::GpuMemory, refused, Status::Warn, "NVreg_GrdmaPciTopoCheckOverride=1");
        fixed(ProbeStep::Devx, "libmlx5.so.1 cannot be loaded", Status::Warn, "ibverbs-providers");
        fixed(ProbeStep::Devx, "Operation not permitted", Status::Warn, "NET_RAW");
        fixed(ProbeStep::Doorbell, "not permitted", Status::Warn, "PeerMappingOverride");
        let syndrome = "creating a queue pair: the firmware refused command 0x500: bad parameter (status 0x03), syndrome 0x0012ab34";
        fixed(ProbeStep::Queues, "more than the limit of locked memory", Status::Fail, "memlock");
        fixed(ProbeStep::Mlx5Queues, syndrome, Status::Warn, "transport verbs");
        fixed(ProbeStep::GpuQueues, syndrome, Status::Warn, "host memory");
        fixed(ProbeStep::GpuQueues, refused, Status::Warn, "NVreg_GrdmaPciTopoCheckOverride=1");
        assert_eq!(of(ProbeStep::HostMemory, Err("Bad address")).fix, None);
        assert_eq!(of(ProbeStep::Doorbell, Ok("the GPU maps a doorbell")).status, Status::Ok);
    }

    #[test]
    fn nothing_is_tried_where_there_is_nothing() {
        assert!(try_all(&[], Some(0)).is_empty());
    }
}
