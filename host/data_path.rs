//! The choices of a data path, in one vocabulary for NVMe and RDMA: queue memory, data landing, doorbell. Uses
//! `failure` and `remedy`.

use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

/// Error of reading a choice: the word is none of the known values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is none of {known}")]
pub struct UnknownWord {
    /// The word as given.
    pub word: String,
    /// The known values, each in backquotes.
    pub known: &'static str,
}

impl Remedies for UnknownWord {}

impl Failure for UnknownWord {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Argument
    }
}

/// Declares a choice. `Display`, `FromStr` and `Serialize` use the same word for each value.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident: $($(#[$vdoc:meta])* $variant:ident = $text:literal),*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::data_path::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    word => Err($crate::data_path::UnknownWord {
                        word: word.to_owned(),
                        known: concat!($("`", $text, "` "),*).trim_end(),
                    }),
                }
            }
        }
    };
}
pub(crate) use choices;

choices! {
    /// Requested memory that a device writes data to.
    LandingChoice:
    /// The best landing that works. The data path that was chosen reports it.
    Auto = "auto",
    /// The device writes directly to the memory that the kernel names.
    Direct = "direct",
    /// The device writes to a host buffer of the queue slot. Lanes copy the data from there.
    Bounce = "bounce"
}

choices! {
    /// Memory that a device writes the data to.
    LandingPath:
    /// The device writes directly to the memory that the kernel names.
    Direct = "direct",
    /// The device writes to a host buffer of the queue slot. Lanes copy the data from there.
    Bounce = "bounce"
}

choices! {
    /// Requested memory of the queues.
    QueueMemoryChoice:
    /// The best memory that works. The data path that was chosen reports it.
    Auto = "auto",
    /// Host memory that kernels can access.
    Host = "host",
    /// GPU memory.
    Gpu = "gpu",
    /// The controller memory buffer for submission queues. Completion queues are in the memory that data lands in.
    Cmb = "cmb"
}

choices! {
    /// Memory of the queues.
    QueueMemory:
    /// Host memory that kernels can access.
    Host = "host",
    /// GPU memory.
    Gpu = "gpu",
    /// The controller memory buffer for submission queues. Completion queues are in the memory that data lands in.
    Cmb = "cmb"
}

choices! {
    /// Requested writer of doorbells.
    #[derive(Default)]
    DoorbellChoice:
    /// Kernels if their stores reach the device, a host thread otherwise. The data path that was chosen reports it.
    #[default]
    Auto = "auto",
    /// Kernels. If their stores cannot reach the device, opening it fails with an error that names the reason.
    Gpu = "gpu",
    /// A host thread, which forwards the values that kernels store, even if kernels could write the doorbells.
    Cpu = "cpu"
}

choices! {
    /// Writer of doorbells.
    Doorbell:
    /// A kernel on a GPU: its stores reach the device.
    Gpu = "gpu",
    /// A kernel on a CPU thread: its stores reach the device.
    CpuEngine = "cpu-engine",
    /// A host thread, which forwards the values that kernels store.
    Cpu = "cpu",
    /// The host, which submits to these queues itself. No kernel uses them.
    Host = "host"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_are_refused() {
        for c in [LandingChoice::Auto, LandingChoice::Direct, LandingChoice::Bounce] {
            assert_eq!(c.to_string().parse(), Ok(c));
        }
        assert_eq!(serde_json::to_value(Doorbell::CpuEngine).unwrap(), Doorbell::CpuEngine.to_string());
        let text = "fast".parse::<QueueMemoryChoice>().unwrap_err().to_string();
        assert!(text.contains("`fast`") && text.contains("`host`"), "{text}");
    }
}
