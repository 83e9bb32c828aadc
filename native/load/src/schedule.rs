//! When each message is due, in nanoseconds from the start: the clients take turns at equal distances.

/// An open loop's timetable, which does not depend on what the server does.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    messages_per_second: f64,
    clients: u64,
}

impl Schedule {
    /// `rate` is in writes a second, of all clients together.
    pub fn new(rate: f64, clients: usize, coalesce: usize) -> Self {
        Schedule {
            messages_per_second: rate / coalesce as f64,
            clients: clients as u64,
        }
    }

    /// Returns when the message with this number, counted over all clients, is due.
    pub fn due(&self, number: u64) -> u64 {
        (number as f64 * 1e9 / self.messages_per_second) as u64
    }

    pub fn client_of(&self, number: u64) -> usize {
        (number % self.clients) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_its_share_at_equal_distances() {
        let schedule = Schedule::new(1000.0, 4, 1);
        assert_eq!(
            (0..6).map(|n| schedule.client_of(n)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 0, 1]
        );
        assert_eq!(
            (0..3).map(|n| schedule.due(n)).collect::<Vec<_>>(),
            [0, 1_000_000, 2_000_000]
        );
    }

    #[test]
    fn coalesced_writes_are_due_together() {
        let schedule = Schedule::new(1000.0, 2, 50);
        assert_eq!(schedule.due(20), 1_000_000_000);
    }

    #[test]
    fn rounding_does_not_add_up() {
        let schedule = Schedule::new(3.0, 1, 1);
        assert_eq!(schedule.due(3_000_000), 1_000_000_000_000_000);
    }
}
