//! A histogram of durations whose buckets grow with the value, so that each is known to one part in 128.

const SUB_BITS: u32 = 8;
const HALF: usize = 1 << (SUB_BITS - 1);
const BUCKETS: usize = (64 - SUB_BITS as usize + 2) * HALF;

/// The quantiles that a plot is drawn from.
pub const CURVE: [f64; 15] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0,
];

/// Nanoseconds by bucket. It is made empty and takes its memory with the first value.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    pub fn record(&mut self, value: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.counts[bucket_of(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the highest value of the bucket that at least this share of all values are in or below, and never
    /// more than the maximum: a latency is overstated rather than understated.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

/// Values below 2 * HALF have a bucket each; above, each power of two has HALF buckets.
fn bucket_of(value: u64) -> usize {
    let shift = (64 - SUB_BITS).saturating_sub(value.leading_zeros());
    (value >> shift) as usize + shift as usize * HALF
}

fn highest_of(bucket: usize) -> u64 {
    if bucket < 2 * HALF {
        return bucket as u64;
    }
    let shift = (bucket / HALF - 1) as u32;
    let lowest = ((bucket % HALF + HALF) as u64) << shift;
    lowest + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_recorded_is_zero() {
        let empty = Histogram::default();
        assert_eq!(
            (empty.count(), empty.quantile(0.99), empty.max()),
            (0, 0, 0)
        );
    }

    #[test]
    fn the_largest_value_has_a_bucket() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile(1.0), u64::MAX);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket(value: u64) {
            let bucket = bucket_of(value);
            prop_assert!(value <= highest_of(bucket));
            prop_assert!(bucket == 0 || value > highest_of(bucket - 1));
            prop_assert!(highest_of(bucket) - value <= value / HALF as u64);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(0_u64..10_000_000_000, 1..300),
            share in 0.0_f64..=1.0,
        ) {
            let (mut left, mut right) = (Histogram::default(), Histogram::default());
            for (number, value) in values.iter().enumerate() {
                if number % 2 == 0 { left.record(*value) } else { right.record(*value) }
            }
            left.merge(&right);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let found = left.quantile(share);
            prop_assert!(found >= exact && found - exact <= exact / HALF as u64);
            prop_assert_eq!(left.count(), values.len() as u64);
            prop_assert_eq!(left.max(), values[values.len() - 1]);
        }
    }
}
