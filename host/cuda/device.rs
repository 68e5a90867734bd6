//! Properties and capabilities of a GPU.

use super::driver::{CUdevice, Driver, call};
use super::error::CudaError;
use crate::pci::Bdf;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use serde::Serialize;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;

/// Set of GPUs whose kernels see a device's writes to GPU memory in order without a flush
/// (`CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WritesOrdering {
    /// No GPU: DMA directly into GPU memory needs a flush.
    None,
    /// The GPU that owns the memory.
    Owner,
    /// All GPUs.
    All,
}

impl fmt::Display for WritesOrdering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Owner => "owner",
            Self::All => "all devices",
        })
    }
}

/// Properties of a GPU, as the driver reports them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Position in the driver's list, from 0.
    pub ordinal: usize,
    /// Name, as in `NVIDIA H200`.
    pub name: String,
    /// PCI address, if the driver reports one.
    #[serde(serialize_with = "as_text")]
    pub bdf: Option<Bdf>,
    /// Number of streaming multiprocessors.
    pub processors: u32,
    /// Threads that one multiprocessor holds at once.
    pub threads_per_processor: u32,
    /// Compute capability: major, minor.
    pub compute: (u32, u32),
    /// Memory in bytes.
    pub memory_bytes: usize,
    /// Size of the second-level cache in bytes.
    pub l2_bytes: usize,
    /// CUDA version of the driver: major, minor.
    pub cuda_version: (u32, u32),
    /// Version of the kernel module, as in `580.159.04`.
    pub driver_version: Option<String>,
    /// True if the kernel module is the open one; `None` if `/proc/driver/nvidia/version` cannot be read.
    pub open_module: Option<bool>,
    /// GPUs whose kernels see a device's writes to this GPU's memory in order.
    pub writes_ordering: WritesOrdering,
    /// Bits of `CUflushGPUDirectRDMAWritesOptions`: 1 for a flush from the host, 2 for a flush by a stream operation.
    pub flush_options: u32,
    /// True if GPU memory can be exported as dma-buf.
    pub dma_buf: bool,
    /// True if host memory can be registered with the GPU.
    pub host_register: bool,
    /// True if third-party devices can read and write the GPU's memory (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// UUID of the GPU. It is equal in every process, whatever the GPU's ordinal there is.
    #[serde(serialize_with = "as_hex")]
    pub uuid: [u8; 16],
    /// Capabilities of the GPU's virtual memory management.
    pub virtual_memory: VirtualMemoryFacts,
    /// True if the link to the host carries all atomic operations.
    pub host_native_atomics: bool,
}

/// Capabilities of a GPU's virtual memory management (`cuMemCreate` and related calls).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VirtualMemoryFacts {
    /// True if the GPU has virtual memory management.
    pub supported: bool,
    /// True if memory can be shared with other processes of the host as a file descriptor.
    pub descriptors: bool,
    /// True if the driver says that memory can be shared with other hosts of an NVLink domain.
    /// IMEX has to be set up as well.
    pub fabric: bool,
    /// True if memory can be created so that third-party devices read and write it.
    pub gpu_direct_rdma: bool,
}

fn as_hex<S: serde::Serializer>(uuid: &[u8; 16], s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("{:032x}", u128::from_be_bytes(*uuid)))
}

fn as_text<S: serde::Serializer>(bdf: &Option<Bdf>, s: S) -> Result<S::Ok, S::Error> {
    match bdf {
        Some(b) => s.collect_str(b),
        None => s.serialize_none(),
    }
}

impl DeviceInfo {
    /// Returns the GPUs that the driver lists.
    ///
    /// # Errors
    /// - [`CudaError::NoDriver`] if libcuda does not load, [`CudaError::OldDriver`] if it lacks a function.
    /// - [`CudaError::NoDevice`] if the driver finds no GPU at its start.
    /// - [`CudaError::Call`] if the driver fails to report a property.
    pub fn all() -> Result<Vec<Self>, CudaError> {
        let driver = Driver::get()?;
        (0..count(driver)?).map(|i| Self::read(driver, find(driver, i)?, i)).collect()
    }

