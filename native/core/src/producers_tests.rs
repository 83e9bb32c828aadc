//! Compares what the log remembers of producers with a model that remembers everything.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::state::ProducerState;

/// Sequence numbers left out, LSNs of others, and writes.
type Step = (u64, u64, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec((0..4_u64, 0..4_u64, 1..6_u64), 0..20)
}

/// A producer, and which LSN each of its sequence numbers got.
fn write(steps: &[Step]) -> (Numbers, BTreeMap<u64, u64>) {
    let mut numbers = Numbers::default();
    let mut lsns = BTreeMap::new();
    let (mut seq, mut lsn) = (1, 1);
    for (left_out, others, count) in steps {
        (seq, lsn) = (seq + left_out, lsn + others);
        numbers.wrote(
            Run {
                seq,
                lsn,
                count: *count,
            },
            0,
        );
        lsns.extend((0..*count).map(|n| (seq + n, lsn + n)));
        (seq, lsn) = (seq + count, lsn + count);
    }
    (numbers, lsns)
}

fn spread(runs: &[Run]) -> BTreeMap<u64, u64> {
    let each = |run: &Run| {
        let run = *run;
        (0..run.count).map(move |n| (run.seq + n, if run.lsn > 0 { run.lsn + n } else { 0 }))
    };
    runs.iter().flat_map(each).collect()
}

proptest! {
    #[test]
    fn what_was_written_is_found_and_what_was_left_out_or_forgotten_is_zero(
        steps in steps(), seq in 1..60_u64, count in 1..20_u64, committed in 0..100_u64
    ) {
        let (mut numbers, lsns) = write(&steps);
        let last = lsns.keys().last().copied().unwrap_or(0);
        prop_assert_eq!(numbers.last_seq, last);
        let lsn_of = |n: u64| lsns.get(&n).copied().unwrap_or(0);
        let expected: BTreeMap<_, _> = (seq..seq + count).map(|n| (n, lsn_of(n))).collect();
        prop_assert_eq!(spread(&numbers.find(seq, count)), expected);
        numbers.forget_until(committed);
        for (number, lsn) in spread(&numbers.find(seq, count)) {
            prop_assert!(lsn == lsn_of(number) || (lsn == 0 && lsns[&number] <= committed));
        }
        prop_assert_eq!(numbers.last_seq, last);
        if last > 0 {
            prop_assert_eq!(spread(&numbers.find(last, 1)), BTreeMap::from([(last, lsns[&last])]));
        }
    }

    #[test]
    fn what_was_left_out_is_told_from_what_was_forgotten(
        steps in steps(), seq in 1..60_u64, count in 1..20_u64, committed in 0..100_u64
    ) {
        let (mut numbers, lsns) = write(&steps);
        numbers.forget_until(committed);
        let first = numbers.runs.first().map_or(numbers.last_seq + 1, |run| run.seq);
        let mut wanted = (seq..seq + count).filter(|n| first <= *n && *n <= numbers.last_seq && !lsns.contains_key(n));
        let known = (numbers.last_seq + 1).saturating_sub(seq).min(count);
        prop_assert_eq!(numbers.left_out(seq, known), wanted.next());
    }

    #[test]
    fn resuming_tells_of_all_that_came_after(steps in steps(), lsn in 0..100_u64) {
        let (numbers, lsns) = write(&steps);
        let after: BTreeMap<_, _> = lsns.into_iter().filter(|(_, at)| *at > lsn).collect();
        prop_assert_eq!(spread(&numbers.after(lsn)), after);
    }
}

fn name(collection: &str, id: &str) -> ProducerName {
    ProducerName {
        collection: collection.into(),
        id: id.into(),
    }
}

fn state(producers: &[(&str, &str, u64, u64)]) -> LogState {
    let producers = producers
        .iter()
        .map(|(collection, id, last_seq, last_lsn)| {
            let last = ProducerState {
                last_seq: *last_seq,
                last_lsn: *last_lsn,
                seen_us: 0,
            };
            (Arc::new(name(collection, id)), last)
        });
    LogState {
        producers: producers.collect(),
        ..LogState::default()
    }
}

fn run(seq: u64, lsn: u64, count: u64) -> Run {
    Run { seq, lsn, count }
}

#[test]
fn neighbours_are_one_run() {
    let mut numbers = Numbers::default();
    for seq in 1..=1000 {
        numbers.wrote(run(seq, seq + 50, 1), 0);
    }
    assert_eq!(numbers.runs, [run(1, 51, 1000)]);
}

