#[cfg(not(loom))]
mod by_hand {
    use std::sync::atomic::AtomicU64 as Counter;
    use std::task::{Context, Waker};

    use proptest::prelude::*;

    use super::super::*;
    use crate::clock::Clock;

    /// Shows 0, 1, 2 and so on.
    #[derive(Debug, Default)]
    struct Ticks(Counter);

    impl Clock for Ticks {
        fn wall_us(&self) -> u64 {
            self.0.fetch_add(1, SeqCst)
        }

        fn running(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }

    fn watermarks(committed: &[(&str, u64, i64)]) -> Watermarks {
        let committed = committed.iter().map(|(name, lsn, snapshot)| {
            (
                (*name).into(),
                Committed {
                    lsn: *lsn,
                    snapshot_id: Some(*snapshot),
                },
            )
        });
        Watermarks::new(Arc::new(Ticks::default()), 0, 0, &committed.collect())
    }

    fn when(watermark: &Watermark, first: u64, last: u64) -> Vec<(u64, u64, u64, Option<i64>)> {
        let mut found = Vec::new();
        watermark.when(first, last, &mut found);
        found
            .into_iter()
            .map(|one| (one.first, one.last, one.at_us, one.snapshot_id))
            .collect()
    }

    fn is_woken(listener: &Listener) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let is_woken = listener.signal.poll(&mut context, NEWS).is_ready();
        listener.signal.lower(NEWS);
        is_woken
    }

    #[test]
    fn a_watermark_says_when_each_write_got_there() {
        let watermark = Watermark::new(10, Some(500), 0);
        assert!(watermark.advance(12, Some(501), 1));
        assert!(!watermark.advance(12, Some(777), 7));
        assert!(!watermark.advance(3, None, 7));
        assert!(watermark.advance(20, Some(502), 2));
        assert_eq!((watermark.lsn(), watermark.snapshot_id()), (20, Some(502)));
        assert_eq!(
            when(&watermark, 9, 20),
            [
                (9, 10, 0, Some(500)),
                (11, 12, 1, Some(501)),
                (13, 20, 2, Some(502))
            ]
        );
        assert_eq!(when(&watermark, 14, 15), [(14, 15, 2, Some(502))]);
        assert_eq!(
            when(&watermark, 12, 13),
            [(12, 12, 1, Some(501)), (13, 13, 2, Some(502))]
        );
    }

    proptest! {
        #[test]
        fn when_covers_a_range_exactly(first in 1..10_000_u64, length in 0..3_000_u64) {
            let watermark = Watermark::new(0, None, 0);
            let most = MOST_ADVANCES as u64;
            for at in 1..=most + 1_500 {
                watermark.advance(2 * at, None, at);
            }
            let last = (first + length).min(watermark.lsn());
            let oldest_kept = most / 2;
            let mut next = first;
            for (begin, end, at, _) in when(&watermark, first, last) {
                prop_assert_eq!(begin, next);
                for lsn in begin..=end {
                    prop_assert!(at == lsn.div_ceil(2) || at <= oldest_kept && lsn.div_ceil(2) <= at);
                }
                next = end + 1;
            }
            prop_assert_eq!(next, last + 1);
        }
    }

    #[test]
    fn only_those_are_woken_who_wait_for_it() {
        let watermarks = watermarks(&[("orders", 7, 70)]);
        let orders = Arc::new(Listener::new(watermarks.committed("orders")));
        orders.want(Tiers::NONE.with(Tier::LocalDisk).with(Tier::Committed));
        let others = Arc::new(Listener::new(watermarks.committed("others")));
        others.want(Tiers::NONE.with(Tier::Committed));
        watermarks.listen(&orders);
        watermarks.listen(&others);
        assert!(watermarks.advance_local_disk(5));
        assert!(is_woken(&orders) && !is_woken(&others));
        assert!(!watermarks.advance_local_disk(5)); // no news
        watermarks.advance_object_storage(5);
        assert!(!is_woken(&orders) && !is_woken(&others));
        watermarks.advance_committed("orders", 8, Some(71));
        assert!(is_woken(&orders) && !is_woken(&others));
        watermarks.forget(&orders);
        watermarks.advance_committed("orders", 9, Some(72));
        watermarks.advance_committed("others", 9, Some(72));
        assert!(!is_woken(&orders) && is_woken(&others));
    }

    #[test]
    fn committed_is_a_watermark_of_each_collection() {
        let watermarks = watermarks(&[("orders", 7, 70)]);
        assert_eq!(watermarks.committed("orders").lsn(), 7);
        assert_eq!(watermarks.committed("others").lsn(), 0);
        watermarks.advance_committed("others", 3, Some(1));
        assert_eq!(watermarks.committed("others").snapshot_id(), Some(1));
        assert_eq!(watermarks.committed("orders").snapshot_id(), Some(70));
    }
}

/// Every order in which an advance, a write and a look of the stream can meet.
#[cfg(loom)]
mod in_every_order {
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use loom::sync::Notify;

    use super::super::*;
    use crate::clock::Clock;

    #[derive(Debug)]
    struct NoClock;

    impl Clock for NoClock {
        fn wall_us(&self) -> u64 {
            0
        }

        fn running(&self) -> Duration {
            Duration::ZERO
        }
    }

    struct Woken(Notify);

    impl Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    /// Waits as a task does, and does not look again before it is woken.
    fn wait_for(listener: &Listener, woken: &std::sync::Arc<Woken>, flags: u8) {
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        while listener.signal.poll(&mut context, flags).is_pending() {
            woken.0.wait();
        }
        listener.signal.lower(flags);
    }

    /// All orders with at most three switches to another thread that none of them asks for.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn loom_an_advance_is_never_missed() {
        check(|| {
            let watermarks = Arc::new(Watermarks::new(
                std::sync::Arc::new(NoClock),
                0,
                0,
                &HashMap::new(),
            ));
            let listener = Arc::new(Listener::new(watermarks.committed("orders")));
            watermarks.listen(&listener);
            let syncing = {
                let watermarks = watermarks.clone();
                loom::thread::spawn(move || {
                    watermarks.advance_local_disk(2);
                })
            };
            // The reading task has got LSN 2, and tells the one that announces.
            let writing = {
                let listener = listener.clone();
                loom::thread::spawn(move || {
                    listener.want(Tiers::NONE.with(Tier::LocalDisk));
                    listener.signal.raise(HURRY);
                })
            };
            let woken = std::sync::Arc::new(Woken(Notify::new()));
            while watermarks.local_disk().lsn() < 2 {
                wait_for(&listener, &woken, NEWS | HURRY); // loom finds a task that is never woken
            }
            syncing.join().unwrap();
            writing.join().unwrap();
        });
    }

    #[test]
    fn loom_one_who_waits_for_room_is_woken_by_who_makes_it() {
        check(|| {
            let room = Arc::new((AtomicU64::new(0), crate::signal::Waiting::new()));
            let releasing: Vec<_> = (0..2)
                .map(|_| {
                    let room = room.clone();
                    loom::thread::spawn(move || {
                        room.0.fetch_add(1, SeqCst);
                        room.1.wake();
                    })
                })
                .collect();
            let woken = std::sync::Arc::new(Woken(Notify::new()));
            let waker = Waker::from(woken.clone());
            let mut context = Context::from_waker(&waker);
            let look = || (room.0.load(SeqCst) == 2).then_some(());
            while room.1.poll(&mut context, look).is_pending() {
                woken.0.wait();
            }
            for thread in releasing {
                thread.join().unwrap();
            }
        });
    }
}
