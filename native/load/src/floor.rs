//! The floor: a bare DoExchange that acknowledges each write and keeps nothing.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::Stream;
use futures::stream::Empty as Nothing;
use serde::Deserialize;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::encoder::AckEncoder;
use crate::error::LoadError;

const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
const MOST_BYTES: usize = 64 << 20;
const MOST_ROWS: usize = 16_384;

/// Serves on a free loopback port until the process ends, and returns its address once it is bound.
pub fn start_floor() -> Result<SocketAddr, LoadError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("floor")
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let service = FlightServiceServer::new(Floor).max_decoding_message_size(MOST_BYTES);
    let serving = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    thread::Builder::new()
        .name("floor".to_owned())
        .spawn(move || runtime.block_on(serving))?;
    Ok(address)
}

struct Floor;

/// Reads all messages that are there, then acknowledges them in one.
struct Acknowledging {
    incoming: Streaming<FlightData>,
    encoder: AckEncoder,
    begun: bool,
    next_lsn: u64,
    ended: bool,
}

impl Stream for Acknowledging {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.begun {
            self.begun = true;
            return Poll::Ready(Some(Ok(self.encoder.schema())));
        }
        let mut rows = 0;
        while rows < MOST_ROWS && !self.ended {
            match Pin::new(&mut self.incoming).poll_next(context) {
                Poll::Ready(Some(Ok(data))) => match writes_of(&data) {
                    Ok(writes) => rows += writes,
                    Err(status) => return Poll::Ready(Some(Err(status))),
                },
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => self.ended = true,
                Poll::Pending if rows == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if rows == 0 {
            return Poll::Ready(None);
        }
        let first = self.next_lsn;
        self.next_lsn += rows as u64;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as i64);
        Poll::Ready(Some(
            self.encoder
                .encode(first, rows, now)
                .map_err(|error| Status::internal(error.to_string())),
        ))
    }
}

#[derive(Deserialize)]
struct Metadata {
    rows: Option<Vec<u32>>,
}

/// Counts the writes in a message; one without a body is the schema.
fn writes_of(data: &FlightData) -> Result<usize, Status> {
    if data.data_body.is_empty() {
        return Ok(0);
    }
    if data.app_metadata.is_empty() {
        return Ok(1);
    }
    let metadata: Metadata = serde_json::from_slice(&data.app_metadata).map_err(|error| {
        Status::invalid_argument(format!("the app_metadata is not right: {error}"))
    })?;
    Ok(metadata.rows.map_or(1, |rows| rows.len()))
}

type Answer<T> = Result<Response<T>, Status>;

fn refused<T>() -> Answer<T> {
    Err(Status::unimplemented("the floor serves DoExchange alone"))
}

#[tonic::async_trait]
impl FlightService for Floor {
    type HandshakeStream = Nothing<Result<HandshakeResponse, Status>>;
    type ListFlightsStream = Nothing<Result<FlightInfo, Status>>;
    type DoGetStream = Nothing<Result<FlightData, Status>>;
    type DoPutStream = Nothing<Result<PutResult, Status>>;
    type DoExchangeStream = Acknowledging;
    type DoActionStream = Nothing<Result<arrow_flight::Result, Status>>;
    type ListActionsStream = Nothing<Result<ActionType, Status>>;

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Acknowledging> {
        let encoder = AckEncoder::new().map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(Acknowledging {
            incoming: request.into_inner(),
            encoder,
            begun: false,
            next_lsn: 1,
            ended: false,
        }))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        refused()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        refused()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        refused()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        refused()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        refused()
    }

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        refused()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        refused()
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        refused()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        refused()
    }
}
