//! The port, as Python opens it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use headrace_server::control::{Control, Question};
use headrace_server::port::{Limits, acceptor};
use headrace_server::server::{Config, Server};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::events::Event;
use crate::log::{Log, seconds};
use crate::questions::{TokenRow, read_tokens};

/// Puts the questions of a port into the queue of its log.
struct Asking(Mutex<Sender<Event>>);

impl Control for Asking {
    fn ask(&self, question: Question) {
        let _ = self.0.lock().send(Event::Question(question)); // dropped, and so refused, when nobody listens
    }
}

/// Where and how a port listens.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PortConfig {
    host: String,
    port: u16,
    /// A certificate and its key, in PEM.
    tls: Option<(Vec<u8>, Vec<u8>)>,
    tokens: Option<Vec<TokenRow>>,
    others: PathBuf,
    message_bytes: usize,
    receive_bytes: usize,
    connections: usize,
}

/// A port that is open from when it is made until it is stopped.
#[pyclass(frozen)]
pub struct Port(Server);

#[pymethods]
impl Port {
    #[new]
    fn open(py: Python<'_>, log: &Log, config: PortConfig) -> PyResult<Port> {
        let tls = config
            .tls
            .map(|(certificate, key)| acceptor(&certificate, &key))
            .transpose();
        let config = Config {
            host: config.host,
            port: config.port,
            tls: tls.map_err(|error| PyValueError::new_err(error.to_string()))?,
            tokens: config.tokens.map(read_tokens).transpose()?,
            limits: Limits {
                message_bytes: config.message_bytes,
                receive_bytes: config.receive_bytes,
                connections: config.connections,
                ..Limits::default()
            },
            others: config.others,
            threads: 0,
        };
        let (core, asking) = (
            Arc::clone(&log.core),
            Asking(Mutex::new(log.sender.clone())),
        );
        py.detach(|| Server::start(config, core, Arc::new(asking)))
            .map(Port)
            .map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))
    }

    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    fn set_serving(&self, is_serving: bool) {
        self.0.set_serving(is_serving);
    }

    /// Takes no calls any more, and hangs up on who does not hear of it in time.
    fn stop(&self, py: Python<'_>, timeout: f64) {
        py.detach(|| self.0.stop(seconds(timeout)));
    }

    /// Returns whether connections are taken, and how many seconds ago there was a sign of it.
    fn pulse(&self) -> (bool, f64) {
        let pulse = &self.0.shared().pulse;
        (pulse.is_alive(), pulse.age().as_secs_f64())
    }

    /// Returns how many connections are open, how many of them are idle, how many have not finished their
    /// handshake, and how many there may be.
    fn connections(&self) -> (usize, usize, usize, usize) {
        let gate = &self.0.shared().gate;
        let (connections, handshakes) = gate.count();
        let most = gate.most_connections();
        (connections, gate.idle(), handshakes, most)
    }

    /// Returns how many connections were hung up on because there were too many, how many because they did not
    /// finish their handshake in time, and how many because they were idle and others needed the room.
    fn turned_away(&self) -> (u64, u64, u64) {
        let turned_away = &self.0.shared().gate.turned_away;
        (
            turned_away.full.load(Relaxed),
            turned_away.handshake.load(Relaxed),
            turned_away.idle.load(Relaxed),
        )
    }

    /// Returns how many calls came without a token that is known.
    fn unauthenticated(&self) -> u64 {
        self.0.shared().access.refused()
    }

    /// Returns how many streams were refused, and how many went away, before they began.
    fn unopened(&self) -> (u64, u64) {
        let counters = &self.0.shared().counters;
        (
            counters.refused.load(Relaxed),
            counters.disconnects.load(Relaxed),
        )
    }
}
