//! Errors of a run or of one of its clients.

use tonic::Status;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the load cannot be run as described: {0}")]
    Config(String),
    #[error("cannot connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("the server ended a stream with {code}: {message}")]
    Status { code: String, message: String },
    #[error("the server sent an acknowledgement that is not right: {0}")]
    Acknowledgement(String),
    #[error(
        "the server said nothing for {0} s while writes were waiting for their acknowledgement"
    )]
    Silence(f64),
    #[error(
        "the server ended a stream when {missing} of its {sent} writes were not acknowledged at {tier}"
    )]
    Unacknowledged {
        sent: u64,
        missing: u64,
        tier: &'static str,
    },
    #[error("the system refused what a load needs: {0}")]
    System(#[from] std::io::Error),
}

impl From<Status> for LoadError {
    fn from(status: Status) -> Self {
        LoadError::Status {
            code: format!("{:?}", status.code()),
            message: status.message().to_owned(),
        }
    }
}

impl LoadError {
    /// Names the kind of failure for whoever reads the report.
    pub fn kind(&self) -> &'static str {
        match self {
            LoadError::Config(_) => "config",
            LoadError::Connect { .. } => "connect",
            LoadError::Status { .. } => "status",
            LoadError::Acknowledgement(_) => "acknowledgement",
            LoadError::Silence(_) => "silence",
            LoadError::Unacknowledged { .. } => "unacknowledged",
            LoadError::System(_) => "system",
        }
    }
}
