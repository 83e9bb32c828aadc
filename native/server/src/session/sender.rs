//! Tells the client of one session how far its writes have come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headrace_core::{Announcement, DurableRange, Stream, Tier};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::greeting;
use crate::acks::{AckEncoder, Notice, metadata_frame};
use crate::port::outbox::{Gone, Outbox};

/// News of a tier gathers for a moment, or until there is something to go with. A write's first acknowledgement
/// does not wait.
const UPDATE_LINGER: Duration = Duration::from_millis(1);
/// A client that asks for watermarks writes in bulk; with a hundred such clients each message less counts.
const WATERMARK_LINGER: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// Ends by itself when everything is announced.
    Finishing,
    /// Announces what there is to announce, and ends.
    Stopping,
}

/// The task that sends acknowledgements, as who reads the stream sees it. Dropped, it stops.
pub struct AckSender {
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<bool>>,
}

struct Shared {
    stream: Arc<Stream>,
    by_watermark: bool,
    statuses: Mutex<VecDeque<Vec<u8>>>,
    phase: watch::Sender<Phase>,
    /// Once it has ended: whether all was sent.
    ended: watch::Sender<Option<bool>>,
}

impl AckSender {
    pub fn new(stream: Arc<Stream>, by_watermark: bool) -> Self {
        let (sender, ended) = watch::channel(None);
        let shared = Shared {
            stream,
            by_watermark,
            statuses: Mutex::default(),
            phase: watch::channel(Phase::Running).0,
            ended: sender,
        };
        Self {
            shared: Arc::new(shared),
            ended,
        }
    }

    pub fn start(&self, outbox: Arc<tokio::sync::Mutex<Outbox>>) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut outbox = outbox.lock_owned().await;
            let sent = Sending {
                shared: &shared,
                outbox: &mut outbox,
                encoder: AckEncoder::default(),
            };
            // A panic in it counts as not sent.
            let ended = Ended(&shared.ended);
            let is_sent = sent.run().await.is_ok();
            drop(outbox);
            ended.0.send_replace(Some(is_sent));
        });
    }

    /// Sends a message without a batch.
    pub fn say(&self, status: Vec<u8>) {
        self.shared.statuses.lock().push_back(status);
        self.shared.stream.wake();
    }

    pub fn finish(&self) {
        self.shared.enter(Phase::Finishing);
    }

    pub fn stop(&self) {
        self.shared.enter(Phase::Stopping);
    }

    /// Waits until it has ended, and says whether all was sent.
    pub async fn ended(&self) -> bool {
        let mut ended = self.ended.clone();
        ended
            .wait_for(Option::is_some)
            .await
            .is_ok_and(|ended| *ended == Some(true))
    }

    /// Waits until the client has gone away.
    pub async fn broken(&self) {
        let mut ended = self.ended.clone();
        // It cannot be dropped before that: it is here.
        let _ = ended.wait_for(|ended| *ended == Some(false)).await;
    }
}

impl Drop for AckSender {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
        self.stream.wake();
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}

/// Says at the latest when it is dropped that the sender has ended.
struct Ended<'a>(&'a watch::Sender<Option<bool>>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.send_if_modified(|ended| {
            let is_news = ended.is_none();
            ended.get_or_insert(false);
            is_news
        });
    }
}

struct Sending<'a> {
    shared: &'a Shared,
    outbox: &'a mut Outbox,
    encoder: AckEncoder,
}

impl Sending<'_> {
    async fn run(mut self) -> Result<(), Gone> {
        let stream = &self.shared.stream;
        loop {
            let news = tokio::select! {
                news = stream.news() => news,
                () = self.outbox.gone() => return Err(Gone),
            };
            if self.shared.by_watermark && self.shared.phase() != Phase::Stopping {
                tokio::time::sleep(WATERMARK_LINGER).await;
            } else if !news.hurry {
                let _ = tokio::time::timeout(UPDATE_LINGER, stream.hurried()).await;
            }
            let phase = self.shared.phase();
            while self.announce().await? {}
            if phase == Phase::Stopping || (phase == Phase::Finishing && stream.is_done()) {
                return Ok(());
            }
        }
    }

    /// Sends what there is, and says whether there may be more.
    async fn announce(&mut self) -> Result<bool, Gone> {
        loop {
            let status = self.shared.statuses.lock().pop_front();
            let Some(status) = status else { break };
            self.outbox.send(metadata_frame(&status)).await?;
        }
        let Announcement {
            notices,
            assigned,
            since,
            more,
            ..
        } = self.shared.stream.announce();
        let (committed, plain): (Vec<Notice>, Vec<Notice>) = notices
            .into_iter()
            .partition(|(tier, _)| *tier == Tier::Committed);
        let metadata = if assigned.is_empty() {
            Vec::new()
        } else {
            greeting::assigned(&assigned)
        };
        let begins_in_memory = plain.first().is_some_and(|(tier, _)| *tier == Tier::Memory);
        if begins_in_memory {
            self.outbox
                .send(self.encoder.frame(&plain, &metadata))
                .await?;
        } else {
            if !metadata.is_empty() {
                self.outbox.send(metadata_frame(&metadata)).await?;
            }
            if !plain.is_empty() {
                self.outbox.send(self.encoder.frame(&plain, b"")).await?;
            }
        }
        for (_, reached) in committed {
            self.announce_committed(reached).await?;
        }
        self.shared.stream.announced(since);
        Ok(more)
    }

    /// One message for each snapshot.
    async fn announce_committed(&mut self, reached: Vec<DurableRange>) -> Result<(), Gone> {
        let mut by_snapshot: Vec<(Option<i64>, Vec<DurableRange>)> = Vec::new();
        for range in reached {
            match by_snapshot
                .iter_mut()
                .find(|(id, _)| *id == range.snapshot_id)
            {
                Some((_, ranges)) => ranges.push(range),
                None => by_snapshot.push((range.snapshot_id, vec![range])),
            }
        }
        for (id, ranges) in by_snapshot {
            let frame = self
                .encoder
                .frame(&[(Tier::Committed, ranges)], &greeting::snapshot(id));
            self.outbox.send(frame).await?;
        }
        Ok(())
    }
}
