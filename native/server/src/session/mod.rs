//! One stream of writes: reads messages, checks them, and hands them to the log. Another task sends the
//! acknowledgements, so that a client that does not read them holds up nobody but itself.

mod greeting;
mod path;
mod sender;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use arrow_flight::FlightData;
use bytes::Bytes;
use h2::RecvStream;
use headrace_core::{Appended, Message, Schema, StreamHandle, StreamOptions};
use http::Request;
use prost::Message as _;
use tokio::sync::Mutex;

use self::sender::AckSender;
use crate::access::{Identity, require_write};
use crate::acks::schema_frame;
use crate::admission::{Admission, Admitted, Arrived, Batch};
use crate::control::{Question, ask};
use crate::options::{Metadata, Numbering, Options};
use crate::port::Shared;
use crate::port::call::Caller;
use crate::port::inbox::{Ended, Inbox};
use crate::port::outbox::Outbox;
use crate::refusal::Refusal;

const ACCESS_AFTER: Duration = Duration::from_secs(1);
/// How long a refused stream's earlier writes are waited for, to be acknowledged before the error, if the disk may have
/// failed.
const SETTLE: Duration = Duration::from_secs(2);
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// So many messages are read without a break, before others of this thread have their turn.
const TURN: u64 = 64;

/// Returns when the client is done and everything has been announced to it, or else why the stream ended before.
pub async fn run(
    caller: Arc<Caller>,
    request: Request<RecvStream>,
    outbox: Arc<Mutex<Outbox>>,
) -> Result<(), Ended> {
    let server = Arc::clone(&caller.server);
    let (head, body) = request.into_parts();
    let mut inbox = Inbox::new(
        body,
        server.limits.message_bytes,
        Arc::clone(&caller.windows),
        Arc::clone(&server.parts),
    );
    let identity = inbox.hold(server.access.identify(&head.headers)).await?;
    // A thousand streams need not keep theirs.
    drop(head);
    let first = match inbox.next().await {
        Err(Ended::Done) => {
            Err(Refusal::config("the stream ended before its first message").into())
        }
        first => first,
    };
    let first = flight_data(first?)?;
    let collection = path::written_collection(first.flight_descriptor.as_ref())?;
    require_write(&identity, &collection)?;
    if let Some(refusal) = server.core.refusal() {
        return Err(Refusal::of_log(&refusal).into());
    }
    {
        let mut outbox = outbox.lock().await;
        let sent = inbox.hold(outbox.send(schema_frame())).await;
        sent.map_err(|_| Ended::Gone)?;
    }
    let admission = Admission::new(
        &collection,
        server.limits.message_bytes,
        Arc::clone(&server.unpacking),
    );
    let mut session = Session {
        server,
        collection,
        peer: caller.peer.clone(),
        identity,
        checked_at: Instant::now(),
        outbox,
        admission,
        opened: None,
        schema: None,
    };
    let read = session.read_all(inbox, first).await;
    let ended = match read {
        Err(Ended::Done) => session.finish().await,
        ended => ended,
    };
    session.settle(&ended).await;
    ended
}

struct Session {
    server: Arc<Shared>,
    collection: String,
    peer: String,
    identity: Identity,
    checked_at: Instant,
    outbox: Arc<Mutex<Outbox>>,
    admission: Admission,
    opened: Option<Opened>,
    schema: Option<Arc<Schema>>,
}

/// The parts of a session that exist once the client's options are known.
struct Opened {
    // In this order: what it has written is announced until the sender ends.
    sender: AckSender,
    stream: StreamHandle,
    options: Options,
}

impl Session {
    async fn read_all(&mut self, mut inbox: Inbox, first: FlightData) -> Result<(), Ended> {
        inbox.hold(self.take(first)).await?;
        let mut closing = self.server.closing.subscribe();
        for number in 1u64.. {
            if number.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            let message = tokio::select! {
                biased;
                message = inbox.next() => flight_data(message?)?,
                _ = closing.wait_for(|closing| *closing) => return Err(shutting_down().into()),
                refusal = broken_off(&self.opened) => return Err(Refusal::of_log(&refusal).into()),
            };
            if self.checked_at.elapsed() > ACCESS_AFTER {
                inbox.hold(self.check_access()).await?;
                self.checked_at = Instant::now();
            }
            inbox.hold(self.take(message)).await?;
            inbox.done();
            if self.must_wait() {
                inbox.hold(self.wait_for_room()).await?;
            }
        }
        Ok(())
    }

