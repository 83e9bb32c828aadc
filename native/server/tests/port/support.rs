//! A server over a real log, with a control that answers by itself, and stock Flight clients.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::{batches_to_flight_data, flight_data_to_arrow_batch};
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_ipc::convert::try_schema_from_flatbuffer_bytes;
use arrow_schema::{DataType, Field, Schema};
use headrace_core::{
    Config as LogConfig, Core, Defects, DiskFiles, Limits as LogLimits, NoHooks, Recovered,
    SystemClock,
};
use headrace_server::access::Token;
use headrace_server::control::{Control, Facts, Plan, Question};
use headrace_server::port::Limits;
use headrace_server::refusal::Refusal;
use headrace_server::server::{Config, Server};
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub const DEADLINE: Duration = Duration::from_secs(60);

/// Keeps every schema as it comes.
#[derive(Default)]
pub struct TestControl {
    pub refusal: Mutex<Option<Refusal>>,
    pub panics: AtomicBool,
    pub tokens: Mutex<Option<Vec<Token>>>,
    pub required: Mutex<Vec<usize>>,
}

impl Control for TestControl {
    fn ask(&self, question: Question) {
        match question {
            Question::Admit { schema, answer, .. } => {
                assert!(!self.panics.load(SeqCst), "as a test wants it");
                let refusal = self.refusal.lock().clone();
                let plan = Plan {
                    kept_schema: schema,
                    required: self.required.lock().clone(),
                };
                let _ = answer.send(refusal.map_or(Ok(plan), Err));
            }
            Question::Greet { answer, .. } => {
                let survives = json!({"MEMORY": "nothing"});
                let _ = answer.send(Facts {
                    committed_lsn: 0,
                    lost: vec![(5, 6)],
                    survives,
                });
            }
            Question::Tokens { answer } => {
                let _ = answer.send(self.tokens.lock().clone());
            }
        }
    }
}

pub struct Running {
    pub server: Server,
    pub core: Arc<Core>,
    pub control: Arc<TestControl>,
    pub others: PathBuf,
    _folder: TempDir,
}

impl Running {
    pub fn start() -> Self {
        Self::with(LogLimits::default(), Limits::default(), None)
    }

    pub fn with(log: LogLimits, limits: Limits, tokens: Option<Vec<Token>>) -> Self {
        let folder = TempDir::new().unwrap();
        let core = open_log(folder.path(), log);
        let control = Arc::new(TestControl::default());
        let others = folder.path().join("others");
        let config = Config {
            host: "127.0.0.1".to_owned(),
            port: 0,
            tls: None,
            tokens,
            limits,
            others: others.clone(),
            threads: 2,
        };
        let server = Server::start(config, Arc::clone(&core), Arc::clone(&control) as _).unwrap();
        Self {
            server,
            core,
            control,
            others,
            _folder: folder,
        }
    }

    fn endpoint(&self) -> Endpoint {
        let address = format!("http://127.0.0.1:{}", self.server.port());
        Endpoint::from_shared(address).unwrap()
    }

    pub async fn channel(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }

    /// Of a client that takes almost nothing before it reads.
    pub async fn narrow_channel(&self) -> Channel {
        let endpoint = self.endpoint().initial_stream_window_size(1024);
        endpoint.connect().await.unwrap()
    }

    pub async fn open_narrow(&self, path: &[&str]) -> Exchange {
        Exchange::open(self.narrow_channel().await, path).await
    }

    pub async fn open(&self, path: &[&str]) -> Exchange {
        Exchange::open(self.channel().await, path).await
    }

    /// Everything that is synced is in the store and in the table of `orders`.
    pub fn settle(&self, lsn: u64, snapshot_id: i64) {
        self.core.uploaded(1, lsn);
        self.core.committed("orders", lsn, Some(snapshot_id));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.close(DEADLINE);
    }
}

fn open_log(folder: &Path, limits: LogLimits) -> Arc<Core> {
    let config = LogConfig {
        folder: folder.to_owned(),
        term: 1,
        number: 1,
        previous_length: 0,
        uploaded_segment: 0,
        uploaded_lsn: 0,
        limits,
        files: Box::new(DiskFiles::new(Arc::new(NoHooks), Defects::default())),
        clock: Arc::new(SystemClock::new()),
        defects: Defects::default(),
        on_event: Box::new(|_| {}),
    };
    let mut recovered = Recovered::default();
    recovered.state.reserved_until = headrace_core::first_lsn_of(1);
    Core::open(config, recovered).unwrap()
}

pub fn ids(ids: &[i64]) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(ids.to_vec()))]).unwrap()
}

/// The schema's message, and the batch's.
pub fn flight_data(batch: &RecordBatch) -> (FlightData, FlightData) {
    let data = batches_to_flight_data(&batch.schema(), [batch]).unwrap();
    let mut data = VecDeque::from(data);
    (data.pop_front().unwrap(), data.pop_front().unwrap())
}

