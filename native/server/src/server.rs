//! The whole server: its own runtime on its own threads.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headrace_core::Core;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::access::{Access, Token};
use crate::control::Control;
use crate::port::{Acceptor, Limits, Shared, bind, serve};

/// Where and how the server listens.
pub struct Config {
    pub host: String,
    /// 0 takes a free one.
    pub port: u16,
    pub tls: Option<Acceptor>,
    /// `None`: everybody may do everything.
    pub tokens: Option<Vec<Token>>,
    pub limits: Limits,
    /// The unix socket of the server that answers every other call.
    pub others: PathBuf,
    /// 0: one for each core.
    pub threads: usize,
}

pub struct Server {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    port: u16,
}

impl Server {
    /// Listens when it returns; an error says why the address cannot be listened on.
    pub fn start(config: Config, core: Arc<Core>, control: Arc<dyn Control>) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        if config.threads > 0 {
            builder.worker_threads(config.threads);
        }
        let runtime = builder.thread_name("port").enable_all().build()?;
        let bound = {
            let _inside = runtime.enter();
            bind(&config.host, config.port)?
        };
        let port = bound.port;
        let access = Access::new(Arc::clone(&control), config.tokens);
        let shared = Arc::new(Shared::new(
            core,
            control,
            access,
            config.limits,
            config.others,
        ));
        runtime.spawn(serve(bound, Arc::clone(&shared), config.tls));
        Ok(Self {
            shared,
            runtime: Mutex::new(Some(runtime)),
            port,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What `grpc.health.v1` answers.
    pub fn set_serving(&self, is_serving: bool) {
        self.shared.is_serving.send_replace(is_serving);
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Takes no calls any more, ends those that are there, and hangs up on who does not hear of it in time.
    pub fn stop(&self, timeout: Duration) {
        self.shared.is_serving.send_replace(false);
        self.shared.closing.send_replace(true);
        if let Some(runtime) = self.runtime.lock().take() {
            let shared = Arc::clone(&self.shared);
            let hung_up = async move {
                while shared.gate.count().0 > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            runtime.block_on(async { tokio::time::timeout(timeout, hung_up).await.ok() });
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

/// Hangs up on everybody at once; `stop` is the orderly end.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}
