//! One budget of bytes for the whole server: for what messages unpack to, or for what connections may send
//! before it is read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const UNIT: usize = 1024;

pub struct Budget {
    room: Arc<Semaphore>,
    units: usize,
}

/// Bytes that are taken; given back when it is dropped.
#[derive(Debug)]
pub struct Room {
    of: Arc<Semaphore>,
    units: u32,
    bytes: usize,
}

impl Room {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes so many bytes more, if they are free.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let units = units_of(self.bytes + bytes);
        let Ok(permit) = self.of.try_acquire_many(units - self.units) else {
            return false;
        };
        permit.forget();
        (self.units, self.bytes) = (units, self.bytes + bytes);
        true
    }

    /// Gives so many bytes back.
    pub fn shrink(&mut self, bytes: usize) {
        let units = units_of(self.bytes - bytes);
        self.of.add_permits((self.units - units) as usize);
        (self.units, self.bytes) = (units, self.bytes - bytes);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.add_permits(self.units as usize);
    }
}

fn units_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// For what messages unpack to. What a stream holds for as long as it lasts is apart from what passes: nobody
/// who waits for room for a message waits for streams to end, his own included.
pub struct Unpacking {
    /// Schemas and dictionaries, for which nobody waits.
    pub held: Budget,
    pub passing: Budget,
}

impl Unpacking {
    pub fn new(bytes: usize) -> Self {
        Self {
            held: Budget::new(bytes / 2),
            passing: Budget::new(bytes / 2),
        }
    }
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(1, u32::MAX as usize);
        Self {
            room: Arc::new(Semaphore::new(units)),
            units,
        }
    }

    pub fn bytes(&self) -> usize {
        self.units * UNIT
    }

    pub fn free_bytes(&self) -> usize {
        self.room.available_permits() * UNIT
    }

    /// Waits its turn. Who asks for more than there will ever be gets all of it.
    pub async fn reserve(&self, bytes: usize) -> Option<Room> {
        let units = units_of(bytes).min(self.units as u32);
        self.room.acquire_many(units).await.ok()?.forget();
        Some(self.taken(units, bytes))
    }

    pub fn try_reserve(&self, bytes: usize) -> Option<Room> {
        let units = units_of(bytes);
        self.room.try_acquire_many(units).ok()?.forget();
        Some(self.taken(units, bytes))
    }

    /// A room of no bytes, which may grow.
    pub fn nothing(&self) -> Room {
        self.taken(0, 0)
    }

    fn taken(&self, units: u32, bytes: usize) -> Room {
        Room {
            of: Arc::clone(&self.room),
            units,
            bytes,
        }
    }
}

/// For messages of which a part has come. Those who each have a part would wait for each other, so one at a time
/// may go on without room.
pub struct Parts {
    room: Budget,
    turn: Arc<Semaphore>,
}

/// What lets somebody go on.
#[derive(Debug)]
pub enum Part {
    /// There is room for more of the message.
    Room(Room),
    /// The whole message may come, whether there is room or not.
    Turn(OwnedSemaphorePermit),
}

impl Parts {
    pub fn new(bytes: usize) -> Self {
        Self {
            room: Budget::new(bytes),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    pub fn free_bytes(&self) -> usize {
        self.room.free_bytes()
    }

    pub fn try_reserve(&self, bytes: usize) -> Option<Room> {
        self.room.try_reserve(bytes)
    }

    pub async fn reserve(&self, bytes: usize) -> Option<Part> {
        if let Some(room) = self.room.try_reserve(bytes) {
            return Some(Part::Room(room));
        }
        tokio::select! {
            room = self.room.reserve(bytes) => room.map(Part::Room),
            turn = Arc::clone(&self.turn).acquire_owned() => turn.ok().map(Part::Turn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_given_back() {
        let budget = Arc::new(Budget::new(10 * UNIT));
        let taken = budget.reserve(6 * UNIT).await;
        assert!(budget.try_reserve(5 * UNIT).is_none());
        let waits = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.reserve(usize::MAX).await.map(|room| room.bytes()) }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(taken);
        assert_eq!(waits.await.unwrap(), Some(usize::MAX));
        assert_eq!(budget.free_bytes(), 10 * UNIT);
    }
}
