//! Errors that end a stream: one sentence for people, and JSON in `extra_info` for programs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// A message travels three times in headers, once with each byte as three, and gRPC takes 8 KiB of
/// headers; of more it makes an error of its own, which clients would try again.
const MOST_BYTES: usize = 800;
const ARROW_IO_ERROR: &str = "5";

/// What a client is told when its stream ends before it is done. `name` is the class of the error in
/// Python, and its kind there decides `is_transient`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub name: String,
    pub is_transient: bool,
    pub message: String,
    pub fields: Vec<(String, Value)>,
}

impl Refusal {
    pub fn new(name: &str, is_transient: bool, message: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            is_transient,
            message: message.into(),
            fields: Vec::new(),
        }
    }

    pub fn config(message: impl Into<String>) -> Self {
        Self::new("ConfigError", false, message)
    }

    pub fn schema(collection: &str, problem: impl std::fmt::Display) -> Self {
        Self::new(
            "SchemaError",
            false,
            format!("collection '{collection}': {problem}"),
        )
    }

    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new("Unauthenticated", false, message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new("Unauthorized", false, message)
    }

    pub fn storage_full(message: impl Into<String>) -> Self {
        Self::new("StorageFull", true, message)
    }

    /// Of something that the protocol has and this server does not.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("Unsupported", false, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new("ServerUnavailable", true, message)
    }

    /// Of a bug of the server, which would fail again.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new("InternalError", false, message)
    }

    pub fn with_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// An error of the log, as the client of a stream hears it.
    pub fn of_log(error: &headrace_core::Refusal) -> Self {
        use headrace_core::Refusal as Log;
        let message = error.to_string();
        match error {
            Log::StorageFull(_) => Self::storage_full(message),
            Log::ServerUnavailable(_) => Self::unavailable(message),
            Log::Quarantined { collection, reason } => Self::new("Quarantined", false, message)
                .with_field("collection", collection.as_str())
                .with_field("reason", reason.as_str()),
            Log::ConfigError(_) => Self::config(message),
            Log::Terminal(_) => Self::new("Terminal", false, message),
            Log::Fenced { .. } => Self::new("Fenced", false, message),
            Log::UnknownProducer {
                producer,
                collection,
                first_seq,
            } => Self::new("UnknownProducer", false, message)
                .with_field("producer", producer.as_str())
                .with_field("collection", collection.as_str())
                .with_field("first_seq", *first_seq),
        }
    }

    /// The trailers of a call that ends with this error, as Arrow's server in C++ writes them.
    pub fn trailers(&self) -> HeaderMap {
        let message = shortened(&self.message);
        let (code, detail) = self.status();
        let text = format!("{message}. Detail: {detail}");
        let mut trailers = HeaderMap::with_capacity(6);
        let mut put = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                trailers.insert(HeaderName::from_static(name), value);
            }
        };
        put("grpc-status", code.to_owned());
        put("grpc-message", percent_encoded(&text));
        put("x-arrow-status", ARROW_IO_ERROR.to_owned());
        put(
            "x-arrow-status-message-bin",
            STANDARD_NO_PAD.encode(&message),
        );
        put("x-arrow-status-detail-bin", STANDARD_NO_PAD.encode(detail));
        put(
            "grpc-status-details-bin",
            STANDARD_NO_PAD.encode(self.extra_info(&message, short_value)),
        );
        trailers
    }

    /// The error as `HeadraceError.to_json` of Python writes it.
    pub fn to_json(&self) -> String {
        self.extra_info(&self.message, Value::clone)
    }

    /// Reads what `HeadraceError.to_json` of Python writes.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Error {
            error: String,
            transient: bool,
            message: String,
            fields: serde_json::Map<String, Value>,
        }
        let raw: Error = serde_json::from_str(text)?;
        Ok(Self {
            name: raw.error,
            is_transient: raw.transient,
            message: raw.message,
            fields: raw.fields.into_iter().collect(),
        })
    }

    fn status(&self) -> (&'static str, &'static str) {
        match self.name.as_str() {
            "Unauthenticated" => ("16", "Unauthenticated"),
            "Unauthorized" => ("7", "Unauthorized"),
            "Unsupported" => ("12", "Failed"),
            "InternalError" => ("13", "Internal"),
            _ if self.is_transient => ("14", "Unavailable"),
            _ => ("2", "Failed"),
        }
    }

    fn extra_info(&self, message: &str, shown: impl Fn(&Value) -> Value) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(name, value)| format!("{}: {}", json!(name), shown(value)))
            .collect();
        format!(
            "{{\"error\": {}, \"transient\": {}, \"message\": {}, \"fields\": {{{}}}}}",
            json!(self.name),
            self.is_transient,
            json!(message),
            fields.join(", ")
        )
    }
}

