//! Who may connect. Nobody waits at the gate, so that nobody who says nothing holds up others: where there is no room
//! for one more, somebody goes of whom the server does nothing. These are connections that have not finished their
//! handshake, and idle ones, which have no call under way; of those who are more, the one goes that has been so for the
//! longest. If half of those in their handshake have said nothing it is the oldest of them, and else the oldest of
//! those that began to speak and did not finish. A client speaks as soon as it is connected, so an honest one is in
//! long before its turn to go comes, however many of either kind there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub struct Gate {
    most_connections: usize,
    most_handshakes: usize,
    inside: Mutex<Inside>,
    pub turned_away: TurnedAway,
}

/// Connections that the server hung up on.
#[derive(Debug, Default)]
pub struct TurnedAway {
    /// There were too many, and all of them had calls.
    pub full: AtomicU64,
    /// They did not finish their handshake in time, or before others needed the room.
    pub handshake: AtomicU64,
    /// They had no call, and others needed the room.
    pub idle: AtomicU64,
}

type Waiting = BTreeMap<u64, oneshot::Sender<()>>;

/// In the order in which they came or became idle, with what tells each that it has to go.
#[derive(Default)]
struct Inside {
    next: u64,
    silent: Waiting,
    speaking: Waiting,
    idle: Waiting,
    connections: usize,
}

impl Inside {
    fn handshakes(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn becomes_idle(&mut self, go: oneshot::Sender<()>) -> u64 {
        let number = self.number();
        self.idle.insert(number, go);
        number
    }
}

impl Gate {
    pub fn new(most_connections: usize, most_handshakes: usize) -> Arc<Self> {
        Arc::new(Self {
            most_connections,
            most_handshakes,
            inside: Mutex::default(),
            turned_away: TurnedAway::default(),
        })
    }

    /// Lets somebody in who has just connected, and says how it hears that it has to go. `None` if there is no room
    /// and nobody who can go.
    pub fn arrive(self: &Arc<Self>) -> Option<(Arrival, oneshot::Receiver<()>)> {
        let mut inside = self.inside.lock();
        let handshakes = inside.handshakes();
        let is_full = handshakes + inside.connections >= self.most_connections;
        if handshakes >= self.most_handshakes {
            self.end_handshake(&mut inside);
        } else if is_full && !self.send_one_away(&mut inside) {
            self.turned_away.full.fetch_add(1, Relaxed);
            return None;
        }
        let id = inside.number();
        let (go, sent_away) = oneshot::channel();
        inside.silent.insert(id, go);
        let gate = Arc::clone(self);
        Some((Arrival { gate, id }, sent_away))
    }

    /// Hangs up on somebody who can go, if there is one: descriptors have run out.
    pub fn make_room(&self) {
        self.send_one_away(&mut self.inside.lock());
    }

    /// Makes room; false if everybody has a call.
    fn send_one_away(&self, inside: &mut Inside) -> bool {
        if inside.handshakes() >= inside.idle.len() {
            return self.end_handshake(inside);
        }
        let Some((_, go)) = inside.idle.pop_first() else {
            return false;
        };
        inside.connections -= 1;
        self.turned_away.idle.fetch_add(1, Relaxed);
        let _ = go.send(());
        true
    }

    fn end_handshake(&self, inside: &mut Inside) -> bool {
        let oldest = if inside.silent.len() >= inside.speaking.len() {
            inside.silent.pop_first()
        } else {
            inside.speaking.pop_first()
        };
        let Some((_, go)) = oldest else {
            return false;
        };
        self.turned_away.handshake.fetch_add(1, Relaxed);
        // It has just ended by itself if it hears nothing any more.
        let _ = go.send(());
        true
    }

    pub fn most_connections(&self) -> usize {
        self.most_connections
    }

    /// How many have finished their handshake, and how many have not.
    pub fn count(&self) -> (usize, usize) {
        let inside = self.inside.lock();
        (inside.connections, inside.handshakes())
    }

    /// How many have finished their handshake and have no call.
    pub fn idle(&self) -> usize {
        self.inside.lock().idle.len()
    }
}

/// Somebody who has not finished the handshake.
pub struct Arrival {
    gate: Arc<Gate>,
    id: u64,
}

impl Arrival {
    /// Notes that it has said something.
    pub fn spoke(&self) {
        let mut inside = self.gate.inside.lock();
        if let Some(go) = inside.silent.remove(&self.id) {
            inside.speaking.insert(self.id, go);
        }
    }

    /// Notes that it did not finish in time.
    pub fn is_late(&self) {
        self.gate.turned_away.handshake.fetch_add(1, Relaxed);
    }

