//! Why a message is not taken, as its client hears it.

use crate::refusal::Refusal;
use crate::repr::grouped;

/// Why a message is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("a message cannot be read as Arrow: {0}")]
    Unreadable(String),
    #[error("the batch is malformed: {0}")]
    Malformed(String),
    #[error("{what} {} bytes and may have {}: split it", grouped(*size), grouped(*most))]
    TooLarge {
        what: &'static str,
        size: u128,
        most: usize,
    },
    #[error("a write has no rows: leave it out")]
    Empty,
    #[error("column '{column}' is {kept} and the write has {sent}: {reason}")]
    Lossy {
        column: String,
        kept: String,
        sent: String,
        reason: String,
    },
    #[error("column '{0}' is required and the write has a null in it: fill it")]
    Null(String),
    #[error(
        "the server has no room for the schema and the dictionaries of another stream: try again"
    )]
    NoRoom,
}

impl Problem {
    pub fn refusal(self, collection: &str) -> Refusal {
        match self {
            Self::Unreadable(_) | Self::TooLarge { .. } | Self::Empty => {
                Refusal::config(self.to_string())
            }
            Self::Malformed(_) | Self::Lossy { .. } | Self::Null(_) => {
                Refusal::schema(collection, self)
            }
            Self::NoRoom => Refusal::unavailable(self.to_string()),
        }
    }
}
