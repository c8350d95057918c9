//! iSCSI names (RFC 7143, 4.2.7): `iqn.`, `eui.` and `naa.`, checked and normalised once, so that two names are equal
//! exactly when their bytes are.
//!
//! RFC 3722 has the sender prepare a name (case folding, NFKC) before it goes on the wire. Case is folded again here,
//! because initiators that let a person type the name are known to send it as typed; compatibility forms (NFKC) are
//! taken as they come.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// Longest iSCSI name in bytes (RFC 7143, 4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// A well-formed iSCSI name in lower case, at most 223 bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(Arc<str>);

/// Why a text is no iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing there.
    #[error("an iSCSI name cannot be empty")]
    Empty,
    /// More than 223 bytes.
    #[error("an iSCSI name has at most {MAX_NAME_BYTES} bytes, this one has {len_bytes}")]
    TooLong {
        /// Length of the text, in bytes.
        len_bytes: usize,
    },
    /// Bytes that are not UTF-8 (only from [`IscsiName::from_bytes`]).
    #[error("an iSCSI name is UTF-8 text")]
    NotUtf8,
    /// Neither `iqn.`, `eui.` nor `naa.`.
    #[error("an iSCSI name begins with iqn., eui. or naa.")]
    UnknownType,
    /// A character that RFC 3722 does not let through.
    #[error("the character {character:?} is not allowed in an iSCSI name")]
    Character {
        /// The first one.
        character: char,
    },
    /// No `yyyy-mm.` after `iqn.`.
    #[error("iqn. is followed by a year and month (yyyy-mm) and a dot")]
    Date,
    /// No naming authority after the date.
    #[error("the date of an iqn. name is followed by a reversed domain name")]
    Authority,
    /// `eui.` without exactly 16 hexadecimal digits.
    #[error("eui. is followed by 16 hexadecimal digits")]
    Eui,
    /// `naa.` without exactly 16 or 32 hexadecimal digits.
    #[error("naa. is followed by 16 or 32 hexadecimal digits")]
    Naa,
}

impl IscsiName {
    /// Checks and normalises `text`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        too_long(text)?;
        let name = text.to_lowercase();
        // Folding can lengthen a text (U+0130), so what is kept is measured too.
        too_long(&name)?;
        if let Some(character) = name.chars().find(|&c| !is_allowed(c)) {
            return Err(NameError::Character { character });
        }
        match name.split_at_checked(4) {
            Some(("iqn.", rest)) => check_iqn(rest)?,
            Some(("eui.", rest)) if is_hex(rest) && rest.len() == 16 => {}
            Some(("eui.", _)) => return Err(NameError::Eui),
            Some(("naa.", rest)) if is_hex(rest) && matches!(rest.len(), 16 | 32) => {}
            Some(("naa.", _)) => return Err(NameError::Naa),
            _ => return Err(NameError::UnknownType),
        }
        Ok(Self(name.into()))
    }

    /// [`IscsiName::parse`] for bytes off the wire.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| NameError::NotUtf8)?)
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn too_long(text: &str) -> Result<(), NameError> {
    let len_bytes = text.len();
    if len_bytes > MAX_NAME_BYTES { Err(NameError::TooLong { len_bytes }) } else { Ok(()) }
}

