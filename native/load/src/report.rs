//! The measurements of a run, as JSON. Times are in milliseconds unless their name says otherwise.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;

use crate::acks::TIERS;
use crate::config::Config;
use crate::error::LoadError;
use crate::histogram::{CURVE, Histogram};
use crate::ledger::{Ledger, Span, TierRecord};

#[derive(Debug, Serialize)]
pub struct Report {
    pub clients: usize,
    pub sent: u64,
    pub tiers: BTreeMap<&'static str, Tier>,
    /// How late the generator itself was to send, which is part of the latencies. Only with a rate.
    pub late: Option<Latency>,
    /// Each client's acknowledged writes a second at the first tier.
    pub rates: Vec<f64>,
    pub errors: Vec<ClientError>,
}

#[derive(Debug, Serialize)]
pub struct Tier {
    /// How many writes were announced at this tier, the warm-up included.
    pub count: u64,
    /// The rate over the measured time, which ends with the last acknowledgement if the run has a number of writes.
    pub per_second: f64,
    /// From the start to the last acknowledgement.
    pub seconds: f64,
    pub latency: Latency,
    pub notice: Latency,
}

#[derive(Debug, Serialize)]
pub struct Latency {
    pub count: u64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    pub curve: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub struct ClientError {
    pub client: usize,
    pub kind: &'static str,
    pub message: String,
}

impl Report {
    pub(crate) fn of(
        config: &Config,
        span: Span,
        ledgers: &[impl Deref<Target = Ledger>],
        outcomes: &[Result<(), LoadError>],
        late: Option<Histogram>,
    ) -> Report {
        let expected = config.expected();
        let tiers = (0..TIERS.len()).filter(|tier| expected[*tier]).map(|tier| {
            let records: Vec<_> = ledgers.iter().map(|ledger| &ledger.tiers[tier]).collect();
            (TIERS[tier], tier_of(&records, span))
        });
        let errors = outcomes.iter().enumerate().filter_map(|(client, outcome)| {
            outcome.as_ref().err().map(|error| ClientError {
                client,
                kind: error.kind(),
                message: error.to_string(),
            })
        });
        Report {
            clients: config.clients,
            sent: ledgers.iter().map(|ledger| ledger.sent()).sum(),
            tiers: tiers.collect(),
            late: late.map(|late| latency_of(&late)),
            rates: ledgers
                .iter()
                .map(|ledger| rate_of(&[&ledger.tiers[0]], span))
                .collect(),
            errors: errors.collect(),
        }
    }
}

fn tier_of(records: &[&TierRecord], span: Span) -> Tier {
    let (mut latency, mut notice) = (Histogram::default(), Histogram::default());
    for record in records {
        latency.merge(&record.latency);
        notice.merge(&record.notice);
    }
    Tier {
        count: records.iter().map(|record| record.count).sum(),
        per_second: rate_of(records, span),
        seconds: last_of(records) as f64 / 1e9,
        latency: latency_of(&latency),
        notice: latency_of(&notice),
    }
}

fn rate_of(records: &[&TierRecord], span: Span) -> f64 {
    let within: u64 = records.iter().map(|record| record.within).sum();
    let until = if span.until == u64::MAX {
        last_of(records)
    } else {
        span.until
    };
    let nanos = until.saturating_sub(span.from);
    if nanos == 0 {
        0.0
    } else {
        within as f64 * 1e9 / nanos as f64
    }
}

fn last_of(records: &[&TierRecord]) -> u64 {
    records
        .iter()
        .map(|record| record.last_at)
        .max()
        .unwrap_or(0)
}

fn latency_of(histogram: &Histogram) -> Latency {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    Latency {
        count: histogram.count(),
        p50: ms(histogram.quantile(0.5)),
        p90: ms(histogram.quantile(0.9)),
        p99: ms(histogram.quantile(0.99)),
        max: ms(histogram.max()),
        curve: CURVE.map(|share| ms(histogram.quantile(share))).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(within: u64, last_at: u64) -> TierRecord {
        TierRecord {
            count: within + 5,
            within,
            last_at,
            ..TierRecord::default()
        }
    }

    #[test]
    fn a_rate_is_of_the_measured_time() {
        let (one, two) = (record(300, 9_000_000_000), record(100, 1));
        let timed = Span {
            from: 1_000_000_000,
            until: 3_000_000_000,
        };
        assert_eq!(rate_of(&[&one, &two], timed), 200.0);
        assert_eq!(tier_of(&[&one, &two], timed).count, 410);
    }

    #[test]
    fn a_rate_of_a_number_of_writes_ends_with_the_last_acknowledgement() {
        let counted = Span {
            from: 0,
            until: u64::MAX,
        };
        assert_eq!(rate_of(&[&record(300, 2_000_000_000)], counted), 150.0);
        assert_eq!(rate_of(&[&record(0, 0)], counted), 0.0);
    }
}