/// The trailers of a call that ends well.
pub fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

fn shortened(message: &str) -> String {
    if message.len() <= MOST_BYTES {
        return message.to_owned();
    }
    let end = (0..=MOST_BYTES)
        .rev()
        .find(|at| message.is_char_boundary(*at));
    format!("{} ...", &message[..end.unwrap_or(0)])
}

fn short_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(text)),
        other => other.clone(),
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(trailers: &HeaderMap, name: &str) -> String {
        trailers[name].to_str().unwrap().to_owned()
    }

    fn decoded(trailers: &HeaderMap, name: &str) -> String {
        String::from_utf8(STANDARD_NO_PAD.decode(text(trailers, name)).unwrap()).unwrap()
    }

    /// What a server in C++ with pyarrow 26 sends for the same errors.
    #[test]
    fn trailers_are_those_of_arrows_own_server() {
        let refusal = Refusal::new("UnknownProducer", false, "p")
            .with_field("producer", "p")
            .with_field("first_seq", 7);
        let trailers = refusal.trailers();
        assert_eq!(text(&trailers, "grpc-status"), "2");
        assert_eq!(text(&trailers, "grpc-message"), "p. Detail: Failed");
        assert_eq!(text(&trailers, "x-arrow-status"), "5");
        assert_eq!(decoded(&trailers, "x-arrow-status-message-bin"), "p");
        assert_eq!(decoded(&trailers, "x-arrow-status-detail-bin"), "Failed");
        assert_eq!(
            decoded(&trailers, "grpc-status-details-bin"),
            r#"{"error": "UnknownProducer", "transient": false, "message": "p", "fields": {"producer": "p", "first_seq": 7}}"#
        );
    }

    #[test]
    fn the_kind_decides_the_code() {
        for (refusal, code, detail) in [
            (Refusal::config("x"), "2", "Failed"),
            (Refusal::unauthenticated("x"), "16", "Unauthenticated"),
            (Refusal::unauthorized("x"), "7", "Unauthorized"),
            (Refusal::storage_full("x"), "14", "Unavailable"),
            (Refusal::unavailable("x"), "14", "Unavailable"),
            (Refusal::internal("x"), "13", "Internal"),
        ] {
            let trailers = refusal.trailers();
            assert_eq!(text(&trailers, "grpc-status"), code);
            assert_eq!(decoded(&trailers, "x-arrow-status-detail-bin"), detail);
        }
    }

    #[test]
    fn a_message_that_quotes_the_client_fits_into_headers() {
        let trailers = Refusal::config("ü%".repeat(10_000)).trailers();
        assert!(trailers.values().map(HeaderValue::len).sum::<usize>() < 7 * 1024);
        let message = decoded(&trailers, "x-arrow-status-message-bin");
        assert!(message.len() <= MOST_BYTES + 4 && message.ends_with(" ..."));
        assert!(text(&trailers, "grpc-message").starts_with("%C3%BC%25"));
        let reason = "a reason of the table's own ".repeat(1_000);
        let trailers = Refusal::new("Quarantined", false, reason.as_str())
            .with_field("reason", reason)
            .trailers();
        assert!(trailers.values().map(HeaderValue::len).sum::<usize>() < 7 * 1024);
        assert!(decoded(&trailers, "grpc-status-details-bin").ends_with(r#" ..."}}"#));
    }
}