pub fn descriptor(path: &[&str]) -> FlightDescriptor {
    FlightDescriptor::new_path(path.iter().map(|step| (*step).to_owned()).collect())
}

/// A message of gRPC.
pub fn framed(data: &FlightData) -> Vec<u8> {
    let message = data.encode_to_vec();
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// The schema of `ids`, of a stream that writes to `orders`.
pub fn schema() -> Vec<u8> {
    let (mut schema, _) = flight_data(&ids(&[1]));
    schema.flight_descriptor = Some(descriptor(&["streaming_write", "orders"]));
    framed(&schema)
}

pub fn batch(values: &[i64]) -> Vec<u8> {
    framed(&flight_data(&ids(values)).1)
}

/// One DoExchange of a stock client.
pub struct Exchange {
    sender: Option<mpsc::UnboundedSender<FlightData>>,
    answers: Streaming<FlightData>,
    descriptor: Option<FlightDescriptor>,
    /// LSN, level, whether it is an update.
    pub acks: Vec<(u64, String, bool)>,
    pub messages: Vec<Value>,
    pub columns: Vec<String>,
}

impl Exchange {
    pub async fn open(channel: Channel, path: &[&str]) -> Self {
        Self::open_with(channel, path, None).await.unwrap()
    }

    pub async fn open_with(
        channel: Channel,
        path: &[&str],
        token: Option<&str>,
    ) -> Result<Self, Status> {
        let (sender, sent) = mpsc::unbounded_channel();
        let mut request = Request::new(UnboundedReceiverStream::new(sent));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        let answers = FlightServiceClient::new(channel)
            .do_exchange(request)
            .await?
            .into_inner();
        Ok(Self {
            sender: Some(sender),
            answers,
            descriptor: Some(descriptor(path)),
            acks: Vec::new(),
            messages: Vec::new(),
            columns: Vec::new(),
        })
    }

    pub fn send_raw(&mut self, mut data: FlightData) {
        data.flight_descriptor = self.descriptor.take();
        if let Some(sender) = &self.sender {
            // A stream that has ended takes nothing; how it ended is what a test looks at.
            let _ = sender.send(data);
        }
    }

    pub fn send(&mut self, values: &[i64], metadata: &Value) {
        let (schema, mut batch) = flight_data(&ids(values));
        if self.descriptor.is_some() {
            self.send_raw(schema);
        }
        if !metadata.is_null() {
            batch.app_metadata = metadata.to_string().into();
        }
        self.send_raw(batch);
    }

    pub fn options(&mut self, options: &Value) {
        let (schema, _) = flight_data(&ids(&[1]));
        self.send_raw(schema);
        self.send_raw(FlightData::new().with_app_metadata(options.to_string()));
    }

    pub fn done_writing(&mut self) {
        self.sender = None;
    }

    /// Reads one message; `None` at the end.
    pub async fn read(&mut self) -> Result<Option<()>, Status> {
        let answer = tokio::time::timeout(DEADLINE, self.answers.message())
            .await
            .unwrap()?;
        let Some(data) = answer else { return Ok(None) };
        if !data.app_metadata.is_empty() {
            self.messages
                .push(serde_json::from_slice(&data.app_metadata).unwrap());
        }
        if let Ok(schema) = try_schema_from_flatbuffer_bytes(&data.data_header) {
            self.columns = schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
        } else if !data.data_header.is_empty() {
            let schema = Arc::new(headrace_server::acks::ack_schema());
            let batch = flight_data_to_arrow_batch(&data, schema, &Default::default()).unwrap();
            let lsns: &UInt64Array = batch.column(0).as_any().downcast_ref().unwrap();
            let levels: &StringArray = batch.column(1).as_any().downcast_ref().unwrap();
            for (row, lsn) in lsns.values().iter().enumerate() {
                let is_update = levels.value(row) != "MEMORY";
                self.acks
                    .push((*lsn, levels.value(row).to_owned(), is_update));
            }
        }
        Ok(Some(()))
    }

    pub async fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        while !is_so(self) {
            self.read().await.unwrap().expect("the stream has ended");
        }
    }

    pub fn lsns(&self, level: &str) -> Vec<u64> {
        self.acks
            .iter()
            .filter(|(_, of, _)| of == level)
            .map(|(lsn, _, _)| *lsn)
            .collect()
    }

    /// How the stream ends.
    pub async fn end(&mut self) -> Result<(), Status> {
        while self.read().await?.is_some() {}
        Ok(())
    }

    pub async fn refusal(&mut self) -> (tonic::Code, Value) {
        let status = self.end().await.unwrap_err();
        refusal_of(&status)
    }
}

pub fn refusal_of(status: &Status) -> (tonic::Code, Value) {
    (
        status.code(),
        serde_json::from_slice(status.details()).unwrap(),
    )
}

pub async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
