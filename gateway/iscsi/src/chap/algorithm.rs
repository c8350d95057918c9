//! The hashes of CHAP. The numbers are those of IANA's registry "PPP Authentication Algorithms", which RFC 7143,
//! 12.1.3, refers to. SHA-1 (6) is registered but not spoken: nobody who knows it lacks the better ones.

use std::fmt;

use sha2::Digest;
use subtle::ConstantTimeEq;

use crate::environment::Secret;

/// A hash of CHAP that is spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChapAlgorithm {
    /// 5: MD5 (RFC 1994), 16 bytes.
    Md5,
    /// 7: SHA-256, 32 bytes.
    Sha256,
    /// 8: SHA3-256, 32 bytes.
    Sha3_256,
}

impl ChapAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Md5, Self::Sha256, Self::Sha3_256];

    /// The number in CHAP_A.
    pub fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The one with this number, if it is spoken here.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| u64::from(algorithm.number()) == number)
    }

    /// Length of its hash in bytes; our challenges are as long (RFC 1994, 4.1).
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha256 | Self::Sha3_256 => 32,
        }
    }

    /// The response that knowledge of `secret` gives: the hash of identifier, secret and challenge (RFC 1994, 4.1).
    pub(crate) fn respond(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Response {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Response {
            let mut hasher = D::new();
            for part in parts {
                hasher.update(part);
            }
            Response(hasher.finalize().to_vec())
        }
        let parts = [&[identifier], secret.expose(), challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Sha3_256 => "SHA3-256",
        })
    }
}

/// A response (CHAP_R), computed here. Compared in constant time.
pub(crate) struct Response(Vec<u8>);

impl Response {
    /// Whether `received` is the same, in a time that depends on its length only.
    pub(crate) fn matches(&self, received: &[u8]) -> bool {
        self.0.ct_eq(received).into()
    }

    /// For the wire.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chap::encode_hex;

    /// Computed with Python: `hashlib.new(name, bytes([identifier]) + secret + challenge).hexdigest()` for the names
    /// `md5`, `sha256` and `sha3_256`; the challenge is 16 or 32 bytes counting up from 0.
    const VECTORS: &str = include_str!("vectors.txt");

    /// The secrets of the vectors, by their name in the file.
    fn secret(name: &str) -> Secret {
        let bytes: Vec<u8> = match name {
            "one-byte" => vec![0x00],
            "text" => b"A #% secret @ with / blanks".to_vec(),
            "every-byte" => (1..=255).collect(),
            "high-bytes" => vec![0xff; 255],
            _ => panic!("no secret named {name}"),
        };
        Secret::new(&bytes).unwrap()
    }

    #[test]
    fn respond_to_vectors_of_another_implementation_then_the_same() {
        let mut count = 0;
        for line in VECTORS.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let &[number, identifier, name, challenge_bytes, digest] = &fields[..] else { panic!("{line}") };
            let algorithm = ChapAlgorithm::from_number(number.parse().unwrap()).unwrap();
            let challenge: Vec<u8> = (0..challenge_bytes.parse().unwrap()).collect();
            let response = algorithm.respond(identifier.parse().unwrap(), &secret(name), &challenge);
            assert_eq!(encode_hex(response.as_bytes()), format!("0x{digest}"), "{line}");
            assert_eq!(response.as_bytes().len(), algorithm.digest_bytes());
            count += 1;
        }
        assert_eq!(count, 24);
    }

    #[test]
    fn from_number_of_sha_1_and_others_then_none() {
        for number in [0, 1, 2, 3, 4, 6, 9, 255, 256 + 5, u64::MAX] {
            assert_eq!(ChapAlgorithm::from_number(number), None);
        }
    }

    #[test]
    fn matches_when_shorter_longer_or_different_then_false() {
        let response = ChapAlgorithm::Md5.respond(1, &secret("text"), b"challenge");
        let right = response.as_bytes().to_vec();
        assert!(response.matches(&right));
        assert!(!response.matches(&right[..15]));
        assert!(!response.matches(&[&right[..], &[0]].concat()));
        assert!(!response.matches(&[]));
        for bit in 0..128 {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!response.matches(&wrong));
        }
    }
}
