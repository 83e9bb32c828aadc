//! Why a write is not accepted, in the words that its client hears.

use std::fmt::{self, Display, Formatter, Write};

use thiserror::Error;

/// A refused write got no LSN, and is nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The disk is almost full, or failing: nothing is accepted until it heals.
    #[error("{0}")]
    StorageFull(String),
    /// The server is shutting down, or was replaced.
    #[error("{0}")]
    ServerUnavailable(String),
    /// The collection cannot be committed for now, for this reason.
    #[error(
        "collection {} is in quarantine and takes no writes ({reason}): mend that and release it with headrace \
         quarantine release {collection}; what was acknowledged is kept",
        Quoted(collection)
    )]
    Quarantined { collection: String, reason: String },
    /// The client sent sequence numbers or sizes that are impossible.
    #[error("{0}")]
    ConfigError(String),
    /// Trying again changes nothing.
    #[error("{0}")]
    Terminal(String),
    /// Another stream of this producer took over.
    #[error(
        "another stream of producer {} took over collection {}: give every client a producer of its own",
        Quoted(producer),
        Quoted(collection)
    )]
    Fenced {
        producer: String,
        collection: String,
    },
    /// A producer that the server does not know continues its sequence numbers.
    #[error(
        "the server does not know producer {} in collection {}, which goes on at sequence number {first_seq}: one \
         that is silent for seven days is forgotten, so what it sent before may be there or not; look for it, and \
         send what is missing as another producer. A new one begins with 1, or says with the option first_seq where \
         it does",
        Quoted(producer),
        Quoted(collection)
    )]
    UnknownProducer {
        producer: String,
        collection: String,
        first_seq: u64,
    },
}

/// A text in quotes, as Python's `repr` shows it, which clients have always seen.
pub struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('\'') && !self.0.contains('"') {
            '"'
        } else {
            '\''
        };
        f.write_char(quote)?;
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                _ if letter == quote => write!(f, "\\{letter}")?,
                _ if letter.is_control() => write!(f, "\\x{:02x}", u32::from(letter))?,
                _ => f.write_char(letter)?,
            }
        }
        f.write_char(quote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_python() {
        for (text, shown) in [
            ("till-1", "'till-1'"),
            ("it's", "\"it's\""),
            ("both ' and \"", "'both \\' and \"'"),
            ("a\\b\n\u{0}ä", "'a\\\\b\\n\\x00ä'"),
        ] {
            assert_eq!(Quoted(text).to_string(), shown);
        }
    }
}
