//! How the log's thread begins a segment and ends the one before.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::events::{Event, Segment, segment_name};
use crate::files::SegmentFile;
use crate::format::{self, SegmentHeader};
use crate::state::Forgotten;
use crate::writer::LogWriter;

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub file: Box<dyn SegmentFile>,
    pub header: SegmentHeader,
    /// How much of it is synced.
    pub durable: u64,
    /// The number of each schema that it has named.
    pub schemas: HashMap<u64, u32>,
    pub first_accepted_us: Option<u64>,
    last_lsns: BTreeMap<Arc<str>, u64>,
    has_state: bool,
}

impl OpenSegment {
    pub fn wrote(&mut self, collection: &Arc<str>, last_lsn: u64, accepted_us: u64) {
        match self.last_lsns.get_mut(collection) {
            Some(known) => *known = last_lsn,
            None => {
                self.last_lsns.insert(collection.clone(), last_lsn);
            }
        }
        self.first_accepted_us.get_or_insert(accepted_us);
    }
}

impl LogWriter {
    /// Ends the current segment; it is handed on once the header of the next one says where it ends.
    pub fn begin_segment(&mut self) -> io::Result<()> {
        self.end_segment();
        let mut state = self.shared.state.lock();
        state.uptime_us = self.shared.uptime_us();
        let header = SegmentHeader {
            term: self.term,
            number: self.number,
            first_lsn: state.last_lsn + 1,
            reserved_until: state.reserved_until,
            previous_length: self.previous_length,
            nonce: nonce()?,
        };
        let share = self.shared.sequencer.limits.state_share;
        let has_state = self
            .since_state
            .is_none_or(|bytes| bytes >= share * state.about_bytes());
        let forgotten = if has_state {
            state.silent()
        } else {
            Forgotten::default()
        };
        let mut data = Vec::new();
        header.encode(&mut data);
        if has_state {
            format::state(&mut data, |out| state.encode(&forgotten, out));
        }
        drop(state);
        let mut file = self
            .files
            .create(&self.folder.join(segment_name(self.number)))?;
        file.write(&data)?;
        file.sync()?;
        self.files.sync_folder(&self.folder)?;
        self.shared.state.lock().forget(&forgotten);
        let durable = data.len() as u64;
        self.open = Some(OpenSegment {
            file,
            header,
            durable,
            schemas: HashMap::new(),
            first_accepted_us: None,
            last_lsns: BTreeMap::new(),
            has_state,
        });
        self.first_write_at = None;
        self.shared.first_accepted_us.store(0, Relaxed);
        self.since_state = if has_state { Some(0) } else { self.since_state };
        self.shared.sequencer.state.lock().seal_wanted = false;
        // First: whoever reads the log finds the segment before it among the parts until it is taken.
        self.shared.parts.begin(self.number, durable);
        if let Some(sealed) = self.unannounced.take() {
            (self.on_event)(Event::Sealed(sealed));
        }
        Ok(())
    }

    /// Gives up the open segment after a failure. What was not synced is written again elsewhere, and on a full disk
    /// its room is needed.
    pub fn give_up_segment(&mut self) {
        if let Some(open) = &mut self.open {
            let _ = open.file.truncate(open.durable); // if that fails too, the next header says what counts
            self.end_segment();
        }
    }

    fn end_segment(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.unannounced = Some(Segment {
            length: open.durable,
            last_lsn: self.shared.state.lock().last_lsn,
            last_lsns: open.last_lsns,
            first_accepted_us: open.first_accepted_us,
            has_state: open.has_state,
            header: open.header,
        });
        self.previous_length = open.durable;
        self.number += 1;
    }
}

fn nonce() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(u64::from_le_bytes(bytes))
}
