//! The messages of a call, as they come in. What of a message is here before the rest of it counts against a
//! budget, so that nobody fills the memory with halves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::windows::{Kept, Parked, Windows};
use crate::budget::{Part, Parts, Room};
use crate::grpc::Deframer;
use crate::refusal::Refusal;

/// So long somebody waits for room for a message before it is refused, and so long a message may take to come for
/// which there is no room.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came while the stream waited is given back in parts of this size, and not for each message of it.
const RELEASED_AT_ONCE: usize = 32 << 10;

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

/// How what the client sends has ended.
#[derive(Clone, Copy)]
enum End {
    Done,
    Gone,
}

pub struct Inbox {
    body: RecvStream,
    /// Once no more comes.
    ended: Option<End>,
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
            ended: None,
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
        if self.unreleased > self.frames.held() + RELEASED_AT_ONCE {
            self.release();
        }
        loop {
            if let Some(message) = self.frames.next(self.most_bytes)? {
                return Ok(message);
            }
            match self.ended {
                None => {}
                Some(End::Gone) => return Err(Ended::Gone),
                Some(End::Done) if self.frames.is_empty() => return Err(Ended::Done),
                Some(End::Done) => {
                    return Err(Refusal::config("the stream ended inside of a message").into());
                }
            }
            self.release();
            if !self.kept.set(self.unreleased) {
                self.make_room().await?;
                continue;
            }
            self.frames.settle();
            match &self.turn {
                None => self.receive().await,
                Some((_, until)) => {
                    let until = *until;
                    timeout_at(until, self.receive())
                        .await
                        .map_err(|_| no_room())?
                }
            };
        }
    }

    /// Takes what comes next, and says how much that is.
    async fn receive(&mut self) -> usize {
        match self.body.data().await {
            Some(Ok(data)) => {
                let bytes = data.len();
                self.kept.windows().note(bytes);
                self.unreleased += bytes;
                self.frames.push(data);
                return bytes;
            }
            Some(Err(_)) => self.ended = Some(End::Gone),
            None => self.ended = Some(End::Done),
        }
        0
    }

    /// Waits for something else than a message. What comes meanwhile, at most a window of it, is taken out of HTTP/2's
    /// buffer, where each frame would take memory that no budget counts, and does not hold up other streams.
    pub async fn hold<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let mut parked: Option<Parked> = None;
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                bytes = self.receive(), if self.ended.is_none() => {
                    self.frames.settle();
                    let windows = self.kept.windows();
                    parked.get_or_insert_with(|| Parked::new(windows)).add(bytes);
                }
            }
        }
    }

    /// Holds nothing any more for the message before the next one, which is where it belongs.
    pub fn done(&mut self) {
        self.rooms.clear();
        self.turn = None;
        self.covered = 0;
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

    /// Has the budget count what is here instead of the window.
    async fn make_room(&mut self) -> Result<(), Refusal> {
        let bytes = self.unreleased;
        if self.turn.is_none() {
            let parts = Arc::clone(&self.parts);
            match self.hold(timeout(PATIENCE, parts.reserve(bytes))).await {
                Ok(Some(Part::Room(room))) => self.rooms.push(room),
                Ok(Some(Part::Turn(turn))) => self.turn = Some((turn, Instant::now() + PATIENCE)),
                Ok(None) | Err(_) => return Err(no_room()),
            }
        }
        self.covered += bytes;
        self.give_back(bytes);
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // It fails if the stream is gone, which the next read says.
        let _ = self.body.flow_control().release_capacity(bytes);
        self.kept.windows().released(bytes);
        self.unreleased -= bytes;
    }
}

/// Nothing is read any more, and what is here holds up no other stream.
impl Drop for Inbox {
    fn drop(&mut self) {
        self.give_back(self.unreleased);
    }
}

fn no_room() -> Refusal {
    Refusal::unavailable(
        "the server has no room for a message of this size: try again, or send smaller ones",
    )
}
