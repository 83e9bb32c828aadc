//! Arrow IPC messages as they come in: flatbuffers verified, and every buffer inside of the body.

use arrow_ipc::{
    BodyCompressionMethod, Buffer, CompressionType, Message, MetadataVersion, RecordBatch,
    root_as_message_with_opts,
};
use bytes::{BufMut, Bytes, BytesMut};
use flatbuffers::VerifierOptions;

use super::Problem;

/// The limits of Arrow's reader in C++, which reads the log: its flatbuffers are at most as deep as this, and
/// tables of a message that are referred to repeatedly count each time.
const FLATBUFFERS: VerifierOptions = VerifierOptions {
    max_depth: 128,
    max_tables: 300_000,
    max_apparent_size: 1 << 31,
    ignore_missing_null_terminator: false,
};
const ALIGNMENT: usize = 8;
const CONTINUATION: u32 = u32::MAX;

/// The verified flatbuffer of a message.
pub fn open(header: &[u8]) -> Result<Message<'_>, Problem> {
    let message = root_as_message_with_opts(&FLATBUFFERS, header)
        .map_err(|error| unreadable(first_line(&error.to_string())))?;
    if ![MetadataVersion::V4, MetadataVersion::V5].contains(&message.version()) {
        return Err(unreadable(
            "its format is older or newer than versions 4 and 5",
        ));
    }
    Ok(message)
}

/// How long an array is, and how many of its slots are null.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub length: usize,
    pub nulls: usize,
}

/// The parts of a batch, as they came. Buffers are as large as the message says, and may be compressed.
#[derive(Clone)]
pub struct Parts {
    pub rows: usize,
    pub nodes: Vec<Node>,
    pub buffers: Vec<Bytes>,
    /// For each column of views, the number of buffers with its values.
    pub view_buffers: Vec<usize>,
    pub compression: Option<CompressionType>,
    /// Whether the body can stand in the log as it came: no piece of it is compressed, and the next message
    /// would begin where one may.
    pub is_plain: bool,
}

impl Parts {
    pub fn new(batch: RecordBatch, body: &Bytes) -> Result<Self, Problem> {
        let rows = count(batch.length(), "the number of rows")?;
        let nodes = batch
            .nodes()
            .ok_or_else(|| unreadable("it has no field nodes"))?;
        let nodes = nodes.iter().map(|node| {
            let length = count(node.length(), "the length of an array")?;
            let nulls = count(node.null_count(), "the number of nulls of an array")?;
            Ok(Node { length, nulls })
        });
        let buffers = batch
            .buffers()
            .ok_or_else(|| unreadable("it has no buffers"))?;
        let buffers = buffers.iter().map(|buffer| slice(body, buffer));
        let views = batch.variadicBufferCounts().unwrap_or_default();
        let compression = match batch.compression() {
            None => None,
            Some(compression) if compression.method() == BodyCompressionMethod::BUFFER => {
                Some(compression.codec())
            }
            Some(_) => return Err(unreadable("its body is compressed in an unknown way")),
        };
        Ok(Self {
            rows,
            nodes: nodes.collect::<Result<_, _>>()?,
            buffers: buffers.collect::<Result<_, _>>()?,
            view_buffers: views
                .iter()
                .map(|of_column| count(of_column, "the number of a column's buffers"))
                .collect::<Result<_, _>>()?,
            is_plain: compression.is_none() && body.len().is_multiple_of(ALIGNMENT),
            compression,
        })
    }
}

/// The part of the body that the message says is its own.
pub fn own_body(message: &Message, body: &Bytes) -> Result<Bytes, Problem> {
    let length = count(message.bodyLength(), "the length of the body")?;
    if length > body.len() {
        return Err(unreadable(format!(
            "its body should have {length} bytes and has {}",
            body.len()
        )));
    }
    Ok(body.slice(..length))
}

/// Returns the bytes before the body of an encapsulated message: continuation, length, metadata and padding.
pub fn encapsulated(header: &[u8]) -> Bytes {
    let padded = header.len().next_multiple_of(ALIGNMENT);
    let mut front = BytesMut::with_capacity(ALIGNMENT + padded);
    front.put_u32_le(CONTINUATION);
    front.put_u32_le(padded as u32);
    front.put_slice(header);
    front.put_bytes(0, padded - header.len());
    front.freeze()
}

/// The flatbuffer of an encapsulated message without a body, such as a schema.
pub fn metadata_of(encapsulated: &[u8]) -> Result<&[u8], Problem> {
    let (front, rest) = encapsulated
        .split_first_chunk::<8>()
        .ok_or_else(|| unreadable("it is shorter than what stands before a message"))?;
    let length = u32::from_le_bytes([front[4], front[5], front[6], front[7]]) as usize;
    rest.get(..length)
        .ok_or_else(|| unreadable("it is shorter than it says"))
}

fn slice(body: &Bytes, buffer: &Buffer) -> Result<Bytes, Problem> {
    let offset = count(buffer.offset(), "the offset of a buffer")?;
    let length = count(buffer.length(), "the length of a buffer")?;
    if !offset.is_multiple_of(ALIGNMENT) {
        return Err(unreadable(format!(
            "a buffer begins at {offset}, which is no multiple of 8"
        )));
    }
    let end = offset.checked_add(length).filter(|end| *end <= body.len());
    let end = end.ok_or_else(|| unreadable("a buffer ends outside of the body"))?;
    Ok(body.slice(offset..end))
}

fn count(number: i64, what: &str) -> Result<usize, Problem> {
    usize::try_from(number).map_err(|_| unreadable(format!("{what} is negative")))
}

pub fn unreadable(problem: impl Into<String>) -> Problem {
    Problem::Unreadable(problem.into())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