    pub(super) fn read(driver: &Driver, device: CUdevice, ordinal: usize) -> Result<Self, CudaError> {
        let attribute = |a: Attribute| -> Result<u32, CudaError> {
            let mut v: c_int = 0;
            // SAFETY: writes one int; the driver returned this device.
            unsafe { call!(driver, cuDeviceGetAttribute(&mut v, a as c_int, device), "reading a GPU's properties") }?;
            Ok(v.max(0) as u32)
        };
        // If the driver does not know an attribute, the GPU does not have the capability.
        let optional = |a| attribute(a).unwrap_or(0);
        let mut version: c_int = 0;
        // SAFETY: writes one int.
        unsafe { call!(driver, cuDriverGetVersion(&mut version), "reading the driver's version") }?;
        let mut memory_bytes = 0;
        // SAFETY: writes one size.
        unsafe { call!(driver, cuDeviceTotalMem_v2(&mut memory_bytes, device), "reading a GPU's properties") }?;
        let name = text(|p, n| {
            // SAFETY: writes at most `n` bytes with a terminating zero.
            unsafe { call!(driver, cuDeviceGetName(p, n, device), "reading a GPU's name") }
        })?;
        let bus_id = text(|p, n| {
            // SAFETY: writes at most `n` bytes with a terminating zero.
            unsafe { call!(driver, cuDeviceGetPCIBusId(p, n, device), "reading a GPU's PCI address") }
        });
        let mut uuid = [0; 16];
        // SAFETY: writes 16 bytes.
        unsafe { call!(driver, cuDeviceGetUuid_v2(&mut uuid, device), "reading a GPU's UUID") }?;
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let (driver_version, open_module) = kernel_module(&module).unzip();
        let version = version.max(0) as u32;
        Ok(Self {
            ordinal,
            name,
            bdf: bus_id.ok().and_then(|t| t.parse().ok()),
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            threads_per_processor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            compute: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory_bytes,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
            // cuda.h: 1000 * major + 10 * minor.
            cuda_version: (version / 1000, version % 1000 / 10),
            driver_version,
            open_module,
            // cuda.h: CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER is 100, _ALL_DEVICES is 200.
            writes_ordering: match optional(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) {
                200.. => WritesOrdering::All,
                100.. => WritesOrdering::Owner,
                _ => WritesOrdering::None,
            },
            flush_options: optional(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
            dma_buf: optional(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0,
            host_register: optional(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != 0,
            gpu_direct_rdma: optional(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0,
            uuid,
            virtual_memory: VirtualMemoryFacts {
                supported: optional(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0,
                descriptors: optional(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0,
                fabric: optional(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0,
                gpu_direct_rdma: optional(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0,
            },
            host_native_atomics: optional(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED) != 0,
        })
    }

    /// Returns the compute capability as compilers name it: 90 for 9.0.
    pub fn generation(&self) -> u32 {
        self.compute.0 * 10 + self.compute.1
    }

    /// Returns the number of threads that the whole GPU holds at once.
    pub(crate) fn resident_threads(&self) -> usize {
        self.processors as usize * self.threads_per_processor as usize
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {} {} (sm_{}, {} SMs, ", self.ordinal, self.name, self.generation(), self.processors)?;
        match &self.driver_version {
            Some(v) => write!(f, "driver {v})"),
            None => write!(f, "CUDA {}.{})", self.cuda_version.0, self.cuda_version.1),
        }
    }
}

pub(super) fn count(driver: &Driver) -> Result<usize, CudaError> {
    let mut n: c_int = 0;
    // SAFETY: writes one int.
    unsafe { call!(driver, cuDeviceGetCount(&mut n), "counting GPUs") }?;
    Ok(n.max(0) as usize)
}

pub(super) fn find(driver: &Driver, ordinal: usize) -> Result<CUdevice, CudaError> {
    let count = count(driver)?;
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    let mut device: CUdevice = 0;
    // SAFETY: writes one handle.
    unsafe { call!(driver, cuDeviceGet(&mut device, ordinal as c_int), "opening a GPU") }?;
    Ok(device)
}

/// Size of the buffer for a GPU's name or PCI address.
const TEXT_BYTES: usize = 256;

fn text(read: impl FnOnce(*mut c_char, c_int) -> Result<(), CudaError>) -> Result<String, CudaError> {
    let mut bytes = [0 as c_char; TEXT_BYTES];
    // The last byte is kept back, so that the text ends in a zero whatever the driver writes.
    read(bytes.as_mut_ptr(), TEXT_BYTES as c_int - 1)?;
    let bytes = bytes.map(|c| c as u8);
    Ok(CStr::from_bytes_until_nul(&bytes).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default())
}

/// Returns the kernel module's version, and true if it is the open one, from the text of `/proc/driver/nvidia/version`.
fn kernel_module(text: &str) -> Option<(String, bool)> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    let version = line.split_whitespace().find(|w| {
        w.contains('.') && w.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })?;
    Some((version.to_owned(), line.contains("Open Kernel Module")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_modules_version_is_read() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)  Tue\nGCC version: 12.2.0\n";
        assert_eq!(kernel_module(open), Some(("580.159.04".into(), true)));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n";
        assert_eq!(kernel_module(closed), Some(("535.183.01".into(), false)));
        assert_eq!(kernel_module("GCC version: 12.2.0"), None);
        assert_eq!(kernel_module(""), None);
    }

    #[test]
    fn names_are_cut_at_the_zero() {
        let t = text(|p, n| {
            assert!(n > 4);
            for (i, b) in b"H200\0".iter().enumerate() {
                // SAFETY: within the buffer.
                unsafe { *p.add(i) = *b as c_char };
            }
            Ok(())
        });
        assert_eq!(t.unwrap(), "H200");
    }

    #[test]
    fn without_a_driver_there_is_an_error_and_no_panic() {
        match DeviceInfo::all() {
            Ok(all) => assert!(all.iter().all(|d| d.processors > 0)),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}
