//! The eight bytes of a logical unit number (SAM-5, 4.7): peripheral device, flat space and well known addressing.

/// Highest LUN: what fits into the 14 bits of flat space addressing.
pub const MAX_LUN: u16 = 0x3fff;

/// LUNs up to this one are reported by peripheral device addressing, which every host understands.
const MAX_PERIPHERAL_LUN: u16 = 0xff;

/// What the LUN field of a command addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LunAddress {
    /// A logical unit by its number, 0 to [`MAX_LUN`].
    Unit(u16),
    /// The REPORT LUNS well known logical unit, C1h 01h (SPC-4, 8.2).
    ReportLunsWellKnown,
    /// A way of addressing that no logical unit of this target has.
    Other,
}

impl LunAddress {
    /// Reads the LUN field. Peripheral device and flat space addressing both reach every number that they can hold
    /// (SAM-5, 4.7.7.2 and 4.7.7.3); second and later levels must be zero, for there is no hierarchy here.
    pub fn from_bytes(lun: [u8; 8]) -> Self {
        let [first, second, rest @ ..] = lun;
        if rest != [0; 6] {
            return Self::Other;
        }
        match (first >> 6, first) {
            // Bus identifier 0 is this level; any other would be a bus behind the target.
            (0b00, 0) => Self::Unit(u16::from(second)),
            (0b01, _) => Self::Unit(u16::from_be_bytes([first & 0x3f, second])),
            (0b11, 0xc1) if second == 0x01 => Self::ReportLunsWellKnown,
            _ => Self::Other,
        }
    }

    /// The bytes as REPORT LUNS lists them; `None` for [`LunAddress::Other`] and numbers above [`MAX_LUN`].
    pub fn to_bytes(self) -> Option<[u8; 8]> {
        let [first, second] = match self {
            Self::Unit(number @ 0..=MAX_PERIPHERAL_LUN) => number.to_be_bytes(),
            Self::Unit(number @ ..=MAX_LUN) => (0x4000 | number).to_be_bytes(),
            Self::Unit(_) | Self::Other => return None,
            Self::ReportLunsWellKnown => [0xc1, 0x01],
        };
        Some([first, second, 0, 0, 0, 0, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_round_trip() {
        for number in 0..=MAX_LUN {
            let bytes = LunAddress::Unit(number).to_bytes().unwrap();
            assert_eq!(LunAddress::from_bytes(bytes), LunAddress::Unit(number));
        }
        assert_eq!(LunAddress::Unit(MAX_LUN + 1).to_bytes(), None);
    }

    #[test]
    fn small_numbers_are_peripheral_and_large_ones_flat() {
        assert_eq!(LunAddress::Unit(255).to_bytes(), Some([0, 255, 0, 0, 0, 0, 0, 0]));
        assert_eq!(LunAddress::Unit(256).to_bytes(), Some([0x41, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn flat_addressing_reaches_small_numbers_too() {
        assert_eq!(LunAddress::from_bytes([0x40, 5, 0, 0, 0, 0, 0, 0]), LunAddress::Unit(5));
    }

    #[test]
    fn other_methods_buses_and_levels_address_nothing() {
        for bytes in [
            [0x01, 5, 0, 0, 0, 0, 0, 0],
            [0x80, 0, 0, 0, 0, 0, 0, 0],
            [0xc1, 0x02, 0, 0, 0, 0, 0, 0],
            [0xd2, 0, 0, 1, 0, 0, 0, 0],
            [0, 0, 0, 1, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0xff; 8],
        ] {
            assert_eq!(LunAddress::from_bytes(bytes), LunAddress::Other, "{bytes:x?}");
        }
        let well_known = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];
        assert_eq!(LunAddress::from_bytes(well_known), LunAddress::ReportLunsWellKnown);
    }
}
