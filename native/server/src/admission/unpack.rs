//! Bodies that are compressed: how large they say they are, and what is in them.

use std::io::Read;

use arrow_ipc::CompressionType;
use bytes::Bytes;
use lz4_flex::frame::FrameDecoder;
use zstd::bulk::Decompressor;

use super::Problem;
use super::message::{Parts, unreadable};

const LENGTH_BYTES: usize = 8;
/// This value instead of a length means that the buffer is not compressed.
const AS_IT_IS: i64 = -1;

/// How many bytes the buffers have once they are unpacked, as they say.
pub fn claimed_bytes(parts: &Parts) -> Result<usize, Problem> {
    let mut total = 0usize;
    for buffer in &parts.buffers {
        let size = match parts.compression {
            None => buffer.len(),
            Some(_) => claim(buffer)?.unwrap_or(buffer.len()),
        };
        total = total.saturating_add(size);
    }
    Ok(total)
}

/// Decompresses the parts. Reserve room for the size that they claim before.
pub fn unpacked(mut parts: Parts) -> Result<Parts, Problem> {
    if let Some(codec) = parts.compression.take() {
        for buffer in &mut parts.buffers {
            *buffer = unpacked_buffer(codec, buffer)?;
        }
    }
    Ok(parts)
}

fn unpacked_buffer(codec: CompressionType, buffer: &Bytes) -> Result<Bytes, Problem> {
    let Some(size) = claim(buffer)? else {
        return Ok(buffer.slice(buffer.len().min(LENGTH_BYTES)..));
    };
    let packed = &buffer[LENGTH_BYTES..];
    let mut data = Vec::new();
    // One byte more than it claims, so that one that lies is noticed, however large it would become.
    let room = size.saturating_add(1);
    data.try_reserve_exact(room)
        .map_err(|_| unreadable("there is no room to unpack it"))?;
    let read = match codec {
        CompressionType::LZ4_FRAME => FrameDecoder::new(packed)
            .take(room as u64)
            .read_to_end(&mut data),
        // At once and not as a stream: a stream takes as much memory beside it as the bytes ask for.
        CompressionType::ZSTD => {
            Decompressor::new().and_then(|mut zstd| zstd.decompress_to_buffer(packed, &mut data))
        }
        _ => return Err(unreadable("its body is compressed in an unknown way")),
    };
    read.map_err(|error| unreadable(format!("a buffer cannot be unpacked: {error}")))?;
    if data.len() == size {
        Ok(Bytes::from(data))
    } else {
        Err(unreadable(
            "a buffer has another size than it says, once it is unpacked",
        ))
    }
}

/// Returns the size that a compressed buffer claims; `None` if it is not compressed.
fn claim(buffer: &Bytes) -> Result<Option<usize>, Problem> {
    let Some(front) = buffer.first_chunk::<LENGTH_BYTES>() else {
        return if buffer.is_empty() {
            Ok(None)
        } else {
            Err(unreadable("a compressed buffer is shorter than its length"))
        };
    };
    match i64::from_le_bytes(*front) {
        AS_IT_IS => Ok(None),
        size => usize::try_from(size)
            .map(Some)
            .map_err(|_| unreadable("the size of a compressed buffer is negative")),
    }
}