#[test]
fn the_oldest_runs_are_forgotten_when_there_are_too_many() {
    let mut numbers = Numbers::default();
    let last = MOST_RUNS as u64 + 10;
    for seq in 1..=last {
        numbers.wrote(run(seq, seq * 2, 1), 0);
    }
    assert!(numbers.runs.len() <= MOST_RUNS);
    assert_eq!(numbers.find(last, 1), [run(last, 2 * last, 1)]);
    assert_eq!(numbers.find(1, 1), [run(1, 0, 1)]);
    assert_eq!(numbers.crowded_out, MOST_RUNS as u64 / 2);
}

#[test]
fn one_that_begins_anew_keeps_nothing_of_before() {
    let mut numbers = Numbers::default();
    numbers.wrote(run(5, 5, 3), 1);
    numbers.wrote(run(1, 9, 2), 2);
    assert_eq!(
        (numbers.last_seq, numbers.seen_us, &numbers.runs[..]),
        (2, 2, &[run(1, 9, 2)][..])
    );
}

#[test]
fn a_restart_knows_the_last_number_and_the_runs_that_the_log_has() {
    let state = state(&[("orders", "a", 9, 90), ("orders", "b", 3, 4)]);
    let runs = vec![
        (name("orders", "a"), vec![run(5, 80, 2), run(7, 88, 3)]),
        (name("orders", "forgotten"), vec![run(1, 1, 1)]),
    ];
    let producers = Producers::new(&state, runs);
    let first = producers.take_over(name("orders", "a"), 1, false);
    let found = first.numbers.lock().find(4, 6);
    assert_eq!(found, [run(4, 0, 1), run(5, 80, 2), run(7, 88, 3)]);
    let second = producers.take_over(name("orders", "b"), 1, false);
    assert_eq!(second.numbers.lock().find(3, 1), [run(3, 4, 1)]);
    for unknown in [name("others", "a"), name("orders", "forgotten")] {
        assert_eq!(
            producers
                .take_over(unknown, 1, false)
                .numbers
                .lock()
                .last_seq,
            0
        );
    }
}

#[test]
fn a_commit_concerns_the_producers_of_its_collection() {
    let producers = Producers::default();
    for collection in ["orders", "others"] {
        let producer = producers.take_over(name(collection, "a"), 1, false);
        producer.numbers.lock().wrote(run(1, 1, 1), 0);
        producer.numbers.lock().wrote(run(5, 5, 1), 0);
    }
    producers.committed("orders", 1);
    let find = |collection| {
        producers
            .take_over(name(collection, "a"), 1, false)
            .numbers
            .lock()
            .find(1, 1)
    };
    assert_eq!(find("orders"), [run(1, 0, 1)]);
    assert_eq!(find("others"), [run(1, 1, 1)]);
}

#[test]
fn only_those_are_forgotten_who_are_silent_and_gone_from_the_log_and_whom_nobody_holds() {
    let state = state(&[
        ("orders", "held", 1, 5),
        ("orders", "in the log", 1, 6),
        ("orders", "gone", 1, 4),
    ]);
    let producers = Producers::new(&state, Vec::new());
    let held = producers.take_over(name("orders", "held"), 1, false);
    let is_in_log = |name: &ProducerName| &*name.id == "in the log";
    producers.forget_silent(PRODUCER_SILENCE_US, is_in_log);
    assert_eq!(producers.forgotten_lsn(), 0);
    producers.forget_silent(PRODUCER_SILENCE_US + 1, is_in_log);
    assert_eq!(producers.forgotten_lsn(), 4);
    assert_eq!(producers.known.lock().len(), 2);
    held.numbers.lock().holder = None;
    producers.forget_silent(PRODUCER_SILENCE_US + 1, |_| false);
    assert_eq!(
        (producers.forgotten_lsn(), producers.known.lock().len()),
        (6, 0)
    );
}

/// What was given up, by the ids of producers.
fn given_up(id: &str, runs: &[Run], unsure_until: u64) -> HashMap<String, GivenUpNumbers> {
    let runs = runs.to_vec();
    HashMap::from([(id.into(), GivenUpNumbers { runs, unsure_until })])
}

