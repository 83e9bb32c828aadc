//! Checks the messages of one stream before they get an LSN. A message that can be stored as it is goes to the log
//! byte for byte; any other is cast into the schema with which the collection stores it.

mod arrays;
mod cast;
mod check;
mod claims;
mod layout;
mod message;
mod names;
mod problem;
mod unpack;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{MessageHeader, MetadataVersion};
use bytes::Bytes;

use self::check::Dictionaries;
use self::layout::{Columns, DictionaryLayout, is_same};
use self::message::{Parts, encapsulated, unreadable};
use crate::budget::{Room, Unpacking};
use crate::control::Plan;
use crate::refusal::Refusal;

pub use self::message::metadata_of;
pub use self::problem::Problem;

/// Added to the size of each message: what it takes besides its data.
const MESSAGE_BYTES: usize = 1024;
const ALIGNMENT: usize = 8;
/// Limits the flatbuffer of a schema, with all metadata that its client has for it,
const MOST_SCHEMA_BYTES: usize = 16 << 20;
/// and that of a batch, which has a few numbers for each column.
const MOST_HEADER_BYTES: usize = 4 << 20;

/// A message that may have an LSN, as the log keeps it: an encapsulated Arrow message in two parts.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub front: Bytes,
    pub body: Bytes,
    pub rows: usize,
    /// The memory that it takes.
    pub size: usize,
}

/// The Arrow content of a FlightData message.
#[derive(Debug)]
pub enum Arrived {
    /// A schema or a dictionary, which concerns what comes after it.
    Prelude,
    Batch(Batch),
}

/// A batch whose flatbuffer has been read, and nothing else.
#[derive(Debug)]
pub struct Batch {
    header: Bytes,
    body: Bytes,
}

/// The schema, the dictionaries and the plan of one stream.
pub struct Admission {
    collection: String,
    most_bytes: usize,
    room: Arc<Unpacking>,
    schema: Option<(Bytes, Columns)>,
    dictionaries: Dictionaries,
    schema_room: Option<Room>,
    /// The part of the budget that each dictionary takes, with everything that was added to it.
    dictionary_rooms: HashMap<i64, Vec<Room>>,
    plan: Option<Planned>,
}

/// What became of a batch that cannot be kept as it came.
enum Adapted {
    Kept(Admitted),
    /// Once it is cast it takes more than was reserved: so much. Nothing has been copied.
    Needs(usize),
}

/// A plan, as far as it can be worked out once for all batches.
struct Planned {
    kept: Columns,
    required: Vec<usize>,
    is_as_kept: bool,
}

impl Admission {
    pub fn new(collection: &str, most_bytes: usize, room: Arc<Unpacking>) -> Self {
        Self {
            collection: collection.to_owned(),
            most_bytes,
            room,
            schema: None,
            dictionaries: Dictionaries::new(),
            schema_room: None,
            dictionary_rooms: HashMap::new(),
            plan: None,
        }
    }

    /// Takes what comes before batches; a batch is given back, to be admitted once there is a plan.
    pub fn arrived(&mut self, header: Bytes, body: Bytes) -> Result<Arrived, Refusal> {
        self.sort(header, body)
            .map_err(|problem| problem.refusal(&self.collection))
    }

    /// The schema as an encapsulated message, for who decides on it.
    pub fn schema_message(&self) -> Result<Bytes, Refusal> {
        let no_schema = || unreadable("a batch came before its schema").refusal(&self.collection);
        self.schema
            .as_ref()
            .map(|(message, _)| message.clone())
            .ok_or_else(no_schema)
    }

    pub fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    /// How the stream's batches are kept, which its schema alone decides.
    pub fn follow(&mut self, plan: &Plan) -> Result<(), Refusal> {
        let planned = self
            .planned(plan)
            .map_err(|problem| problem.refusal(&self.collection))?;
        self.plan = Some(planned);
        Ok(())
    }

    /// The batch as the log keeps it. Waits for room if it has to be unpacked.
    pub async fn admit(&self, batch: Batch) -> Result<Admitted, Refusal> {
        self.take(batch)
            .await
            .map_err(|problem| problem.refusal(&self.collection))
    }

