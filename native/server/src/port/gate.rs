//! Who may connect. Nobody waits at the gate, so that nobody who says nothing holds up others: where there is no room
//! for one more, a connection goes that has not finished its handshake. If half of these have said nothing it is the
//! oldest of them, and else the oldest of those that began to speak and did not finish. A client speaks as soon as it
//! is connected, so an honest one is in long before its turn to go comes, however many of either kind there are.

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
    /// There were too many.
    pub full: AtomicU64,
    /// They did not finish their handshake in time, or before others needed the room.
    pub handshake: AtomicU64,
}

/// In the order in which they came, with what tells each that it has to go.
#[derive(Default)]
struct Inside {
    next: u64,
    silent: BTreeMap<u64, oneshot::Sender<()>>,
    speaking: BTreeMap<u64, oneshot::Sender<()>>,
    connections: usize,
}

impl Inside {
    fn handshakes(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    /// Makes room; false if everybody has finished the handshake.
    fn send_one_away(&mut self) -> bool {
        let oldest = if self.silent.len() >= self.speaking.len() {
            self.silent.pop_first()
        } else {
            self.speaking.pop_first()
        };
        let Some((_, go)) = oldest else {
            return false;
        };
        // It has just ended by itself if it hears nothing any more.
        let _ = go.send(());
        true
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
        if handshakes + inside.connections >= self.most_connections
            || handshakes >= self.most_handshakes
        {
            if !inside.send_one_away() {
                self.turned_away.full.fetch_add(1, Relaxed);
                return None;
            }
            self.turned_away.handshake.fetch_add(1, Relaxed);
        }
        let id = inside.next;
        inside.next += 1;
        let (go, sent_away) = oneshot::channel();
        inside.silent.insert(id, go);
        let gate = Arc::clone(self);
        Some((Arrival { gate, id }, sent_away))
    }

    /// Hangs up on somebody who has not finished the handshake, if there is one: descriptors have run out.
    pub fn make_room(&self) {
        if self.inside.lock().send_one_away() {
            self.turned_away.handshake.fetch_add(1, Relaxed);
        }
    }

    pub fn most_connections(&self) -> usize {
        self.most_connections
    }

    /// How many have finished their handshake, and how many have not.
    pub fn count(&self) -> (usize, usize) {
        let inside = self.inside.lock();
        (inside.connections, inside.handshakes())
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

    /// It has finished; `None` if it was sent away meanwhile.
    pub fn enter(self) -> Option<Entered> {
        let mut inside = self.gate.inside.lock();
        let (silent, speaking) = (
            inside.silent.remove(&self.id),
            inside.speaking.remove(&self.id),
        );
        silent.or(speaking)?;
        inside.connections += 1;
        drop(inside);
        Some(Entered(Arc::clone(&self.gate)))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut inside = self.gate.inside.lock();
        inside.silent.remove(&self.id);
        inside.speaking.remove(&self.id);
    }
}

/// A connection that counts as one until it is dropped.
pub struct Entered(Arc<Gate>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.inside.lock().connections -= 1;
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
    fn connections_that_are_established_never_go() {
        let gate = Gate::new(3, 3);
        let entered: Vec<_> = (0..2).map(|_| gate.arrive().unwrap().0.enter()).collect();
        let mut silent = gate.arrive().unwrap();
        let last = gate.arrive().unwrap();
        assert!(is_away(&mut silent));
        let last = last.0.enter();
        assert!(gate.arrive().is_none());
        assert_eq!(gate.count(), (3, 0));
        assert_eq!(gate.turned_away.full.load(Relaxed), 1);
        drop((entered, last));
        assert!(gate.arrive().is_some());
    }
}
