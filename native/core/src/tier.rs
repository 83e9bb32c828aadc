//! The tiers that a write passes on its way, each a promise of its own.

/// How far a write has come; a higher tier includes the ones below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// Accepted by the server. Lost if its process ends.
    Memory,
    /// In the write-ahead log, synced. Survives the process.
    LocalDisk,
    /// In the object store. Survives the machine.
    ObjectStorage,
    /// In a snapshot of the collection's Iceberg table. Seen by every reader of the table.
    Committed,
}

impl Tier {
    /// All tiers, lowest first.
    pub const ALL: [Tier; 4] = [
        Tier::Memory,
        Tier::LocalDisk,
        Tier::ObjectStorage,
        Tier::Committed,
    ];

    /// The name under which clients know it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Memory => "MEMORY",
            Tier::LocalDisk => "LOCAL_DISK",
            Tier::ObjectStorage => "OBJECT_STORAGE",
            Tier::Committed => "COMMITTED",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// A set of tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiers(u8);

impl Tiers {
    /// The set without a tier.
    pub const NONE: Tiers = Tiers(0);
    /// The set of all tiers.
    pub const ALL: Tiers = Tiers(0b1111);

    /// The set with one tier more.
    #[must_use]
    pub fn with(self, tier: Tier) -> Tiers {
        Tiers(self.0 | 1 << tier as u8)
    }

    /// Whether a tier is in the set.
    pub fn contains(self, tier: Tier) -> bool {
        self.0 & (1 << tier as u8) != 0
    }

    /// The tiers of the set, lowest first.
    pub fn iter(self) -> impl Iterator<Item = Tier> {
        Tier::ALL
            .into_iter()
            .filter(move |tier| self.contains(*tier))
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Tiers {
        Tiers(bits & Tiers::ALL.0)
    }
}

impl FromIterator<Tier> for Tiers {
    fn from_iter<I: IntoIterator<Item = Tier>>(tiers: I) -> Tiers {
        tiers.into_iter().fold(Tiers::NONE, Tiers::with)
    }
}
