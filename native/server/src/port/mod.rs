//! The port: connections, their limits, and which part of the server answers a call.

pub mod call;
mod connection;
pub mod gate;
mod health;
pub mod inbox;
mod listener;
pub mod outbox;
mod proxy;
mod pulse;
mod tls;
mod windows;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use headrace_core::Core;
use tokio::sync::watch;

pub use self::listener::{bind, serve};
pub use self::tls::{Acceptor, acceptor};

use self::gate::Gate;
use self::inbox::Ended;
use self::pulse::Pulse;
use crate::access::Access;
use crate::budget::{Budget, Parts, Unpacking};
use crate::control::Control;

/// What callers may take up.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A message that is larger is refused.
    pub message_bytes: usize,
    /// What all connections may send before it is read.
    pub receive_bytes: usize,
    /// What messages that are compressed, or small for what they stand for, may unpack to at the same time.
    pub unpack_bytes: usize,
    pub connections: usize,
    /// Calls of one connection at a time.
    pub streams: u32,
    /// Connections that have not yet said enough to be one.
    pub handshakes: usize,
    /// How long they may take for it.
    pub handshake: Duration,
    /// A connection that does not fill its windows in this time does not need large ones.
    pub quiet: Duration,
    /// How often a connection is asked whether somebody is still there, and how long an answer may take.
    pub ping_after: Duration,
    pub pong_within: Duration,
}

impl Limits {
    /// Of what may be received, what is for windows.
    pub fn window_bytes(&self) -> usize {
        self.receive_bytes / 4 * 3
    }

    /// At most half of what is for windows is set aside for the smallest ones of all connections.
    pub fn most_connections(&self) -> usize {
        let by_room = self.window_bytes() / 2 / windows::SET_ASIDE;
        self.connections.min(by_room).max(1)
    }

    fn growth_bytes(&self) -> usize {
        self.window_bytes()
            .saturating_sub(self.most_connections() * windows::SET_ASIDE)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            receive_bytes: 512 << 20,
            unpack_bytes: 512 << 20,
            connections: 2048,
            streams: 256,
            handshakes: 1024,
            handshake: Duration::from_secs(10),
            quiet: Duration::from_secs(10),
            ping_after: Duration::from_secs(20),
            pong_within: Duration::from_secs(20),
        }
    }
}

/// What all connections and streams share.
pub struct Shared {
    pub core: Arc<Core>,
    pub control: Arc<dyn Control>,
    pub access: Access,
    pub limits: Limits,
    pub gate: Arc<Gate>,
    /// For what the windows of connections have beyond what is set aside for each,
    pub windows: Arc<Budget>,
    /// and for messages that are too large for one: those that send them wait for each other, and not those
    /// that connect.
    pub parts: Arc<Parts>,
    pub unpacking: Arc<Unpacking>,
    /// The socket of the server that answers every other call.
    pub others: Arc<PathBuf>,
    /// Whether the server has begun, and is not stopping.
    pub is_serving: watch::Sender<bool>,
    pub closing: watch::Sender<bool>,
    pub pulse: Pulse,
    pub counters: Counters,
}

/// Of what is not counted by streams of the log.
#[derive(Debug, Default)]
pub struct Counters {
    /// Streams that ended with an error before they began.
    pub refused: AtomicU64,
    /// Streams whose clients went away before they began.
    pub disconnects: AtomicU64,
}

impl Shared {
    pub fn new(
        core: Arc<Core>,
        control: Arc<dyn Control>,
        access: Access,
        limits: Limits,
        others: PathBuf,
    ) -> Self {
        Self {
            core,
            control,
            access,
            gate: Gate::new(limits.most_connections(), limits.handshakes),
            windows: Arc::new(Budget::new(limits.growth_bytes())),
            parts: Arc::new(Parts::new(limits.receive_bytes - limits.window_bytes())),
            unpacking: Arc::new(Unpacking::new(limits.unpack_bytes)),
            limits,
            others: Arc::new(others),
            is_serving: watch::channel(false).0,
            closing: watch::channel(false).0,
            pulse: Pulse::default(),
            counters: Counters::default(),
        }
    }

    /// Whether writes are taken now.
    pub fn is_ready(&self) -> bool {
        *self.is_serving.borrow() && self.core.is_ready()
    }

    pub fn ended_unopened(&self, ended: &Result<(), Ended>) {
        match ended {
            Err(Ended::Gone) => {
                self.counters.disconnects.fetch_add(1, Relaxed);
            }
            Err(Ended::Refused(_)) => {
                self.counters.refused.fetch_add(1, Relaxed);
            }
            Ok(()) | Err(Ended::Done) => {}
        }
    }
}
