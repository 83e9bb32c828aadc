//! The load generator: stock Arrow Flight clients that write on schedule, and the floor they are compared with.

mod acks;
mod client;
mod config;
mod encoder;
mod error;
mod floor;
mod histogram;
mod ledger;
mod messages;
mod outgoing;
mod report;
mod run;
mod schedule;

pub use config::Config;
pub use error::LoadError;
pub use floor::start_floor;
pub use report::Report;
pub use run::Load;