#[test]
fn what_was_given_up_keeps_its_lsns_when_later_writes_are_committed() {
    let producers = Producers::new(&state(&[("orders", "a", 6, 60)]), Vec::new());
    let producer = producers.take_over(name("orders", "a"), 1, false);
    let dropped = [run(3, 30, 2), run(5, 50, 1)];
    producers.give_up("orders", given_up("a", &dropped, 0), false);
    let mut numbers = producer.numbers.lock();
    let expected = [
        run(1, 0, 2),
        run(3, 30, 2),
        run(5, 50, 1),
        run(6, 60, 1),
        run(7, 0, 1),
    ];
    assert_eq!(numbers.find(1, 7), expected);
    assert_eq!(numbers.left_out(1, 6), None);
    assert_eq!(numbers.unsure(1, 6), None);
    assert_eq!(
        numbers.after(30),
        [run(4, 31, 1), run(5, 50, 1), run(6, 60, 1)]
    );
    numbers.wrote(run(1, 70, 1), 0); // after it was forgotten
    assert_eq!(numbers.after(0), [run(1, 70, 1)]);
}

#[test]
fn runs_that_are_still_remembered_come_before_what_was_given_up() {
    let runs = vec![(name("orders", "a"), vec![run(4, 41, 1), run(5, 50, 2)])];
    let producers = Producers::new(&state(&[("orders", "a", 6, 51)]), runs);
    let producer = producers.take_over(name("orders", "a"), 1, false);
    producers.give_up("orders", given_up("a", &[run(3, 30, 3)], 0), false);
    let numbers = producer.numbers.lock();
    assert_eq!(
        numbers.find(3, 4),
        [run(3, 30, 1), run(4, 41, 1), run(5, 50, 2)]
    );
    assert_eq!(numbers.after(0), numbers.find(3, 4));
}

#[test]
fn a_number_is_unsure_if_it_may_have_been_given_up_and_has_no_lsn() {
    let all = [
        ("orders", "a", 9, 90),
        ("orders", "b", 5, 50),
        ("others", "a", 9, 91),
    ];
    let producers = Producers::new(&state(&all), Vec::new());
    let unsure = |collection, id, seq| {
        let producer = producers.take_over(name(collection, id), 1, false);
        let numbers = producer.numbers.lock();
        numbers.unsure(seq, 1)
    };
    producers.give_up("orders", given_up("a", &[run(2, 20, 1)], 4), false);
    assert_eq!(
        [1, 2, 4, 5, 9].map(|seq| unsure("orders", "a", seq)),
        [Some(1), None, Some(4), None, None]
    );
    assert_eq!(unsure("orders", "b", 1), None);
    producers.give_up("orders", HashMap::new(), true);
    assert_eq!(unsure("orders", "b", 4), Some(4));
    assert_eq!(unsure("orders", "b", 5), None);
    assert_eq!(unsure("others", "a", 1), None);
    let until = |collection, id| {
        let producer = producers.take_over(name(collection, id), 1, false);
        let numbers = producer.numbers.lock();
        numbers.unsure_until()
    };
    assert_eq!(
        [
            until("orders", "a"),
            until("orders", "b"),
            until("others", "a")
        ],
        [8, 4, 0]
    );
}

#[test]
fn what_was_given_up_may_be_of_one_who_was_forgotten_and_began_anew() {
    let mut before = state(&[("orders", "a", 9, 90)]);
    before.forgotten_lsn = 30;
    let producers = Producers::new(&before, Vec::new());
    let producer = producers.take_over(name("orders", "a"), 1, false);
    let runs = [run(2, 20, 1), run(4, 40, 1)];
    producers.give_up("orders", given_up("a", &runs, 0), false);
    let numbers = producer.numbers.lock();
    assert_eq!(numbers.unsure(2, 1), Some(2));
    assert_eq!(numbers.find(4, 1), [run(4, 40, 1)]);
}

#[test]
fn what_is_given_up_is_known_by_producer() {
    let runs = vec![(name("orders", "a"), vec![run(1, 10, 5), run(7, 20, 2)])];
    let all = [("orders", "a", 8, 21), ("others", "a", 8, 21)];
    let producers = Producers::new(&state(&all), runs);
    producers.take_over(name("orders", "new"), 1, false);
    let expected = KnownNumbers {
        id: "a".into(),
        last_seq: 8,
        crowded_out: 0,
        runs: vec![run(3, 12, 3), run(7, 20, 1)],
    };
    assert_eq!(producers.known("orders", &[(12, 16), (18, 20)]), [expected]);
}