    /// Returns a message without its first rows, which had been written before.
    pub fn without(&self, admitted: &Admitted, rows: usize) -> Result<Admitted, Refusal> {
        self.cut(admitted, rows)
            .map_err(|problem| problem.refusal(&self.collection))
    }

    fn cut(&self, admitted: &Admitted, rows: usize) -> Result<Admitted, Problem> {
        let Some(plan) = &self.plan else {
            return Err(unreadable("its schema has not been decided on"));
        };
        let message = message::open(metadata_of(&admitted.front)?)?;
        let batch = message.header_as_record_batch();
        let batch = batch.ok_or_else(|| unreadable("its batch is missing"))?;
        let parts = Parts::new(batch, &admitted.body)?;
        let columns =
            arrays::arrays(&plan.kept.layouts, &parts, &self.dictionaries).map_err(malformed)?;
        let options = RecordBatchOptions::new().with_row_count(Some(parts.rows));
        let schema = Arc::clone(&plan.kept.schema);
        let batch =
            RecordBatch::try_new_with_options(schema, columns, &options).map_err(malformed)?;
        let left = parts.rows.saturating_sub(rows);
        let (front, body) = encoded(&batch.slice(parts.rows - left, left))?;
        Ok(Admitted {
            front,
            body,
            rows: left,
            size: admitted.size,
        })
    }

    fn sort(&mut self, header: Bytes, body: Bytes) -> Result<Arrived, Problem> {
        refuse_header(header.len(), MOST_SCHEMA_BYTES)?;
        let message = message::open(&header)?;
        if message.header_type() != MessageHeader::Schema {
            refuse_header(header.len(), MOST_HEADER_BYTES)?;
        }
        match message.header_type() {
            MessageHeader::Schema if self.schema.is_none() => {
                let room = self.room.held.try_reserve(header.len().saturating_mul(4));
                self.schema_room = Some(room.ok_or(Problem::NoRoom)?);
                let columns = Columns::read(&header)?;
                self.schema = Some((encapsulated(&header), columns));
                Ok(Arrived::Prelude)
            }
            MessageHeader::Schema => Err(unreadable("the schema came a second time")),
            MessageHeader::DictionaryBatch => {
                self.take_dictionary(&header, &body)?;
                Ok(Arrived::Prelude)
            }
            MessageHeader::RecordBatch => Ok(Arrived::Batch(Batch { header, body })),
            _ => Err(unreadable("it is neither a schema nor a batch")),
        }
    }

    fn planned(&self, plan: &Plan) -> Result<Planned, Problem> {
        let sent = self.columns()?;
        let kept = Columns::read_encapsulated(&plan.kept_schema)?;
        if sent.layouts.len() != kept.layouts.len() {
            return Err(unreadable(
                "its schema has other columns than the one that is kept",
            ));
        }
        let mut pairs = sent.schema.fields().iter().zip(kept.schema.fields());
        let is_as_kept = pairs.all(|(field, kept)| is_same(field.data_type(), kept.data_type()));
        let mut required = plan.required.clone();
        if !is_as_kept {
            // A cast refuses what its schema does not allow; what is kept as it came is as its client says.
            let fields = kept.schema.fields().iter().enumerate();
            required.extend(
                fields.filter_map(|(index, field)| (!field.is_nullable()).then_some(index)),
            );
        }
        Ok(Planned {
            kept,
            required,
            is_as_kept,
        })
    }

    fn columns(&self) -> Result<&Columns, Problem> {
        let schema = self.schema.as_ref().map(|(_, columns)| columns);
        schema.ok_or_else(|| unreadable("a batch came before its schema"))
    }