    /// It has finished, and is idle; `None` if it was sent away meanwhile.
    pub fn enter(self) -> Option<Entered> {
        let mut inside = self.gate.inside.lock();
        let (silent, speaking) = (
            inside.silent.remove(&self.id),
            inside.speaking.remove(&self.id),
        );
        let go = silent.or(speaking)?;
        inside.connections += 1;
        let calls = Calls {
            open: 0,
            idle: inside.becomes_idle(go),
            go: None,
        };
        drop(inside);
        Some(Entered(Arc::new(Seat {
            gate: Arc::clone(&self.gate),
            calls: Mutex::new(calls),
        })))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut inside = self.gate.inside.lock();
        inside.silent.remove(&self.id);
        inside.speaking.remove(&self.id);
    }
}

struct Seat {
    gate: Arc<Gate>,
    calls: Mutex<Calls>,
}

struct Calls {
    open: usize,
    /// The number that it has among those that are idle,
    idle: u64,
    /// or what tells it to go, if it has calls.
    go: Option<oneshot::Sender<()>>,
}

/// A connection that counts as one until it is dropped, or is sent away.
pub struct Entered(Arc<Seat>);

impl Entered {
    /// A call has begun; `None` if the connection was sent away meanwhile.
    pub fn call(&self) -> Option<Call> {
        let mut calls = self.0.calls.lock();
        if calls.open == 0 {
            calls.go = Some(self.0.gate.inside.lock().idle.remove(&calls.idle)?);
        }
        calls.open += 1;
        Some(Call(Arc::clone(&self.0)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        let mut inside = self.0.gate.inside.lock();
        if calls.go.take().is_some() || inside.idle.remove(&calls.idle).is_some() {
            inside.connections -= 1;
        }
    }
}

/// A call that is under way.
pub struct Call(Arc<Seat>);

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.open -= 1;
        if calls.open == 0
            && let Some(go) = calls.go.take()
        {
            calls.idle = self.0.gate.inside.lock().becomes_idle(go);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Arrived = (Arrival, oneshot::Receiver<()>);

    fn is_away((_, sent_away): &mut Arrived) -> bool {
        sent_away.try_recv().is_ok()
    }

    #[test]
    fn the_oldest_that_has_said_nothing_makes_room_and_then_the_oldest_that_spoke() {
        let gate = Gate::new(10, 3);
        let mut arrivals: Vec<_> = (0..3).map(|_| gate.arrive().unwrap()).collect();
        arrivals[0].0.spoke();
        let fourth = gate.arrive().unwrap();
        assert_eq!(
            arrivals.iter_mut().map(is_away).collect::<Vec<_>>(),
            [false, true, false]
        );
        arrivals[2].0.spoke();
        fourth.0.spoke();
        let _fifth = gate.arrive().unwrap();
        assert!(is_away(&mut arrivals[0]));
        assert_eq!(gate.count(), (0, 3));
        assert_eq!(gate.turned_away.handshake.load(Relaxed), 2);
        assert!(arrivals.remove(0).0.enter().is_none());
        let entered = fourth.0.enter();
        assert_eq!(gate.count(), (1, 2));
        drop((entered, arrivals));
        assert_eq!(gate.count(), (0, 1));
    }

    #[test]
    fn who_came_just_now_has_time_to_speak() {
        let gate = Gate::new(10, 4);
        let mut stuck: Vec<_> = (0..4).map(|_| gate.arrive().unwrap()).collect();
        stuck.iter().for_each(|(arrival, _)| arrival.spoke());
        let mut first = gate.arrive().unwrap();
        let _second = gate.arrive().unwrap();
        assert!(!is_away(&mut first) && is_away(&mut stuck[0]) && is_away(&mut stuck[1]));
        assert!(first.0.enter().is_some());
    }

    #[test]
    fn who_has_been_idle_for_the_longest_makes_room_and_who_has_a_call_never_goes() {
        let gate = Gate::new(4, 4);
        let mut sent_away = Vec::new();
        let mut entered = Vec::new();
        for _ in 0..4 {
            let (arrival, away) = gate.arrive().unwrap();
            entered.push(arrival.enter().unwrap());
            sent_away.push(away);
        }
        let mut is_away = |number: usize| sent_away[number].try_recv().is_ok();
        let _call = entered[0].call().unwrap();
        let again = (entered[1].call().unwrap(), entered[1].call().unwrap());
        drop(again);
        assert_eq!((gate.count(), gate.idle()), ((4, 0), 3));
        let fifth = gate.arrive().unwrap();
        assert!(is_away(2) && !is_away(1));
        assert!(entered[2].call().is_none());
        assert_eq!((gate.count(), gate.idle()), ((3, 1), 2));
        let _fifth = fifth.0.enter().unwrap();
        let _calls: Vec<_> = [1, 3]
            .map(|number: usize| entered[number].call().unwrap())
            .into();
        let _busy = _fifth.call().unwrap();
        assert!(gate.arrive().is_none());
        assert_eq!(gate.turned_away.idle.load(Relaxed), 1);
        assert_eq!(gate.turned_away.full.load(Relaxed), 1);
        drop(entered);
        assert_eq!((gate.count(), gate.idle()), ((1, 0), 0));
    }

    #[test]
    fn those_who_shake_hands_and_idle_ones_make_room_for_each_other_by_their_number() {
        let gate = Gate::new(4, 4);
        let entered: Vec<_> = (0..2).map(|_| gate.arrive().unwrap().0.enter()).collect();
        let mut silent: Vec<_> = (0..2).map(|_| gate.arrive().unwrap()).collect();
        let _more = gate.arrive().unwrap();
        assert!(is_away(&mut silent[0]));
        drop(silent);
        let _last = (gate.arrive().unwrap(), gate.idle());
        assert_eq!((gate.idle(), gate.count()), (2, (2, 2)));
        drop(_more);
        let _idle = gate.arrive().unwrap().0.enter();
        let _newest = gate.arrive().unwrap();
        assert_eq!(gate.turned_away.idle.load(Relaxed), 1);
        drop(entered);
        assert_eq!((gate.idle(), gate.count()), (1, (1, 2)));
    }
}
