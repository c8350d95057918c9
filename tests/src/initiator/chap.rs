//! CHAP (RFC 1994; RFC 7143, 12.1.3) with the hashes that IANA has registered for iSCSI.

use md5::Digest;

use super::text::BinaryForm;

/// A CHAP algorithm: its number in `CHAP_A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// 5, mandatory in RFC 7143.
    Md5,
    /// 7.
    Sha256,
    /// 8.
    Sha3_256,
}

impl Algorithm {
    /// The number that stands for it in `CHAP_A`.
    pub fn number(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
            Self::Sha3_256 => "8",
        }
    }

    /// What the target's session list calls it.
    pub fn session_list_name(self) -> &'static str {
        match self {
            Self::Md5 => "CHAP-MD5",
            Self::Sha256 => "CHAP-SHA256",
            Self::Sha3_256 => "CHAP-SHA3-256",
        }
    }

    /// The one with this number.
    pub fn from_number(number: &str) -> Option<Self> {
        [Self::Md5, Self::Sha256, Self::Sha3_256].into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// The response to a challenge: the hash of identifier, secret and challenge (RFC 1994, 4.1).
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut digest = D::new();
            parts.into_iter().for_each(|part| digest.update(part));
            digest.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

/// A name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// `CHAP_N`.
    pub name: String,
    /// 1 to 255 bytes, of any value.
    pub secret: Vec<u8>,
}

impl Credential {
    /// A name and its secret.
    pub fn new(name: &str, secret: impl AsRef<[u8]>) -> Self {
        Self { name: name.to_owned(), secret: secret.as_ref().to_vec() }
    }
}

/// How this initiator authenticates, and whether it wants the target to.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The algorithms offered, in order of preference.
    pub algorithms: Vec<Algorithm>,
    /// What the initiator proves.
    pub own: Credential,
    /// What the target has to prove: mutual CHAP.
    pub target: Option<Credential>,
    /// How binary values are written.
    pub form: BinaryForm,
    /// Sends the target's own challenge back to it, as an attacker without the secret would.
    pub reflect: bool,
}

impl Chap {
    /// One-way CHAP with one algorithm.
    pub fn one_way(algorithm: Algorithm, own: Credential) -> Self {
        Self { algorithms: vec![algorithm], own, target: None, form: BinaryForm::Hex, reflect: false }
    }

    /// Mutual CHAP with one algorithm.
    pub fn mutual(algorithm: Algorithm, own: Credential, target: Credential) -> Self {
        Self { target: Some(target), ..Self::one_way(algorithm, own) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initiator::text::encode_binary;

    #[test]
    fn response_when_computed_then_as_another_implementation_says() {
        // Made with Python's hashlib: H(bytes([0x27]) + b"a secret of 20 bytes" + bytes(range(16))).
        let challenge: Vec<u8> = (0..16).collect();
        for (algorithm, expected) in [
            (Algorithm::Md5, "0xc3e6447f796b17f307e21eb654766665"),
            (Algorithm::Sha256, "0x8dfb5acd941e7b5ddbca02264cb75e77b1a56f4bac34cd3eafa8c0a009065304"),
            (Algorithm::Sha3_256, "0x20ca47d3877ac2610e0ec0d12637bdb22db8d75a3f3bec656e9454405caaa9b8"),
        ] {
            let response = algorithm.response(0x27, b"a secret of 20 bytes", &challenge);
            assert_eq!(encode_binary(&response, BinaryForm::Hex), expected);
        }
    }

    #[test]
    fn from_number_when_unknown_then_none() {
        assert_eq!(Algorithm::from_number("7"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::from_number("6"), None);
    }
}
