//! gRPC's frames over HTTP/2: five bytes before each message.

use bytes::{Buf, Bytes, BytesMut};

use crate::refusal::Refusal;
use crate::repr::grouped;

/// A flag for compression, and the length of the message.
pub const FRAME_BYTES: usize = 5;

/// A smaller piece is copied to others of its kind if it has to wait, since each takes memory besides its bytes and
/// keeps what came together with it: of a frame that is as large as any, nearly 64 KiB.
const SMALL_PIECE: usize = 8 << 10;
const GATHERED: usize = 16 << 10;

/// What a message may have besides its data.
const METADATA_BYTES: usize = 16 << 20;

/// Writes the five bytes that were left free at the front of a message.
pub fn finish_frame(mut data: BytesMut) -> Bytes {
    let length = data.len() - FRAME_BYTES;
    data[0] = 0;
    data[1..FRAME_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    data.freeze()
}

/// Puts the messages of a stream together again. A message that came in one piece is not copied.
#[derive(Default)]
pub struct Deframer {
    pieces: std::collections::VecDeque<Bytes>,
    /// Small pieces that come after these.
    small: BytesMut,
    held: usize,
}

impl Deframer {
    pub fn push(&mut self, data: Bytes) {
        self.held += data.len();
        if data.len() >= SMALL_PIECE || self.held == data.len() {
            self.gather();
            self.pieces.extend((!data.is_empty()).then_some(data));
            return;
        }
        self.small.extend_from_slice(&data);
        if self.small.len() >= GATHERED {
            self.gather();
        }
    }

    /// Has what is here wait for more.
    pub fn settle(&mut self) {
        if self.small.is_empty() && self.held < SMALL_PIECE {
            for piece in self.pieces.drain(..) {
                self.small.extend_from_slice(&piece);
            }
        }
    }

    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push_back(self.small.split().freeze());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Bytes that are here and that no message has been made of.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The next whole message, if it is there. One of more than `most` bytes of data is refused as soon as it
    /// begins.
    pub fn next(&mut self, most: usize) -> Result<Option<Bytes>, Refusal> {
        if self.held < FRAME_BYTES {
            return Ok(None);
        }
        let mut frame = [0; FRAME_BYTES];
        self.peek(&mut frame);
        let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]) as usize;
        if frame[0] != 0 {
            return Err(Refusal::unsupported(
                "a message is compressed by gRPC: send it as it is, or have Arrow compress its buffers",
            ));
        }
        if length > most + METADATA_BYTES {
            return Err(Refusal::config(format!(
                "a message has {} bytes and may have {}: split it",
                grouped(length),
                grouped(most)
            )));
        }
        if self.held < FRAME_BYTES + length {
            return Ok(None);
        }
        self.gather();
        self.take(FRAME_BYTES);
        Ok(Some(self.take(length)))
    }

    fn peek(&self, into: &mut [u8]) {
        let pieces = self.pieces.iter().flat_map(|piece| piece.iter());
        let mut bytes = pieces.chain(self.small.iter());
        for slot in into {
            if let Some(byte) = bytes.next() {
                *slot = *byte;
            }
        }
    }

    /// `length` bytes, which are there.
    fn take(&mut self, length: usize) -> Bytes {
        self.held -= length;
        if let Some(first) = self.pieces.front_mut()
            && first.len() >= length
        {
            let taken = first.split_to(length);
            if first.is_empty() {
                self.pieces.pop_front();
            }
            return taken;
        }
        let mut whole = BytesMut::with_capacity(length);
        while whole.len() < length {
            let Some(first) = self.pieces.front_mut() else {
                break;
            };
            let part = first.len().min(length - whole.len());
            whole.extend_from_slice(&first[..part]);
            first.advance(part);
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let frame = |message: &&[u8]| {
            let mut data = BytesMut::zeroed(FRAME_BYTES);
            data.extend_from_slice(message);
            finish_frame(data).to_vec()
        };
        messages.iter().flat_map(frame).collect()
    }

    #[test]
    fn messages_are_put_together_however_they_are_cut() {
        let messages: [&[u8]; 4] = [b"one", b"", b"a longer message", b"x"];
        let wire = framed(&messages);
        for size in 1..=wire.len() {
            let mut deframer = Deframer::default();
            let mut found = Vec::new();
            for piece in wire.chunks(size) {
                deframer.push(Bytes::copy_from_slice(piece));
                while let Some(message) = deframer.next(100).unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages);
            assert!(deframer.is_empty());
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_refused_when_it_begins() {
        let mut deframer = Deframer::default();
        deframer.push(Bytes::from_static(&[0, 2, 0, 0, 0]));
        let refusal = deframer.next(1000).unwrap_err();
        assert_eq!(
            refusal.message,
            "a message has 33,554,432 bytes and may have 1,000: split it"
        );
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_takes_about_what_it_has() {
        let message = vec![7; 100_000];
        let wire = Bytes::from(framed(&[&message]));
        let mut deframer = Deframer::default();
        for at in 0..wire.len() - 1 {
            deframer.push(wire.slice(at..=at));
            assert!(deframer.next(message.len()).unwrap().is_none());
            deframer.settle();
        }
        assert!(deframer.pieces.len() < 100);
        deframer.push(wire.slice(wire.len() - 1..));
        assert_eq!(deframer.next(message.len()).unwrap().unwrap(), message);
    }

    #[test]
    fn a_small_piece_that_waits_does_not_keep_what_came_with_it() {
        let came = Bytes::from(vec![0; 64 << 10]);
        let mut deframer = Deframer::default();
        deframer.push(came.slice(..3));
        assert!(!came.is_unique());
        deframer.settle();
        deframer.push(came.slice(3..6));
        assert!(came.is_unique());
        assert_eq!(deframer.next(1000).unwrap().unwrap(), "");
        assert_eq!(deframer.held(), 1);
    }

    #[test]
    fn a_compressed_message_is_refused() {
        let mut deframer = Deframer::default();
        deframer.push(Bytes::from_static(&[1, 0, 0, 0, 0]));
        assert_eq!(deframer.next(1000).unwrap_err().name, "Unsupported");
    }
}