    async fn take(&self, batch: Batch) -> Result<Admitted, Problem> {
        let columns = self.columns()?;
        let Some(plan) = &self.plan else {
            return Err(unreadable("its schema has not been decided on"));
        };
        let message = message::open(&batch.header)?;
        let body = message::own_body(&message, &batch.body)?;
        let parts = match message.header_as_record_batch() {
            Some(record_batch) => Parts::new(record_batch, &body)?,
            None => return Err(unreadable("its batch is missing")),
        };
        let claimed = unpack::claimed_bytes(&parts)?.saturating_add(self.dictionary_bytes());
        self.refuse_size("a message has", claimed as u128)?;
        if parts.rows == 0 {
            return Err(Problem::Empty);
        }
        // Metadata of its own is left out of the log, and Arrow's reader is particular about it.
        let is_bare = message.custom_metadata().is_none();
        if plan.is_as_kept && parts.is_plain && is_bare {
            check::check(&columns.layouts, &parts, &self.dictionaries)?;
            plan.refuse_nulls(&parts)?;
            let front = encapsulated(&batch.header);
            let size = claimed.max(body.len()) + MESSAGE_BYTES;
            return Ok(Admitted {
                front,
                body,
                rows: parts.rows,
                size,
            });
        }
        let mut room = claimed
            .saturating_mul(3)
            .saturating_add(plan.fixed_bytes(parts.rows));
        loop {
            room = room.min(4 * self.most_bytes);
            let _room = self.room.passing.reserve(room).await;
            match heavy(room, || self.adapt(columns, plan, &parts, claimed, room))? {
                Adapted::Kept(admitted) => return Ok(admitted),
                Adapted::Needs(bytes) => room = bytes,
            }
        }
    }

    fn adapt(
        &self,
        columns: &Columns,
        plan: &Planned,
        parts: &Parts,
        claimed: usize,
        room: usize,
    ) -> Result<Adapted, Problem> {
        let parts = unpack::unpacked(parts.clone())?;
        check::check(&columns.layouts, &parts, &self.dictionaries)?;
        let arrays =
            arrays::arrays(&columns.layouts, &parts, &self.dictionaries).map_err(malformed)?;
        let kinds = plan
            .kept
            .schema
            .fields()
            .iter()
            .map(|field| field.data_type());
        let size = claims::kept_bytes(arrays.iter().zip(kinds));
        self.refuse_size("with a copy of its value for each row a message has", size)?;
        // As it came, as it is cast, and as it is written down.
        let needed = claimed.saturating_add(2 * size as usize);
        if needed > room {
            return Ok(Adapted::Needs(needed));
        }
        let kept = plan.cast(columns, &arrays)?;
        let options = RecordBatchOptions::new().with_row_count(Some(parts.rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&plan.kept.schema), kept, &options)
                .map_err(malformed)?;
        let (front, body) = encoded(&batch)?;
        self.refuse_size("as it is kept a message has", body.len() as u128)?;
        let size = claimed.max(body.len()) + MESSAGE_BYTES;
        Ok(Adapted::Kept(Admitted {
            front,
            body,
            rows: parts.rows,
            size,
        }))
    }

    fn take_dictionary(&mut self, header: &Bytes, body: &Bytes) -> Result<(), Problem> {
        let message = message::open(header)?;
        let body = message::own_body(&message, body)?;
        let batch = message.header_as_dictionary_batch();
        let batch = batch.ok_or_else(|| unreadable("its dictionary is missing"))?;
        let data = batch
            .data()
            .ok_or_else(|| unreadable("its dictionary has no data"))?;
        let known = self.columns()?.dictionary(batch.id()).cloned();
        let layout = known.ok_or_else(|| unreadable("a dictionary is of no column"))?;
        let parts = Parts::new(data, &body)?;
        let claimed = unpack::claimed_bytes(&parts)?;
        if !batch.isDelta() {
            self.dictionary_rooms.remove(&layout.id);
        }
        let total = self.dictionary_bytes().saturating_add(claimed);
        self.refuse_size("a message has", total as u128)?;
        // Held as long as the stream, so no stream waits for it: two that wait for each other would never continue.
        let room = self.room.held.try_reserve(claimed).ok_or(Problem::NoRoom)?;
        let values = heavy(claimed, || self.dictionary_values(&layout, parts))?;
        let values = match self.dictionaries.get(&layout.id) {
            Some(_) if batch.isDelta() && values.is_empty() => return Ok(()),
            Some(before) if batch.isDelta() => {
                let both = || arrow_select::concat::concat(&[before, &values]);
                heavy(total, both).map_err(malformed)?
            }
            None if batch.isDelta() => {
                return Err(unreadable(
                    "a dictionary should grow that has not been sent",
                ));
            }
            _ => values,
        };
        self.dictionaries.insert(layout.id, values);
        self.dictionary_rooms
            .entry(layout.id)
            .or_default()
            .push(room);
        Ok(())
    }

