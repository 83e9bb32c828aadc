//! A stock Flight client against the server, over a real log.

// What a test cannot do without ends it: helpers are part of the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod connections;
mod hostile;
mod others;
mod streams;
mod support;
