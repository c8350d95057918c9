//! A world with fixed answers, for tests.

use std::cell::{Cell, RefCell};

use super::{Access, ChapAccess, Credential, Environment, Refusal, Secret, TargetRecord};
use crate::login::SessionIdentity;
use crate::name::IscsiName;

/// The target that [`World`] has.
pub(crate) const TARGET: &str = "iqn.2026-11.io.holdfast:disk0";

/// Answers from its fields, and writes down what it was asked.
pub(crate) struct World {
    pub(crate) target_access: Result<Access, Refusal>,
    pub(crate) discovery_access: Result<Access, Refusal>,
    pub(crate) targets: Vec<TargetRecord>,
    pub(crate) tsih: Result<u16, Refusal>,
    /// What [`Environment::assign_tsih`] was asked: requested TSIH and CID.
    pub(crate) asked: RefCell<Vec<(SessionIdentity, u16, u16)>>,
    /// The next "random" byte.
    pub(crate) next_byte: Cell<u8>,
}

impl Default for World {
    /// One target without CHAP in portal group 1, TSIH 258, and "random" bytes that count up from 0x40.
    fn default() -> Self {
        Self {
            target_access: Ok(Access { portal_group_tag: 1, ..Access::default() }),
            discovery_access: Ok(Access::default()),
            targets: vec![TargetRecord {
                name: IscsiName::parse(TARGET).unwrap(),
                addresses: vec![("192.0.2.1:3260".to_owned(), 1)],
            }],
            tsih: Ok(0x0102),
            asked: RefCell::default(),
            next_byte: Cell::new(0x40),
        }
    }
}

impl Environment for World {
    fn fill_random(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next_byte.get();
            self.next_byte.set(byte.wrapping_add(1));
        }
    }

    fn target_access(&self, _: &IscsiName, target: &IscsiName) -> Result<Access, Refusal> {
        if target.as_str() == TARGET { self.target_access.clone() } else { Err(Refusal::NotFound) }
    }

    fn discovery_access(&self, _: &IscsiName) -> Result<Access, Refusal> {
        self.discovery_access.clone()
    }

    fn targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        self.targets.clone()
    }

    fn assign_tsih(&self, login: &SessionIdentity, requested: u16, cid: u16) -> Result<u16, Refusal> {
        self.asked.borrow_mut().push((login.clone(), requested, cid));
        self.tsih.clone()
    }
}

/// A credential from text.
pub(crate) fn credential(name: &str, secret: &[u8]) -> Credential {
    Credential { name: name.to_owned(), secret: Secret::new(secret).unwrap() }
}

/// An access with CHAP: `user` proves `secret`; the target is `holdfast` with `target_secret`, if any.
pub(crate) fn chap_access(user: &str, secret: &[u8], target_secret: Option<&[u8]>) -> Access {
    Access {
        chap: Some(ChapAccess {
            initiator_credentials: vec![credential(user, secret)],
            target_credential: target_secret.map(|secret| credential("holdfast", secret)),
        }),
        portal_group_tag: 1,
        target_alias: None,
    }
}
