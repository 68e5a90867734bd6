//! The axes of a data path, in one vocabulary for NVMe and RDMA: memory of the queues, landing of the data, doorbell. Stands on nothing.

/// A word that is none of the values of an axis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is none of {known}")]
pub struct UnknownWord {
    /// The word as it was given.
    pub word: String,
    /// The values that there are.
    pub known: &'static str,
}

/// Declares an axis whose values are written, read and serialised as the same words.
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
    /// Memory that a device is to write the data to.
    LandingChoice:
    /// The best that works; the path says which.
    Auto = "auto",
    /// In the memory that the kernel names, written by the device.
    Direct = "direct",
    /// In a host buffer of the queue slot; lanes copy it from there.
    Bounce = "bounce"
}

choices! {
    /// Memory that a device writes the data to.
    LandingPath:
    /// In the memory that the kernel names, written by the device.
    Direct = "direct",
    /// In a host buffer of the queue slot; lanes copy it from there.
    Bounce = "bounce"
}

choices! {
    /// Memory that is to hold queues.
    QueueMemoryChoice:
    /// The best that works; the path says which.
    Auto = "auto",
    /// In host memory that kernels reach.
    Host = "host",
    /// In GPU memory.
    Gpu = "gpu",
    /// Submission queues in the controller's own memory; completion queues where data lands.
    Cmb = "cmb"
}

choices! {
    /// Memory that holds queues.
    QueueMemory:
    /// In host memory that kernels reach.
    Host = "host",
    /// In GPU memory.
    Gpu = "gpu",
    /// Submission queues in the controller's own memory; completion queues where data lands.
    Cmb = "cmb"
}

choices! {
    /// The part that is to ring doorbells.
    #[derive(Default)]
    DoorbellChoice:
    /// Kernels where their stores reach the device, a host thread otherwise; the path says which.
    #[default]
    Auto = "auto",
    /// Kernels, or an error that says why they cannot.
    Gpu = "gpu",
    /// A host thread that forwards what kernels store, though kernels might ring.
    Cpu = "cpu"
}

choices! {
    /// The part that rings doorbells.
    Doorbell:
    /// A kernel's store on a GPU reaches the device.
    Gpu = "gpu",
    /// A kernel's store on a CPU thread reaches the device.
    CpuEngine = "cpu-engine",
    /// A host thread forwards what kernels store.
    Cpu = "cpu",
    /// The host submits to these queues and rings itself: no kernel does.
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
