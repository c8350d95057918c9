//! Serial number arithmetic (RFC 1982, with 32 bits), in which CmdSN, StatSN, DataSN and R2TSN are compared
//! (RFC 7143, 4.2.2).
//!
//! There is no total order on serial numbers, hence no `Ord`: two numbers that lie 2^31 apart are neither less nor
//! greater.

/// A sequence number that wraps around at 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// The number `count` steps on; `count` up to 2^31 - 1 gives a number that is not less.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` steps back.
    #[must_use]
    pub fn minus(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// The next number.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// Steps from `earlier` up to this number, modulo 2^32.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this number comes before `other`.
    pub fn is_before(self, other: Self) -> bool {
        matches!(other.since(self), 1..=0x7fff_ffff)
    }

    /// Whether this number comes after `other`.
    pub fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn is_before_when_the_numbers_wrap_then_still_orders_them() {
        assert!(SerialNumber(u32::MAX).is_before(SerialNumber(0)));
        assert!(SerialNumber(0).is_after(SerialNumber(u32::MAX)));
        assert!(SerialNumber(0xffff_fff0).is_before(SerialNumber(0x10)));
        assert!(!SerialNumber(0x10).is_before(SerialNumber(0xffff_fff0)));
    }

    #[test]
    fn is_before_when_the_numbers_are_half_the_circle_apart_then_neither_is_before() {
        let (a, b) = (SerialNumber(5), SerialNumber(0x8000_0005));
        assert!(!a.is_before(b) && !b.is_before(a) && !a.is_after(b) && !b.is_after(a));
    }

    proptest! {
        #[test]
        fn plus_when_less_than_half_the_circle_then_is_after(start: u32, count in 1u32..0x8000_0000) {
            let (start, end) = (SerialNumber(start), SerialNumber(start).plus(count));
            prop_assert!(start.is_before(end));
            prop_assert!(end.is_after(start));
            prop_assert!(!end.is_before(start));
            prop_assert_eq!(end.since(start), count);
            prop_assert_eq!(end.minus(count), start);
        }

        #[test]
        fn is_before_when_both_are_shifted_then_does_not_change(a: u32, b: u32, shift: u32) {
            let before = SerialNumber(a).is_before(SerialNumber(b));
            let shifted = SerialNumber(a).plus(shift).is_before(SerialNumber(b).plus(shift));
            prop_assert_eq!(before, shifted);
        }

        #[test]
        fn is_before_when_asked_both_ways_then_at_most_one_holds(a: u32, b: u32) {
            let (a, b) = (SerialNumber(a), SerialNumber(b));
            prop_assert!(!(a.is_before(b) && b.is_before(a)));
            prop_assert!(a.is_before(b) || b.is_before(a) || a == b || b.since(a) == 0x8000_0000);
        }
    }
}
