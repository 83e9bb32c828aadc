//! One client: a connection of its own with one stream on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::acks::Decoder;
use crate::config::Config;
use crate::error::LoadError;
use crate::outgoing::{Exchange, Outgoing};
use crate::run::Clock;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

pub async fn connect(config: &Config) -> Result<Channel, LoadError> {
    let failed = |error: &dyn std::error::Error| LoadError::Connect {
        url: config.url.clone(),
        reason: innermost(error),
    };
    let endpoint = endpoint(config)?;
    endpoint.connect().await.map_err(|error| failed(&error))
}

fn endpoint(config: &Config) -> Result<Endpoint, LoadError> {
    let wrong = |reason: String| LoadError::Config(format!("{}: {reason}", config.url));
    let (scheme, address) = config
        .url
        .split_once("://")
        .ok_or_else(|| wrong("expected grpc://HOST:PORT or grpc+tls://HOST:PORT".to_owned()))?;
    let is_secure = match scheme {
        "grpc" | "grpc+tcp" => false,
        "grpc+tls" => true,
        _ => return Err(wrong(format!("there is no transport {scheme}"))),
    };
    let url = format!("{}://{address}", if is_secure { "https" } else { "http" });
    let mut endpoint = Endpoint::from_shared(url)
        .map_err(|error| wrong(error.to_string()))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if is_secure {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &config.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        endpoint = endpoint
            .tls_config(tls)
            .map_err(|error| wrong(innermost(&error)))?;
    }
    Ok(endpoint)
}

/// Writes until the outgoing messages end, and reads until the server ends the stream.
pub async fn exchange(
    channel: Channel,
    config: &Config,
    exchange: Arc<Exchange>,
    outgoing: Outgoing,
    clock: Clock,
    acknowledged: &AtomicU64,
) -> Result<(), LoadError> {
    let mut request = tonic::Request::new(outgoing);
    if let Some(token) = &config.token {
        let value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            LoadError::Config("the token has characters that no header may have".to_owned())
        })?;
        request.metadata_mut().insert("authorization", value);
    }
    let mut client = FlightServiceClient::new(channel);
    let silence = Duration::from_secs_f64(config.silence_seconds);
    let is_silent = |_| LoadError::Silence(config.silence_seconds);
    // A server may send its headers only with the first acknowledgement.
    let response = tokio::time::timeout(silence, client.do_exchange(request))
        .await
        .map_err(is_silent)??;
    let mut incoming = response.into_inner();
    let mut decoder = Decoder::new();
    loop {
        let message = tokio::time::timeout(silence, incoming.message())
            .await
            .map_err(is_silent)??;
        let Some(data) = message else {
            break;
        };
        let (now, wall) = (clock.now(), clock.wall_us());
        let mut ledger = exchange.ledger.lock();
        let before = ledger.waiting();
        decoder.decode(&data, |ack| ledger.on_ack(ack, now, wall))?;
        acknowledged.fetch_add(before - ledger.waiting(), Ordering::Relaxed);
        ledger.forget_done();
        drop(ledger);
        exchange.room.wake();
    }
    exchange.ledger.lock().check_complete()
}

/// Returns what an error says at its root, since the layers above say only that there is one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
