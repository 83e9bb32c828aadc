//! Log sequence numbers: how they are dealt out so that none is ever used twice.

/// A term has 2^36 LSNs, so that 2^17 terms stay below 2^53, up to where all JSON readers agree.
pub const TERM_BITS: u32 = 36;

/// Numbers are reserved in blocks of this size before the first of a block is given away. A restart skips what is
/// left of a block: its writes may have been acknowledged in memory.
pub const RESERVED_AT_ONCE: u64 = 1 << 20;

/// The first number of a term; LSNs start at 1.
pub fn first_lsn_of(term: u64) -> u64 {
    (term << TERM_BITS).max(1)
}

/// The last number of a term.
pub fn last_lsn_of(term: u64) -> u64 {
    first_lsn_of(term + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_share_no_number_and_fit_in_a_double() {
        assert_eq!(first_lsn_of(0), 1);
        for term in [0, 1, 2, (1 << 17) - 1] {
            assert_eq!(last_lsn_of(term) + 1, first_lsn_of(term + 1));
        }
        assert!(last_lsn_of((1 << 17) - 1) < 1 << 53);
    }
}
