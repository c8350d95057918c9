//! LUNs, as far as a session has to compare them.

/// Whether two LUN fields name the same logical unit: hosts may write the same number in peripheral device or in
/// flat space addressing (SAM-5, 4.7.7). Other formats are compared byte by byte.
pub(super) fn is_same_lun(a: [u8; 8], b: [u8; 8]) -> bool {
    a == b || matches!((number(a), number(b)), (Some(a), Some(b)) if a == b)
}

fn number(lun: [u8; 8]) -> Option<u16> {
    let [high, low, rest @ ..] = lun;
    match high >> 6 {
        _ if rest != [0; 6] => None,
        // Peripheral device addressing, bus 0.
        0 if high == 0 => Some(u16::from(low)),
        1 => Some(u16::from_be_bytes([high & 0x3f, low])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_same_lun_when_the_addressing_differs_then_compares_the_number() {
        let lun = |high, low| [high, low, 0, 0, 0, 0, 0, 0];
        assert!(is_same_lun(lun(0, 5), lun(0x40, 5)));
        assert!(is_same_lun(lun(0x41, 5), lun(0x41, 5)));
        assert!(!is_same_lun(lun(0x41, 5), lun(0, 5)));
        assert!(!is_same_lun(lun(0, 5), lun(0, 6)));
        assert!(!is_same_lun(lun(0, 5), lun(1, 5)));
        assert!(!is_same_lun([0, 5, 0, 0, 0, 0, 0, 1], lun(0, 5)));
        assert!(is_same_lun([0xc1, 1, 2, 3, 4, 5, 6, 7], [0xc1, 1, 2, 3, 4, 5, 6, 7]));
    }
}
