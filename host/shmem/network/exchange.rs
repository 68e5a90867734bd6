//! The network data that each PE sends to the others.

use crate::rdma::QueueAddress;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The data that other PEs need to reach a PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct ConnectionInfo {
    /// Address of its heap in work requests.
    pub(super) heap: u64,
    /// Remote key for data.
    pub(super) key: u32,
    /// Remote key for signals and atomic operations.
    pub(super) strict_key: u32,
    /// Addresses of the queue pairs that it has for each PE.
    #[serde(serialize_with = "to_text", deserialize_with = "from_text")]
    pub(super) queues: Vec<Vec<QueueAddress>>,
}

/// Encodes bytes as two hex digits each, half the size of a JSON list of numbers.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks(2).map(byte).collect())?
}

fn to_text<S: Serializer>(queues: &[Vec<QueueAddress>], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(queues.iter().map(|to| to.iter().map(|q| hex(&q.0)).collect::<Vec<_>>()))
}

fn from_text<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Vec<QueueAddress>>, D::Error> {
    let wrong = || serde::de::Error::custom("a queue pair's address is not in hexadecimal");
    let text: Vec<Vec<String>> = Vec::deserialize(d)?;
    let one = |t: String| unhex(&t).map(QueueAddress).ok_or_else(wrong);
    text.into_iter().map(|to| to.into_iter().map(one).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offers_come_back(queues in prop::collection::vec(prop::collection::vec(any::<Vec<u8>>(), 0..3), 0..5), heap: u64) {
            let queues = queues.into_iter().map(|to| to.into_iter().map(QueueAddress).collect()).collect();
            let connection_info = ConnectionInfo { heap, key: 7, strict_key: u32::MAX, queues };
            let text = serde_json::to_string(&connection_info).unwrap();
            prop_assert_eq!(serde_json::from_str::<ConnectionInfo>(&text).unwrap(), connection_info);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            if let Some(bytes) = unhex(&text) {
                prop_assert_eq!(hex(&bytes).len(), text.len());
            }
        }
    }
}
