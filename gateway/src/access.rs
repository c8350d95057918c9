//! Who may log in, and how they prove who they are: the access file.
//!
//! ```toml
//! [discovery]                                          # discovery sessions; without this part: anybody
//! chap = [{ user = "u", secret-file = "discovery.secret" }]
//! mutual-chap = { user = "t", secret-file = "target.secret" }
//!
//! [[target]]                                           # one for each volume that is not open to anybody
//! volume = "disk0"
//! initiators = ["iqn.1993-08.org.debian:01:abc"]       # without this line: any
//! chap = [{ user = "u", secret-file = "disk0.secret" }]
//! mutual-chap = { user = "t", secret-file = "target.secret" }
//! ```
//!
//! Secrets are any 1 to 255 bytes and stand in files of their own, so that no command line, log or listing shows them. A
//! file's name is relative to the access file's folder; one newline at the end does not belong to the secret.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use holdfast_iscsi::environment::{ChapAccess, Credential, Refusal, Secret};
use holdfast_iscsi::name::IscsiName;
use serde::Deserialize;
use thiserror::Error;

/// The rules of one gateway. The default lets everybody in everywhere.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    /// Whether there is an access file: then a volume without rules deserves a warning.
    is_given: bool,
    discovery: Option<ChapAccess>,
    targets: HashMap<String, TargetRules>,
}

/// The rules of one volume's target.
#[derive(Clone, Debug, Default)]
struct TargetRules {
    /// Names that may log in; any without it.
    initiators: Option<Vec<IscsiName>>,
    chap: Option<ChapAccess>,
}