    /// A token may be taken back while its stream is open.
    async fn check_access(&self) -> Result<(), Refusal> {
        if self.server.access.is_current(&self.identity).await {
            return Ok(());
        }
        let name = self.identity.as_ref().map_or("", |token| &token.name);
        Err(Refusal::unauthenticated(format!(
            "token {} was changed or withdrawn: connect again",
            headrace_core::Quoted(name)
        )))
    }

    async fn take(&mut self, data: FlightData) -> Result<(), Ended> {
        // Some clients send the descriptor alone, before they know their schema.
        if data.data_header.is_empty() && data.app_metadata.is_empty() {
            return Ok(());
        }
        let arrived = Instant::now();
        let batch = if data.data_header.is_empty() {
            None
        } else {
            match self.admission.arrived(data.data_header, data.data_body)? {
                Arrived::Prelude => return Ok(()),
                Arrived::Batch(batch) => Some(batch),
            }
        };
        let metadata = Metadata::parse(&data.app_metadata)?;
        if self.opened.is_none() {
            let options = if metadata.has_options() {
                metadata.options()?
            } else {
                Options::default()
            };
            self.open(options).await?;
        } else if metadata.has_options() {
            return Err(Refusal::config(
                "options come with the first message of a stream, not with a later one",
            )
            .into());
        }
        match batch {
            None => Ok(()),
            Some(batch) => self.write(batch, &metadata, arrived).await,
        }
    }

    async fn open(&mut self, options: Options) -> Result<(), Refusal> {
        if options.resume_after.is_some() {
            let refused = self.server.core.refuse_resume();
            refused.map_err(|refusal| Refusal::of_log(&refusal))?;
        }
        let (stream, greeting) = self.server.core.open_stream(StreamOptions {
            collection: self.collection.as_str().into(),
            producer: options.producer.clone(),
            levels: options.levels,
            by_watermark: options.by_watermark,
            resume_after: options.resume_after,
            first_seq: options.first_seq,
            peer: self.peer.clone(),
        });
        let sender = AckSender::new(stream.share(), options.by_watermark);
        if options.is_given {
            let (collection, resume_after) = (self.collection.clone(), options.resume_after);
            let question = |answer| Question::Greet {
                collection,
                resume_after,
                answer,
            };
            let facts = ask(&*self.server.control, question).await?;
            sender.say(greeting::session(&self.collection, &greeting, &facts));
        }
        sender.start(Arc::clone(&self.outbox));
        self.opened = Some(Opened {
            sender,
            stream,
            options,
        });
        Ok(())
    }

    async fn write(
        &mut self,
        batch: Batch,
        metadata: &Metadata<'_>,
        arrived: Instant,
    ) -> Result<(), Ended> {
        let Some(opened) = &self.opened else {
            return Ok(());
        };
        let of_log = |refusal| Refusal::of_log(&refusal);
        opened
            .stream
            .refusal()
            .map_or(Ok(()), |refusal| Err(of_log(refusal)))?;
        let schema = match &self.schema {
            Some(schema) => Arc::clone(schema),
            None => {
                let collection = self.collection.clone();
                let schema = self.admission.schema_message()?;
                let producer = opened.options.producer.clone();
                let question = |answer| Question::Admit {
                    collection,
                    schema,
                    producer,
                    answer,
                };
                let plan = ask(&*self.server.control, question).await??;
                self.admission.follow(&plan)?;
                let schema = self.server.core.schema(&self.collection, &plan.kept_schema);
                Arc::clone(self.schema.insert(schema))
            }
        };
        let mut admitted = self.admission.admit(batch).await?;
        let mut numbering =
            metadata.numbering(admitted.rows, !opened.options.producer.is_empty())?;
        loop {
            let appended = append(&opened.stream, &schema, &admitted, &numbering, arrived);
            match appended.map_err(|refusal| Refusal::of_log(&refusal))? {
                Appended::Written { .. } | Appended::Duplicate => return Ok(()),
                Appended::Rest { known } => {
                    let rows = numbering.skip(known);
                    admitted = self.admission.without(&admitted, rows)?;
                }
                Appended::NoNumbers => self.room().await?,
            }
        }
    }

