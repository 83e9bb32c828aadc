//! Events that occur once per segment or less often, as Python takes them from the queue.

use std::collections::BTreeMap;

use headrace_core::Segment;
use headrace_server::control::Question;
use pyo3::prelude::*;

use crate::questions::question_object;

/// An entry of the queue.
pub enum Event {
    Log(headrace_core::Event),
    Question(Question),
}

impl Event {
    /// The object that Python gets.
    pub fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Event::Log(headrace_core::Event::Sealed(segment)) => {
                Ok(Py::new(py, SealedSegment::new(segment))?.into_any())
            }
            Event::Log(headrace_core::Event::Failed(reason)) => {
                Ok(Py::new(py, LogFailed { reason })?.into_any())
            }
            Event::Log(headrace_core::Event::Failing(reason)) => {
                Ok(Py::new(py, LogFailing { reason })?.into_any())
            }
            Event::Question(question) => question_object(py, question),
        }
    }
}

/// A segment file that is not written any more.
#[pyclass(frozen, get_all)]
pub struct SealedSegment {
    term: u64,
    number: u64,
    first_lsn: u64,
    reserved_until: u64,
    previous_length: u64,
    nonce: u64,
    length: u64,
    last_lsn: u64,
    last_lsns: BTreeMap<String, u64>,
    first_accepted_us: Option<u64>,
    has_state: bool,
}

impl SealedSegment {
    fn new(segment: Segment) -> SealedSegment {
        let header = segment.header;
        SealedSegment {
            term: header.term,
            number: header.number,
            first_lsn: header.first_lsn,
            reserved_until: header.reserved_until,
            previous_length: header.previous_length,
            nonce: header.nonce,
            length: segment.length,
            last_lsn: segment.last_lsn,
            last_lsns: segment
                .last_lsns
                .iter()
                .map(|(name, lsn)| (name.to_string(), *lsn))
                .collect(),
            first_accepted_us: segment.first_accepted_us,
            has_state: segment.has_state,
        }
    }
}

/// The disk refuses writes, for this reason; or takes them again.
#[pyclass(frozen, get_all)]
pub struct LogFailing {
    reason: Option<String>,
}

/// Nothing will be written to the log any more.
#[pyclass(frozen, get_all)]
pub struct LogFailed {
    reason: String,
}