/// Why an access file is refused.
#[derive(Debug, Error)]
pub enum AccessError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not TOML of the form above.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        source: toml::de::Error,
    },
    /// The TOML is well formed, but a rule cannot be right.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileForm {
    discovery: Option<ChapForm>,
    #[serde(default)]
    target: Vec<TargetForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TargetForm {
    volume: String,
    initiators: Option<Vec<String>>,
    chap: Option<Vec<CredentialForm>>,
    mutual_chap: Option<CredentialForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ChapForm {
    chap: Option<Vec<CredentialForm>>,
    mutual_chap: Option<CredentialForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CredentialForm {
    user: String,
    secret_file: PathBuf,
}

impl AccessRules {
    /// Reads an access file and the secrets that it names.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AccessError::Unreadable { path: path.to_owned(), source })?;
        let form: FileForm =
            toml::from_str(&text).map_err(|source| AccessError::Malformed { path: path.to_owned(), source })?;
        let reader = Reader { path };
        let discovery = match form.discovery {
            Some(ChapForm { chap, mutual_chap }) => reader.chap("discovery", chap, mutual_chap)?,
            None => None,
        };
        let mut targets = HashMap::new();
        for target in form.target {
            let place = format!("target of volume {:?}", target.volume);
            let initiators = target
                .initiators
                .map(|names| {
                    names
                        .iter()
                        .map(|name| {
                            IscsiName::parse(name)
                                .map_err(|error| reader.refused(format!("{place}: {name:?}: {error}")))
                        })
                        .collect::<Result<Vec<_>, _>>()
                })
                .transpose()?;
            let chap = reader.chap(&place, target.chap, target.mutual_chap)?;
            if targets.insert(target.volume, TargetRules { initiators, chap }).is_some() {
                return Err(reader.refused(format!("{place}: stands there twice; put its rules together")));
            }
        }
        Ok(Self { is_given: true, discovery, targets })
    }

    /// Volumes that rules are given for, so that a misspelt one can be reported.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    /// Whether everybody may use the target of `volume` although there are rules for others.
    pub(crate) fn is_left_open(&self, volume: &str) -> bool {
        self.is_given && !self.targets.contains_key(volume)
    }

    pub(crate) fn discovery_chap(&self) -> Option<&ChapAccess> {
        self.discovery.as_ref()
    }

    /// Whether `initiator` may use the target of `volume`, and the CHAP that it has to pass.
    pub(crate) fn target_chap(&self, volume: &str, initiator: &IscsiName) -> Result<Option<&ChapAccess>, Refusal> {
        let Some(rules) = self.targets.get(volume) else {
            return Ok(None);
        };
        match &rules.initiators {
            Some(names) if !names.contains(initiator) => Err(Refusal::Forbidden),
            _ => Ok(rules.chap.as_ref()),
        }
    }
}

/// Turns forms into rules, with the file's name in every error.
struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn refused(&self, reason: String) -> AccessError {
        AccessError::Refused { path: self.path.to_owned(), reason }
    }

    fn chap(
        &self,
        place: &str,
        chap: Option<Vec<CredentialForm>>,
        mutual: Option<CredentialForm>,
    ) -> Result<Option<ChapAccess>, AccessError> {
        let Some(chap) = chap else {
            return match mutual {
                Some(_) => Err(self.refused(format!("{place}: mutual-chap needs chap as well"))),
                None => Ok(None),
            };
        };
        if chap.is_empty() {
            return Err(self
                .refused(format!("{place}: chap = [] would lock everybody out; name a user, or leave the line out")));
        }
        let initiator_credentials: Vec<_> =
            chap.iter().map(|form| self.credential(place, form)).collect::<Result<_, _>>()?;
        let target_credential = mutual.map(|form| self.credential(place, &form)).transpose()?;
        Ok(Some(ChapAccess { initiator_credentials, target_credential }))
    }

    fn credential(&self, place: &str, form: &CredentialForm) -> Result<Credential, AccessError> {
        let path = self.path.parent().unwrap_or(Path::new("")).join(&form.secret_file);
        let mut bytes =
            std::fs::read(&path).map_err(|source| AccessError::Unreadable { path: path.clone(), source })?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let secret =
            Secret::new(&bytes).map_err(|error| self.refused(format!("{place}: {}: {error}", path.display())))?;
        bytes.fill(0);
        Ok(Credential { name: form.user.clone(), secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AccessRules, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), b"twelve bytes\n").unwrap();
        std::fs::write(folder.path().join("empty"), b"\n").unwrap();
        let path = folder.path().join("access.toml");
        std::fs::write(&path, text).unwrap();
        AccessRules::read(&path)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    fn name(text: &str) -> IscsiName {
        IscsiName::parse(text).unwrap()
    }

    #[test]
    fn empty_file_lets_everybody_in() {
        let rules = read("").unwrap();
        assert!(rules.discovery_chap().is_none());
        assert!(rules.target_chap("disk0", &name("iqn.2001-04.com.example:a")).unwrap().is_none());
    }

    #[test]
    fn target_with_initiators_refuses_others_whatever_the_case_of_the_name() {
        let rules = read("[[target]]\nvolume = 'disk0'\ninitiators = ['iqn.2001-04.com.EXAMPLE:a']").unwrap();
        assert!(rules.target_chap("disk0", &name("iqn.2001-04.com.example:A")).is_ok());
        assert_eq!(rules.target_chap("disk0", &name("iqn.2001-04.com.example:b")).unwrap_err(), Refusal::Forbidden);
        assert!(rules.target_chap("disk1", &name("iqn.2001-04.com.example:b")).is_ok());
    }

    #[test]
    fn chap_is_read_from_secret_files_without_the_newline() {
        let rules = read(
            "[[target]]\nvolume = 'd'\nchap = [{ user = 'u', secret-file = 'secret' }]\n\
             mutual-chap = { user = 't', secret-file = 'secret' }",
        )
        .unwrap();
        let chap = rules.target_chap("d", &name("iqn.2001-04.com.example:a")).unwrap().unwrap();
        assert_eq!(chap.initiator_credentials[0].name, "u");
        assert_eq!(chap.target_credential.as_ref().unwrap().name, "t");
        assert!(!format!("{rules:?}").contains("twelve"));
    }

    #[test]
    fn wrong_files_are_refused_with_place_and_reason() {
        for (text, reason) in [
            ("[[target]]\nvolume = 'd'\nchap = []", "would lock everybody out"),
            ("[[target]]\nvolume = 'd'\nmutual-chap = { user = 't', secret-file = 'secret' }", "needs chap as well"),
            ("[[target]]\nvolume = 'd'\n[[target]]\nvolume = 'd'", "stands there twice"),
            ("[[target]]\nvolume = 'd'\ninitiators = ['disk']", "target of volume \"d\": \"disk\""),
            ("[discovery]\nchap = [{ user = 'u', secret-file = 'empty' }]", "1 to 255 bytes"),
            ("[discovery]\nchap = [{ user = 'u', secret-file = 'none' }]", "cannot read none"),
            ("[discovery]\nchap = [{ user = 'u', secret = 'x' }]", "unknown field"),
            ("[[target]]\nvolme = 'd'", "unknown field `volme`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
