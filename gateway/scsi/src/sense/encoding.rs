//! Bytes of sense data: fixed format (SPC-4, 4.5.3) and descriptor format (4.5.2).

use bytes::Bytes;

use super::{FieldPointer, Sense, SenseFormat};

/// ADDITIONAL SENSE LENGTH of fixed format sense data that ends with the sense key specific bytes.
const FIXED_ADDITIONAL_LENGTH: u8 = 10;

impl Sense {
    /// The sense data as a host reads it.
    pub fn to_bytes(&self, format: SenseFormat) -> Bytes {
        match format {
            SenseFormat::Fixed => Bytes::copy_from_slice(&self.fixed()),
            SenseFormat::Descriptor => self.descriptors().into(),
        }
    }

    /// ```text
    /// byte 0      VALID (7), response code 70h
    ///      2      sense key (3..0)
    ///      3..6   INFORMATION
    ///      7      additional sense length
    ///      8..11  command-specific information
    ///     12, 13  additional sense code, qualifier
    ///     14      field replaceable unit code
    ///     15..17  SKSV (7) and sense key specific data
    /// ```
    fn fixed(&self) -> [u8; 18] {
        // VALID stays 0 when the value needs more than the four bytes (SPC-4, 4.5.3).
        let information = self.information.and_then(|information| u32::try_from(information).ok());
        let valid = if information.is_some() { 0x80 } else { 0 };
        let [i0, i1, i2, i3] = information.unwrap_or(0).to_be_bytes();
        let [s0, s1, s2] = self.field.map_or([0; 3], FieldPointer::sense_key_specific);
        [
            0x70 | valid,
            0,
            self.key as u8,
            i0,
            i1,
            i2,
            i3,
            FIXED_ADDITIONAL_LENGTH,
            0,
            0,
            0,
            0,
            self.additional.code(),
            self.additional.qualifier(),
            0,
            s0,
            s1,
            s2,
        ]
    }

    /// Eight bytes of header, then an information descriptor (type 00h, 12 bytes) and a sense key specific one
    /// (type 02h, 8 bytes), where there is something to say.
    fn descriptors(&self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key as u8, self.additional.code(), self.additional.qualifier(), 0, 0, 0, 0];
        let mut additional_length = 0;
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
            additional_length += 12;
        }
        if let Some(field) = self.field {
            let [s0, s1, s2] = field.sense_key_specific();
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0, s0, s1, s2, 0]);
            additional_length += 8;
        }
        bytes[7] = additional_length;
        bytes
    }
}

impl FieldPointer {
    /// SKSV (7), C/D (6), BPV (3), bit pointer (2..0); field pointer in two bytes (SPC-4, 4.5).
    fn sense_key_specific(self) -> [u8; 3] {
        let in_cdb = if self.in_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
        let [high, low] = self.byte.to_be_bytes();
        [0x80 | in_cdb | bit, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::{AdditionalSense, SenseKey};

    #[test]
    fn fixed_format_points_at_the_bit_in_error() {
        let sense = Sense::invalid_bit_in_cdb(1, 5);
        let expected = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcd, 0, 1];
        assert_eq!(sense.to_bytes(SenseFormat::Fixed)[..], expected);
    }

    #[test]
    fn descriptor_format_points_at_the_byte_of_the_parameter_list() {
        let sense = Sense::invalid_field_in_parameter_list(0x0102);
        let expected = [0x72, 5, 0x26, 0, 0, 0, 0, 8, 0x02, 6, 0, 0, 0x80, 0x01, 0x02, 0];
        assert_eq!(sense.to_bytes(SenseFormat::Descriptor)[..], expected);
    }

    #[test]
    fn information_of_32_bits_is_valid_in_both_formats() {
        let sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(0x1234);
        let fixed = [0xf0, 0, 3, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0];
        assert_eq!(sense.to_bytes(SenseFormat::Fixed)[..], fixed);
        let descriptor = [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 0x0a, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34];
        assert_eq!(sense.to_bytes(SenseFormat::Descriptor)[..], descriptor);
    }

    #[test]
    fn information_beyond_32_bits_is_not_valid_in_fixed_format() {
        let sense =
            Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(1 << 32);
        let bytes = sense.to_bytes(SenseFormat::Fixed);
        assert_eq!(bytes[..7], [0x70, 0, 3, 0, 0, 0, 0]);
    }

    #[test]
    fn sense_reads_like_the_standard_in_a_log() {
        let text = Sense::invalid_bit_in_cdb(1, 7).to_string();
        assert_eq!(text, "ILLEGAL REQUEST, INVALID FIELD IN CDB (24h/00h), CDB byte 1 bit 7");
    }
}
