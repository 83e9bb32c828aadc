//! Admits messages that come on standard input, for tests that compare the outcome with pyarrow's.
//!
//! A request is a line of JSON and then bytes: `{"schema": n, "kept": n, "required": [..], "most": n, "messages":
//! [[header, body], ..]}`. The schema is a message without its frame, the kept one an encapsulated message. The
//! answer is a line of JSON for each message, with the bytes behind it that the log would have: `{"bytes": n}`,
//! `{}` for a dictionary, or `{"error": .., "message": ..}` for the one that ends the stream.
#![allow(clippy::print_stdout)]

use std::io::{self, BufRead, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use headrace_server::admission::{Admission, Admitted, Arrived};
use headrace_server::budget::Unpacking;
use headrace_server::control::Plan;
use headrace_server::refusal::Refusal;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Request {
    schema: usize,
    kept: usize,
    required: Vec<usize>,
    most: usize,
    messages: Vec<(usize, usize)>,
    /// Leaves out so many rows at the front of each batch.
    #[serde(default)]
    without: usize,
}

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut input = io::BufReader::new(io::stdin().lock());
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let request: Request = serde_json::from_str(&line)?;
        line.clear();
        let schema = read(&mut input, request.schema)?;
        let kept = read(&mut input, request.kept)?;
        let mut messages = Vec::new();
        for (header, body) in &request.messages {
            messages.push((read(&mut input, *header)?, read(&mut input, *body)?));
        }
        let mut admission = Admission::new(
            "c",
            request.most,
            Arc::new(Unpacking::new(4 * request.most)),
        );
        let plan = Plan {
            kept_schema: kept,
            required: request.required,
        };
        let mut ended = begin(&mut admission, schema, &plan).err();
        for (header, body) in messages {
            if ended.is_none() {
                let one = || runtime.block_on(one(&mut admission, header, body, request.without));
                let outcome = catch_unwind(AssertUnwindSafe(one));
                match outcome.unwrap_or_else(|_| Err(Refusal::internal("panic"))) {
                    Ok(Some(admitted)) => {
                        let size = admitted.front.len() + admitted.body.len();
                        writeln!(output, "{}", json!({"bytes": size}))?;
                        output.write_all(&admitted.front)?;
                        output.write_all(&admitted.body)?;
                        continue;
                    }
                    Ok(None) => {
                        writeln!(output, "{{}}")?;
                        continue;
                    }
                    Err(refusal) => ended = Some(refusal),
                }
            }
            let refusal = ended
                .as_ref()
                .map(|refusal| (&refusal.name, &refusal.message));
            writeln!(
                output,
                "{}",
                json!({"error": refusal.map(|of| of.0), "message": refusal.map(|of| of.1)})
            )?;
        }
        output.flush()?;
    }
    Ok(())
}

fn begin(admission: &mut Admission, schema: Bytes, plan: &Plan) -> Result<(), Refusal> {
    let begun = catch_unwind(AssertUnwindSafe(|| {
        admission.arrived(schema, Bytes::new())?;
        admission.follow(plan)
    }));
    begun.unwrap_or_else(|_| Err(Refusal::internal("panic")))
}

async fn one(
    admission: &mut Admission,
    header: Bytes,
    body: Bytes,
    without: usize,
) -> Result<Option<Admitted>, Refusal> {
    match admission.arrived(header, body)? {
        Arrived::Prelude => Ok(None),
        Arrived::Batch(batch) => {
            let admitted = admission.admit(batch).await?;
            if without == 0 {
                Ok(Some(admitted))
            } else {
                admission.without(&admitted, without).map(Some)
            }
        }
    }
}

fn read(from: &mut impl Read, size: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; size];
    from.read_exact(&mut bytes)?;
    Ok(Bytes::from(bytes))
}
