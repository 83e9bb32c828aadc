//! A run: all clients connect, then they write together, and what each has seen becomes one report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::transport::Channel;

use crate::client;
use crate::config::Config;
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::ledger::{Ledger, Span};
use crate::messages::Messages;
use crate::outgoing::{Exchange, Outgoing, Pace};
use crate::report::Report;
use crate::schedule::Schedule;

const NANOS: f64 = 1e9;

/// Nanoseconds since the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub fn wall_us(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as i64)
    }
}

/// A load that can be watched while it runs.
#[derive(Debug)]
pub struct Load {
    config: Config,
    acknowledged: Arc<AtomicU64>,
}

impl Load {
    pub fn new(config: Config) -> Load {
        Load {
            config,
            acknowledged: Arc::default(),
        }
    }

    /// Returns how many writes were acknowledged so far at their first tier.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Runs to the end. A client that fails is named in the report, and the others continue.
    pub fn run(&self) -> Result<Report, LoadError> {
        let config = Arc::new(self.config.clone());
        let messages = Arc::new(Messages::new(&config)?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(config.threads)
            .thread_name("load")
            .enable_all()
            .build()?;
        let channels = runtime.block_on(connect_all(&config))?;
        let clock = Clock {
            start: Instant::now(),
        };
        let span = span_of(&config);
        let (exchanges, paces, pacer) = self.prepare(&config, span, clock)?;
        let tasks = exchanges
            .iter()
            .zip(paces)
            .zip(channels)
            .map(|((exchange, pace), channel)| {
                let outgoing = Outgoing {
                    exchange: Arc::clone(exchange),
                    messages: Arc::clone(&messages),
                    pace,
                    clock,
                    next: None,
                };
                let (config, exchange) = (Arc::clone(&config), Arc::clone(exchange));
                let acknowledged = Arc::clone(&self.acknowledged);
                runtime.spawn(async move {
                    client::exchange(channel, &config, exchange, outgoing, clock, &acknowledged)
                        .await
                })
            });
        let tasks: Vec<_> = tasks.collect();
        let outcomes = collect(&runtime, tasks);
        let late = pacer.map(|pacer| pacer.join().unwrap_or_default());
        let ledgers: Vec<_> = exchanges
            .iter()
            .map(|exchange| exchange.ledger.lock())
            .collect();
        Ok(Report::of(&config, span, &ledgers, &outcomes, late))
    }

    /// Makes each client's side of the exchange, and starts the thread that keeps the schedule, if there is one.
    #[allow(clippy::type_complexity)]
    fn prepare(
        &self,
        config: &Config,
        span: Span,
        clock: Clock,
    ) -> Result<
        (
            Vec<Arc<Exchange>>,
            Vec<Pace>,
            Option<thread::JoinHandle<Histogram>>,
        ),
        LoadError,
    > {
        let expected = config.expected();
        let exchanges = (0..config.clients).map(|_| {
            Arc::new(Exchange {
                ledger: Mutex::new(Ledger::new(config.coalesce, span, expected)),
                room: AtomicWaker::new(),
            })
        });
        let exchanges: Vec<_> = exchanges.collect();
        let Some(rate) = config.rate else {
            let paces = exchanges.iter().map(|_| Pace::Closed {
                window: config.window,
                until: span.until,
                writes: config.writes.unwrap_or(u64::MAX),
            });
            return Ok((exchanges.clone(), paces.collect(), None));
        };
        let (senders, paces): (Vec<_>, Vec<_>) = exchanges
            .iter()
            .map(|_| {
                let (sender, receiver) = unbounded_channel();
                (sender, Pace::Open(receiver))
            })
            .unzip();
        let schedule = Schedule::new(rate, config.clients, config.coalesce);
        let most = config.writes.map_or(u64::MAX, |writes| {
            writes / config.coalesce as u64 * config.clients as u64
        });
        let pacer = thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || keep_schedule(schedule, senders, most, span, clock))?;
        Ok((exchanges, paces, Some(pacer)))
    }
}

fn span_of(config: &Config) -> Span {
    if config.writes.is_some() {
        return Span {
            from: 0,
            until: u64::MAX,
        };
    }
    Span {
        from: (config.warm_up_seconds * NANOS) as u64,
        until: ((config.warm_up_seconds + config.seconds) * NANOS) as u64,
    }
}

async fn connect_all(config: &Config) -> Result<Vec<Channel>, LoadError> {
    let channels = (0..config.clients).map(|_| client::connect(config));
    join_all(channels).await.into_iter().collect()
}

/// Says when each message is due, whatever the server does, and returns how late it was to say so.
///
/// A thread of its own: a timer of the runtime is a millisecond too coarse.
fn keep_schedule(
    schedule: Schedule,
    senders: Vec<UnboundedSender<u64>>,
    most: u64,
    span: Span,
    clock: Clock,
) -> Histogram {
    let mut late = Histogram::default();
    for number in 0..most {
        let due = schedule.due(number);
        if due >= span.until {
            break;
        }
        let now = clock.now();
        if due > now {
            thread::sleep(Duration::from_nanos(due - now));
        }
        if span.has(due) {
            late.record(clock.now().saturating_sub(due));
        }
        // A client that failed has dropped its end, which its error tells.
        let _ = senders[schedule.client_of(number)].send(due);
    }
    late
}

fn collect(
    runtime: &Runtime,
    tasks: Vec<tokio::task::JoinHandle<Result<(), LoadError>>>,
) -> Vec<Result<(), LoadError>> {
    let outcomes = runtime.block_on(join_all(tasks));
    let broken =
        |error: tokio::task::JoinError| Err(LoadError::System(std::io::Error::other(error)));
    outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_or_else(broken))
        .collect()
}
