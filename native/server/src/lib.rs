//! The port of ingest: Arrow Flight over HTTP/2 and TLS, tokens, and `DoExchange` as streams of writes.
//!
//! A call comes in at [`port`]. `DoExchange` is a [`session`], which admits each message ([`admission`]) before the
//! log gives it an LSN, and sends acknowledgements ([`acks`]). Every other call is forwarded to the server in Python.
//! Decisions that are made once per schema or stream are asked of [`control`]; none is made there for a single write.

pub mod access;
pub mod acks;
pub mod admission;
pub mod budget;
pub mod control;
pub mod grpc;
pub mod options;
pub mod port;
pub mod refusal;
pub mod repr;
pub mod server;
pub mod session;
