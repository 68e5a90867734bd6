//! The NVMe driver: registers, admin queue, namespaces, I/O queue pairs.

mod port;

pub use port::{Attachment, DmaSpace, DoorbellWindow, Port, PortError};
