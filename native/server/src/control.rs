//! The questions of the port to the server around it: once per schema, once per stream with options, and once a second
//! for tokens. It asks nothing for a single write.

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::access::Token;
use crate::refusal::Refusal;

/// How the batches of a schema are kept, decided once for each schema before the first write under it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The schema under which the log keeps them, as an encapsulated Arrow message.
    pub kept_schema: Bytes,
    /// The columns of it that may have no nulls.
    pub required: Vec<usize>,
}

/// The part of a greeting that the log does not know.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Everything of the collection at or below it is in its table.
    pub committed_lsn: u64,
    /// Ranges of LSNs that are gone, of those after the one that was asked for.
    pub lost: Vec<(u64, u64)>,
    /// For each tier what a write survives there, as a JSON object.
    pub survives: Value,
}

/// An answer that may be waited for; whoever drops the question refuses it.
pub type Answer<T> = oneshot::Sender<T>;

pub enum Question {
    /// May a stream of this schema write? Creates the collection, or makes it wider, if it has to be.
    Admit {
        collection: String,
        /// An encapsulated Arrow message.
        schema: Bytes,
        producer: String,
        answer: Answer<Result<Plan, Refusal>>,
    },
    /// Asks for the facts about a collection that a client gets when its stream begins.
    Greet {
        collection: String,
        resume_after: Option<u64>,
        answer: Answer<Facts>,
    },
    /// The tokens that are good now; `None` if they are those of before.
    Tokens { answer: Answer<Option<Vec<Token>>> },
}

/// The server around the port, which answers its questions.
pub trait Control: Send + Sync + 'static {
    /// Takes a question without waiting, and answers it at any time and on any thread.
    fn ask(&self, question: Question);
}

/// Asks, and waits for the answer.
pub async fn ask<T>(
    control: &dyn Control,
    question: impl FnOnce(Answer<T>) -> Question,
) -> Result<T, Refusal> {
    let (answer, answered) = oneshot::channel();
    control.ask(question(answer));
    answered
        .await
        .map_err(|_| Refusal::unavailable("the server is shutting down"))
}
