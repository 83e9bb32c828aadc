//! Compares what a stream still has to announce with a model that forgets nothing.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const EVERYTHING: u64 = u64::MAX;

#[derive(Debug, Clone)]
enum Step {
    /// So many LSNs of others come before it.
    Add(u64, u64),
    /// A producer sends writes again, which have their old LSNs.
    AddAgain(u64, u64),
    Take(Tier, u64, u64),
    Skip,
}

fn step() -> impl Strategy<Value = Step> {
    let tier = prop::sample::select(Tier::ALL.to_vec());
    prop_oneof![
        (0..4_u64, 1..7_u64).prop_map(|(others, count)| Step::Add(others, count)),
        (1..40_u64, 1..7_u64).prop_map(|(first, count)| Step::AddAgain(first, count)),
        (tier, prop_oneof![0..80_u64, Just(EVERYTHING)], 1..10_u64)
            .prop_map(|(tier, watermark, most)| Step::Take(tier, watermark, most)),
        Just(Step::Skip),
    ]
}

fn take(in_flight: &mut InFlight, tier: Tier, watermark: u64, most: u64) -> Vec<u64> {
    let mut taken = Vec::new();
    let count = in_flight.take(tier, watermark, most, |first, last| {
        taken.extend(first..=last)
    });
    assert_eq!(count, taken.len() as u64);
    taken
}

proptest! {
    #[test]
    fn each_tier_hears_of_each_write_once_and_in_order(
        tiers in prop::sample::subsequence(Tier::ALL.to_vec(), 1..=4), steps in prop::collection::vec(step(), 0..40)
    ) {
        let mut in_flight = InFlight::new(tiers.iter().copied().collect());
        let mut model: [VecDeque<u64>; 4] = Default::default();
        let add = |in_flight: &mut InFlight, model: &mut [VecDeque<u64>; 4], first: u64, count: u64| {
            in_flight.add(first, count);
            for tier in &tiers {
                model[tier.index()].extend(first..first + count);
            }
        };
        let mut next_lsn = 1;
        for step in steps {
            match step {
                Step::Add(others, count) => {
                    next_lsn += others;
                    add(&mut in_flight, &mut model, next_lsn, count);
                    next_lsn += count;
                }
                Step::AddAgain(first, count) if first + count <= next_lsn => {
                    add(&mut in_flight, &mut model, first, count);
                }
                Step::AddAgain(..) => {}
                Step::Take(tier, watermark, most) if tiers.contains(&tier) => {
                    let queue = &mut model[tier.index()];
                    let count = queue.iter().take(most as usize).take_while(|lsn| **lsn <= watermark).count();
                    let expected: Vec<_> = queue.drain(..count).collect();
                    prop_assert_eq!(take(&mut in_flight, tier, watermark, most), expected);
                }
                Step::Take(..) => {}
                Step::Skip => {
                    in_flight.skip(Tier::Memory);
                    model[0].clear();
                }
            }
            for tier in Tier::ALL {
                prop_assert_eq!(in_flight.pending(tier), model[tier.index()].len() as u64);
            }
            let wanted: Tiers = Tier::ALL.into_iter().filter(|tier| !model[tier.index()].is_empty()).collect();
            prop_assert_eq!(in_flight.wanted(), wanted);
        }
        for tier in tiers {
            let left = take(&mut in_flight, tier, EVERYTHING, EVERYTHING);
            prop_assert_eq!(left, model[tier.index()].iter().copied().collect::<Vec<_>>());
        }
        prop_assert_eq!(in_flight.wanted(), Tiers::NONE);
    }
}

#[test]
fn a_range_that_grows_after_it_was_announced_is_announced_further() {
    let mut in_flight = InFlight::new(Tiers::NONE.with(Tier::Memory).with(Tier::LocalDisk));
    for first in [1, 3, 5] {
        in_flight.add(first, 2);
        assert_eq!(
            take(&mut in_flight, Tier::Memory, EVERYTHING, 10),
            [first, first + 1]
        );
    }
    assert_eq!(in_flight.ranges(), 1);
    assert_eq!(take(&mut in_flight, Tier::LocalDisk, 3, 10), [1, 2, 3]);
    assert_eq!(
        take(&mut in_flight, Tier::LocalDisk, EVERYTHING, 10),
        [4, 5, 6]
    );
}

#[test]
fn ranges_that_every_tier_has_announced_are_dropped() {
    let mut in_flight = InFlight::new(Tiers::ALL);
    for lsn in (1..100_000).step_by(2) {
        in_flight.add(lsn, 1);
        for tier in Tier::ALL {
            take(&mut in_flight, tier, EVERYTHING, 10);
        }
    }
    assert_eq!(in_flight.ranges(), 1);
    for lsn in (200_001..210_000).step_by(2) {
        in_flight.add(lsn, 1);
    }
    for tier in Tier::ALL {
        take(&mut in_flight, tier, EVERYTHING, EVERYTHING);
    }
    assert!(
        in_flight.ranges.capacity() <= 2 * KEPT_RANGES,
        "the room of a burst is given back"
    );
}

#[test]
fn a_million_writes_none_beside_another_take_less_than_50_mb() {
    let mut in_flight = InFlight::new(Tiers::ALL);
    for number in 0..1_000_000 {
        in_flight.add(2 * number + 1, 1);
    }
    assert_eq!(in_flight.ranges(), 1_000_000);
    assert!(in_flight.bytes() < 50 << 20);
}