/// Letters and digits of any script, `-`, `.` and `:` (RFC 3722, 6). The underscore is not in that set but in the host
/// names from which initiators make their default names, so it passes.
fn is_allowed(c: char) -> bool {
    matches!(c, '-' | '.' | ':' | '_')
        || c.is_alphanumeric()
        || (!c.is_ascii() && !c.is_control() && !c.is_whitespace())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What follows `iqn.`: `yyyy-mm.` and a naming authority, then perhaps a colon and anything (RFC 7143, 4.2.7.3).
fn check_iqn(rest: &str) -> Result<(), NameError> {
    let (date, authority) = rest.split_once('.').ok_or(NameError::Date)?;
    let (year, month) = date.split_once('-').ok_or(NameError::Date)?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let month_exists = matches!(month.parse::<u8>(), Ok(1..=12));
    if year.len() != 4 || month.len() != 2 || !digits(year) || !digits(month) || !month_exists {
        return Err(NameError::Date);
    }
    let domain = authority.split(':').next().unwrap_or_default();
    if domain.is_empty() { Err(NameError::Authority) } else { Ok(()) }
}

impl FromStr for IscsiName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl AsRef<str> for IscsiName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_names_of_the_rfc_and_of_initiators_in_the_field_then_accepted() {
        for text in [
            "iqn.2001-04.com.example",
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2001-04.com.example:storage.tape1.sys1.xyz",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
            "iqn.1991-05.com.microsoft:win-host_1",
            "iqn.1998-01.com.vmware:esx01-4fd3a2b1",
            "iqn.2016-04.com.open-iscsi:5f3a9d3c1b2",
            "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-ls",
            "iqn.2008-11.org.linux-kvm",
            "iqn.2001-04.de.beispiel:grüße",
        ] {
            assert_eq!(IscsiName::parse(text).map(|name| name.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn parse_upper_case_then_folded() {
        let name = IscsiName::parse("IQN.2001-04.COM.Example:Ä").unwrap();
        assert_eq!(name.as_str(), "iqn.2001-04.com.example:ä");
        assert_eq!(name, "iqn.2001-04.com.example:ä".parse().unwrap());
        assert_eq!(IscsiName::parse("EUI.02004567A425678D").unwrap().as_str(), "eui.02004567a425678d");
    }

    #[test]
    fn parse_malformed_then_the_error_says_why() {
        for (text, error) in [
            ("", NameError::Empty),
            ("iqn", NameError::UnknownType),
            ("foo.2001-04.com.example", NameError::UnknownType),
            ("iqn.", NameError::Date),
            ("iqn.2001-04", NameError::Date),
            ("iqn.201-04.com", NameError::Date),
            ("iqn.2001-13.com", NameError::Date),
            ("iqn.2001-00.com", NameError::Date),
            ("iqn.2001-4.com", NameError::Date),
            ("iqn.2001-+4.com", NameError::Character { character: '+' }),
            ("iqn.2001-04.", NameError::Authority),
            ("iqn.2001-04.:x", NameError::Authority),
            ("iqn.2001-04.com.example:a b", NameError::Character { character: ' ' }),
            ("iqn.2001-04.com.example:a,b", NameError::Character { character: ',' }),
            ("iqn.2001-04.com.example:a\0", NameError::Character { character: '\0' }),
            ("iqn.2001-04.com.example:a/b", NameError::Character { character: '/' }),
            ("eui.02004567a425678", NameError::Eui),
            ("eui.02004567a425678g", NameError::Eui),
            ("naa.52004567ba64678d0", NameError::Naa),
        ] {
            assert_eq!(IscsiName::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(IscsiName::from_bytes(b"iqn.2001-04.com.example:\xff"), Err(NameError::NotUtf8));
    }

    #[test]
    fn parse_at_and_above_the_longest_name_then_223_bytes_pass() {
        let longest = format!("iqn.2001-04.com.example:{}", "x".repeat(MAX_NAME_BYTES - 24));
        assert_eq!(IscsiName::parse(&longest).unwrap().as_str().len(), MAX_NAME_BYTES);
        assert_eq!(IscsiName::parse(&format!("{longest}x")), Err(NameError::TooLong { len_bytes: 224 }));
    }

    #[test]
    fn parse_text_that_grows_by_folding_then_measured_afterwards() {
        let text = format!("iqn.2001-04.com.example:{}", "\u{130}".repeat(99));
        assert_eq!(text.len(), 222);
        assert!(matches!(IscsiName::parse(&text), Err(NameError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn parse_anything_then_no_panic_and_accepted_names_are_stable(text in "\\PC{0,40}", prefix in "(iqn\\.2001-04\\.a|eui\\.|naa\\.|)") {
            if let Ok(name) = IscsiName::parse(&format!("{prefix}{text}")) {
                prop_assert!(name.as_str().len() <= MAX_NAME_BYTES);
                prop_assert!(IscsiName::parse(name.as_str()).is_ok_and(|again| again == name));
            }
        }
    }
}
