//! The extension module `headrace._native`, which makes the other crates callable from Python.
//!
//! Every wait is without the interpreter's lock. What the log and the port have to say or to ask comes out of one
//! queue, [`log::Log::next_event`], which one thread of Python reads.

mod events;
mod load;
mod log;
mod port;
mod questions;
mod seeded;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::events::{LogFailed, LogFailing, SealedSegment};
    #[pymodule_export]
    use super::load::{Load, serve_floor};
    #[pymodule_export]
    use super::log::{Log, LogHealth, StreamDescription, StreamStatistics};
    #[pymodule_export]
    use super::port::Port;
    #[pymodule_export]
    use super::questions::{AdmitQuestion, GreetQuestion, TokensQuestion};
}
