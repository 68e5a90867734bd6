//! Checks of an Arrow IPC file before it is decoded: the decoder trusts positions and lengths, and takes memory for them.

use super::damaged;
use super::source::Source;
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{Block, root_as_footer, root_as_message};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes at the end of a file: the length of the footer, and `ARROW1`.
const TRAILER: u64 = 10;

/// A batch of rows, or a dictionary.
pub(crate) struct BlockSize {
    /// Rows of the batch, or values of the dictionary.
    pub(crate) rows: u64,
    /// Bytes that the decoder takes for them.
    pub(crate) bytes: u128,
    /// False for a dictionary.
    pub(crate) is_batch: bool,
}

/// Checks that all blocks, and the buffers within them, lie within the file. Returns their sizes, dictionaries first.
///
/// # Errors
/// The reason why the file cannot be decoded.
pub(crate) fn check(source: &Source) -> Result<Vec<BlockSize>, String> {
    let short = || "cannot be decoded (it is too short for an Arrow file); it is cut short".to_owned();
    let read = |start: u64, length: u64| {
        let length = usize::try_from(length).map_err(|_| short())?;
        // Copies are aligned, as the parsers want them.
        source.get_bytes(start, length).map(|read| read.to_vec()).map_err(|e| damaged(&e))
    };
    let end = source.len().checked_sub(TRAILER).ok_or_else(short)?;
    let trailer: [u8; TRAILER as usize] = read(end, TRAILER)?.try_into().map_err(|_| short())?;
    let length = read_footer_length(trailer).map_err(|e| damaged(&e))? as u64;
    let footer = read(end.checked_sub(length).ok_or_else(short)?, length)?;
    let footer = root_as_footer(&footer).map_err(|e| damaged(&e))?;
    let dictionaries = footer.dictionaries().into_iter().flatten().map(|block| (block, false));
    let batches = footer.recordBatches().into_iter().flatten().map(|block| (block, true));
    dictionaries.chain(batches).map(|(block, is_batch)| size_of_block(source, block, is_batch)).collect()
}

fn size_of_block(source: &Source, block: &Block, is_batch: bool) -> Result<BlockSize, String> {
    let beyond = || "cannot be decoded (a part lies beyond the end of its block); it is damaged".to_owned();
    let range = |start: i64, length: i64, whole: u64| -> Result<u64, String> {
        let (start, length) = (u64::try_from(start), u64::try_from(length));
        match (start, length) {
            (Ok(start), Ok(length)) if start.checked_add(length).is_some_and(|end| end <= whole) => Ok(start),
            _ => Err(beyond()),
        }
    };
    let (at, head) = (block.offset(), i64::from(block.metaDataLength()));
    let start = range(at, head, source.len())?;
    let body = range(at + head, block.bodyLength(), source.len())?;
    let body_bytes = block.bodyLength() as u64;
    let head = source.get_bytes(start, head as usize).map_err(|e| damaged(&e))?;
    // The message follows its length, and in newer files a mark in front of it.
    let skip = if head.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let message = head.get(skip..).ok_or_else(beyond)?.to_vec();
    let message = root_as_message(&message).map_err(|e| damaged(&e))?;
    let dictionary = message.header_as_dictionary_batch();
    let Some(batch) = message.header_as_record_batch().or_else(|| dictionary.and_then(|d| d.data())) else {
        return Err(beyond());
    };
    let mut needed = 0u128;
    for buffer in batch.buffers().into_iter().flatten() {
        let offset = range(buffer.offset(), buffer.length(), body_bytes)?;
        needed += buffer.length() as u128;
        if batch.compression().is_some() && buffer.length() > 0 {
            // Decompressed length, or -1 for a buffer that is stored as it is.
            range(buffer.offset(), 8, body_bytes)?;
            let prefix = source.get_bytes(body + offset, 8).map_err(|e| damaged(&e))?;
            let plain = i64::from_le_bytes(prefix.as_ref().try_into().map_err(|_| beyond())?);
            match u64::try_from(plain) {
                Ok(plain) => needed += u128::from(plain),
                Err(_) if plain == -1 => {}
                Err(_) => return Err(beyond()),
            }
        }
    }
    Ok(BlockSize { rows: u64::try_from(batch.length()).unwrap_or(0), bytes: needed, is_batch })
}
