//! Arguments of `warpbell bench kv`.

use super::{DeviceArgs, MeasureArgs};
use clap::Args;
use warpbell::units::Bytes;

#[derive(Args, Clone, Debug)]
pub struct KvArgs {
    /// Tokens of a request, rounded up to whole pages; several with commas, as for every option that says LIST
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub tokens: Vec<u64>,
    /// Percentage of the tokens whose caches are stored: those of the beginning
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "100", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub hit: Vec<u32>,
    /// Layers of the model
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub layers: u32,
    /// Heads of keys and values of a layer
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub kv_heads: u32,
    /// Elements of a head
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=1024))]
    pub head_dim: u32,
    /// Bytes of an element
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub element_bytes: u32,
    /// Tokens of a page
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub page_tokens: u32,
    /// Bytes of the largest command [default: 128k, or what the devices take]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub bs: Vec<Bytes>,
    /// Commands that each warp has in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub in_flight: Vec<u32>,
    /// Multiprocessors of the GPU to use; a kernel that computes occupies the others, and the report says how much of it
    /// is left [default: 16, and nothing beside]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sms: Vec<u32>,
    #[command(flatten)]
    pub measure: MeasureArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}
