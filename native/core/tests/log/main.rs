//! The log as its server sees it, on files that fail, wait and are read back.

// What a test cannot do without ends it: helpers are part of the tests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod failing_disk;
mod files;
mod group_commit;
mod numbers;
mod producers;
mod reader;
mod segments;
mod states;
mod streams;
mod support;