    fn dictionary_bytes(&self) -> usize {
        self.dictionary_rooms
            .values()
            .flatten()
            .map(Room::bytes)
            .sum()
    }

    fn dictionary_values(
        &self,
        layout: &DictionaryLayout,
        parts: Parts,
    ) -> Result<ArrayRef, Problem> {
        let parts = unpack::unpacked(parts)?;
        let layouts = std::slice::from_ref(&layout.values);
        check::check(layouts, &parts, &self.dictionaries)?;
        let mut arrays = arrays::arrays(layouts, &parts, &self.dictionaries).map_err(malformed)?;
        arrays
            .pop()
            .ok_or_else(|| unreadable("its dictionary has no values"))
    }

    fn refuse_size(&self, what: &'static str, size: u128) -> Result<(), Problem> {
        let most = self.most_bytes;
        if size > most as u128 {
            Err(Problem::TooLarge { what, size, most })
        } else {
            Ok(())
        }
    }
}

impl Planned {
    /// About what so many rows take, cast and written down, besides what they claim.
    fn fixed_bytes(&self, rows: usize) -> usize {
        rows.saturating_mul(self.kept.layouts.len() * 32)
    }

    fn cast(&self, sent: &Columns, arrays: &[ArrayRef]) -> Result<Vec<ArrayRef>, Problem> {
        let columns = arrays
            .iter()
            .zip(sent.schema.fields())
            .zip(self.kept.schema.fields());
        let columns = columns.map(|((array, sent), kept)| {
            cast::cast(array, kept.data_type()).map_err(|reason| Problem::Lossy {
                column: kept.name().clone(),
                kept: names::type_name(kept.data_type()),
                sent: names::type_name(sent.data_type()),
                reason,
            })
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        for &index in &self.required {
            if columns
                .get(index)
                .is_some_and(|column| column.null_count() > 0)
            {
                return Err(Problem::Null(self.kept.schema.field(index).name().clone()));
            }
        }
        Ok(columns)
    }

    /// Refuses nulls in required columns of a batch that is stored as it came.
    fn refuse_nulls(&self, parts: &Parts) -> Result<(), Problem> {
        if self.required.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        for (index, layout) in self.kept.layouts.iter().enumerate() {
            let node = parts.nodes.get(at);
            if self.required.contains(&index) && node.is_some_and(|node| node.nulls > 0) {
                return Err(Problem::Null(self.kept.schema.field(index).name().clone()));
            }
            at += layout.arrays();
        }
        Ok(())
    }
}

fn refuse_header(size: usize, most: usize) -> Result<(), Problem> {
    let what = "what describes a message has";
    if size > most {
        return Err(Problem::TooLarge {
            what,
            size: size as u128,
            most,
        });
    }
    Ok(())
}

/// A batch of a kept schema as an encapsulated message, in front and body.
fn encoded(batch: &RecordBatch) -> Result<(Bytes, Bytes), Problem> {
    let options =
        IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5).map_err(malformed)?;
    let mut dictionaries = DictionaryTracker::new(false);
    let mut context = IpcWriteContext::default();
    let (_, data) = IpcDataGenerator::default()
        .encode(batch, &mut dictionaries, &options, &mut context)
        .map_err(malformed)?;
    Ok((
        encapsulated(&data.ipc_message),
        Bytes::from(data.arrow_data),
    ))
}

fn malformed(error: arrow_schema::ArrowError) -> Problem {
    Problem::Malformed(error.to_string())
}

/// Does what takes long where it holds up no other stream of this thread.
fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    const LONG: usize = 1 << 20;
    let can_move = tokio::runtime::Handle::try_current()
        .is_ok_and(|of| of.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    if bytes > LONG && can_move {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests;
