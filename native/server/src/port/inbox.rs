//! The messages of a call, as they come in. What of a message is here before the rest of it counts against a
//! budget, so that nobody fills the memory with halves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::windows::{Kept, Windows};
use crate::budget::{Part, Parts, Room};
use crate::grpc::Deframer;
use crate::refusal::Refusal;

/// So long somebody waits for room for a message before it is refused, and so long a message may take to come for
/// which there is no room.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there are no more messages.
#[derive(Debug)]
pub enum Ended {
    /// The client has said that it is done.
    Done,
    /// The client went away.
    Gone,
    Refused(Refusal),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

pub struct Inbox {
    body: RecvStream,
    frames: Deframer,
    most_bytes: usize,
    parts: Arc<Parts>,
    /// Bytes that came and that the stream's window still counts.
    unreleased: usize,
    /// Of these, what was agreed on with the other streams of the connection.
    kept: Kept,
    /// Bytes of the message that are here and that no window counts.
    covered: usize,
    /// For these bytes,
    rooms: Vec<Room>,
    /// or for all that come until then.
    turn: Option<(OwnedSemaphorePermit, Instant)>,
}

impl Inbox {
    pub fn new(
        body: RecvStream,
        most_bytes: usize,
        windows: Arc<Windows>,
        parts: Arc<Parts>,
    ) -> Self {
        Self {
            body,
            frames: Deframer::default(),
            most_bytes,
            parts,
            unreleased: 0,
            kept: Kept::new(windows),
            covered: 0,
            rooms: Vec::new(),
            turn: None,
        }
    }

    /// The next message. The one before it must have been done with.
    pub async fn next(&mut self) -> Result<Bytes, Ended> {
        self.done();
        loop {
            if let Some(message) = self.frames.next(self.most_bytes)? {
                return Ok(message);
            }
            self.release();
            self.make_room().await?;
            let data = match &self.turn {
                None => self.body.data().await,
                Some((_, until)) => timeout_at(*until, self.body.data())
                    .await
                    .map_err(|_| no_room())?,
            };
            match data {
                Some(Ok(data)) => {
                    self.kept.windows().note(data.len());
                    self.unreleased += data.len();
                    self.frames.push(data);
                }
                Some(Err(_)) => return Err(Ended::Gone),
                None if self.frames.is_empty() => return Err(Ended::Done),
                None => return Err(Refusal::config("the stream ended inside of a message").into()),
            }
        }
    }

    /// Holds nothing any more for the message before the next one, which is where it belongs.
    pub fn done(&mut self) {
        self.rooms.clear();
        self.turn = None;
        self.covered = 0;
    }

    /// Nothing is read any more.
    pub fn close(&mut self) {
        self.done();
        self.frames = Deframer::default();
    }

    /// Gives back what was read, but for the part of a message that nothing else counts.
    fn release(&mut self) {
        let kept = self
            .frames
            .held()
            .saturating_sub(self.covered)
            .min(self.unreleased);
        self.give_back(self.unreleased - kept);
    }

    async fn make_room(&mut self) -> Result<(), Refusal> {
        if self.kept.set(self.unreleased) {
            return Ok(());
        }
        if self.turn.is_none() {
            let reserved = self.parts.reserve(self.unreleased);
            match timeout(PATIENCE, reserved).await {
                Ok(Some(Part::Room(room))) => self.rooms.push(room),
                Ok(Some(Part::Turn(turn))) => self.turn = Some((turn, Instant::now() + PATIENCE)),
                Ok(None) | Err(_) => return Err(no_room()),
            }
        }
        self.covered += self.unreleased;
        self.give_back(self.unreleased);
        self.kept.set(0);
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        // It fails if the stream is gone, which the next read says.
        let _ = self.body.flow_control().release_capacity(bytes);
        self.kept.windows().released(bytes);
        self.unreleased -= bytes;
    }
}

fn no_room() -> Refusal {
    Refusal::unavailable(
        "the server has no room for a message of this size: try again, or send smaller ones",
    )
}
