//! The questions of the port to Python. One that is dropped without an answer is refused.

use headrace_server::access::Token;
use headrace_server::control::{Answer, Facts, Plan, Question};
use headrace_server::refusal::Refusal;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The object that Python gets for a question.
pub fn question_object(py: Python<'_>, question: Question) -> PyResult<Py<PyAny>> {
    Ok(match question {
        Question::Admit {
            collection,
            schema,
            producer,
            answer,
        } => {
            let schema = schema.to_vec();
            Py::new(
                py,
                AdmitQuestion {
                    collection,
                    schema,
                    producer,
                    answer: once(answer),
                },
            )?
            .into_any()
        }
        Question::Greet {
            collection,
            resume_after,
            answer,
        } => Py::new(
            py,
            GreetQuestion {
                collection,
                resume_after,
                answer: once(answer),
            },
        )?
        .into_any(),
        Question::Tokens { answer } => Py::new(
            py,
            TokensQuestion {
                answer: once(answer),
            },
        )?
        .into_any(),
    })
}

/// An answer that is given at most once.
type Once<T> = Mutex<Option<Answer<T>>>;

fn once<T>(answer: Answer<T>) -> Once<T> {
    Mutex::new(Some(answer))
}

fn give<T>(to: &Once<T>, value: T) {
    if let Some(answer) = to.lock().take() {
        let _ = answer.send(value); // whoever asked may be gone
    }
}

/// May a stream of this schema write?
#[pyclass(frozen)]
pub struct AdmitQuestion {
    #[pyo3(get)]
    collection: String,
    #[pyo3(get)]
    schema: Vec<u8>,
    #[pyo3(get)]
    producer: String,
    answer: Once<Result<Plan, Refusal>>,
}

#[pymethods]
impl AdmitQuestion {
    /// It may; `required` are the columns that may have no nulls.
    fn admit(&self, kept_schema: Vec<u8>, required: Vec<usize>) {
        give(
            &self.answer,
            Ok(Plan {
                kept_schema: kept_schema.into(),
                required,
            }),
        );
    }

    /// It may not, for an error as JSON.
    fn refuse(&self, error: &str) -> PyResult<()> {
        give(&self.answer, Err(refusal(error)?));
        Ok(())
    }
}

/// Asks for the facts about a collection that a client gets when its stream begins.
#[pyclass(frozen)]
pub struct GreetQuestion {
    #[pyo3(get)]
    collection: String,
    #[pyo3(get)]
    resume_after: Option<u64>,
    answer: Once<Facts>,
}

#[pymethods]
impl GreetQuestion {
    /// `survives` is a JSON object.
    fn greet(&self, committed_lsn: u64, lost: Vec<(u64, u64)>, survives: &str) -> PyResult<()> {
        let survives = serde_json::from_str(survives).map_err(not_json)?;
        give(
            &self.answer,
            Facts {
                committed_lsn,
                lost,
                survives,
            },
        );
        Ok(())
    }
}

/// Which tokens are good now?
#[pyclass(frozen)]
pub struct TokensQuestion {
    answer: Once<Option<Vec<Token>>>,
}

#[pymethods]
impl TokensQuestion {
    /// None: those of before.
    fn answer(&self, tokens: Option<Vec<TokenRow>>) -> PyResult<()> {
        give(&self.answer, tokens.map(read_tokens).transpose()?);
        Ok(())
    }
}

/// A token's name, the digest of its secret, the collections that it may write, whether it is an administrator's, and
/// what else it allows.
pub type TokenRow = (String, Vec<u8>, Vec<String>, bool, Vec<String>);

pub fn read_tokens(rows: Vec<TokenRow>) -> PyResult<Vec<Token>> {
    rows.into_iter()
        .map(|(name, digest, write, is_admin, other_roles)| {
            let digest = digest.try_into().map_err(|_| {
                PyValueError::new_err(format!("the digest of token {name} is not SHA-256"))
            })?;
            Ok(Token {
                name,
                digest,
                write,
                is_admin,
                other_roles,
            })
        })
        .collect()
}

fn refusal(error: &str) -> PyResult<Refusal> {
    Refusal::from_json(error).map_err(not_json)
}

fn not_json(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("this is no such JSON: {error}"))
}