    fn must_wait(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.stream.must_wait().is_some())
    }

    /// No message is read meanwhile, so gRPC's flow control stops the client.
    async fn wait_for_room(&self) -> Result<(), Ended> {
        let Some(Opened {
            sender,
            stream,
            options,
        }) = &self.opened
        else {
            return Ok(());
        };
        let Some(reason) = stream.must_wait() else {
            return Ok(());
        };
        let say = |throttled: Option<&str>| {
            if options.is_given {
                sender.say(greeting::throttled(throttled));
            }
        };
        stream.set_throttled(Some(Arc::clone(&reason)));
        say(Some(&reason));
        self.room().await?;
        stream.set_throttled(None);
        say(None);
        Ok(())
    }

    /// Waits until the stream may be read, and ends where the client has gone meanwhile.
    async fn room(&self) -> Result<(), Ended> {
        let Some(Opened { sender, stream, .. }) = &self.opened else {
            return Ok(());
        };
        tokio::select! {
            room = stream.room() => {
                room.map_err(|refusal| Refusal::of_log(&refusal).into())
            }
            () = sender.broken() => Err(Ended::Gone),
        }
    }

    /// Announces the rest to a client that is done writing.
    async fn finish(&self) -> Result<(), Ended> {
        let Some(Opened { sender, stream, .. }) = &self.opened else {
            return Ok(());
        };
        sender.finish();
        let mut closing = self.server.closing.subscribe();
        loop {
            tokio::select! {
                is_sent = sender.ended() => return if is_sent { Ok(()) } else { Err(Ended::Gone) },
                _ = closing.wait_for(|closing| *closing) => return Err(shutting_down().into()),
                () = tokio::time::sleep(LOOK_AFTER) => {
                    // Refusals that only concern clients that still write do not matter here.
                    match stream.broken_off().or_else(|| self.server.core.refusal()) {
                        None | Some(headrace_core::Refusal::StorageFull(_)) => {}
                        Some(refusal) => return Err(Refusal::of_log(&refusal).into()),
                    }
                }
            }
        }
    }

    /// Before an error: what has an LSN is acknowledged, on the disk too if that is quick.
    async fn settle(&self, ended: &Result<(), Ended>) {
        let Some(Opened { sender, stream, .. }) = &self.opened else {
            return self.server.ended_unopened(ended);
        };
        match ended {
            Ok(()) | Err(Ended::Done) => {}
            Err(Ended::Gone) => {
                stream.counters.disconnects.fetch_add(1, Relaxed);
            }
            Err(Ended::Refused(_)) => {
                stream.counters.refused.fetch_add(1, Relaxed);
                tokio::select! {
                    () = self.synced(stream) => {}
                    () = sender.broken() => {}
                }
            }
        }
        sender.stop();
        sender.ended().await;
    }
}

impl Session {
    /// Waits until what has an LSN is synced, however slow the disk is, so that an error overtakes no acknowledgement.
    /// A server that takes nothing more is waited for only a while.
    async fn synced(&self, stream: &StreamHandle) {
        let advances = self.server.core.advances();
        let mut given_up_at = None;
        let mut seen = advances.number();
        while !stream.is_synced() {
            if self.server.core.refusal().is_some() {
                let now = Instant::now();
                if now >= *given_up_at.get_or_insert(now + SETTLE) {
                    return;
                }
            }
            // Also if nothing advances, since the server may begin to refuse meanwhile.
            let _ = tokio::time::timeout(LOOK_AFTER, advances.above(seen)).await;
            seen = advances.number();
        }
    }
}

/// Waits until the stream is broken off: a client that only waits for acknowledgements sends nothing that could be
/// refused.
async fn broken_off(opened: &Option<Opened>) -> headrace_core::Refusal {
    match opened {
        Some(opened) => opened.stream.breaking_off().await,
        None => std::future::pending().await,
    }
}

fn append(
    stream: &StreamHandle,
    schema: &Arc<Schema>,
    admitted: &Admitted,
    numbering: &Numbering,
    arrived: Instant,
) -> Result<Appended, headrace_core::Refusal> {
    stream.append(&Message {
        schema,
        pieces: &[&admitted.front, &admitted.body],
        seq: numbering.seq,
        rows: numbering.rows.as_deref(),
        row_count: admitted.rows as u64,
        size: admitted.size as u64,
        arrived,
    })
}

fn flight_data(message: Bytes) -> Result<FlightData, Refusal> {
    FlightData::decode(message).map_err(|error| {
        let problem = error.to_string();
        // The only text that a message has is in the descriptor.
        Refusal::config(if problem.contains("UTF-8") {
            "the descriptor's path is not UTF-8".to_owned()
        } else {
            format!("a message cannot be read as Flight's: {problem}")
        })
    })
}

fn shutting_down() -> Refusal {
    Refusal::unavailable("the server is shutting down")
}
