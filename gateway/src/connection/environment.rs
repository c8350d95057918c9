//! What the login of one connection asks of the gateway.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_iscsi::environment::{Access, Environment, Refusal, TargetRecord};
use holdfast_iscsi::login::SessionIdentity;
use holdfast_iscsi::name::IscsiName;

use crate::sessions::{Place, SessionHandle};
use crate::shared::Shared;

/// The gateway as one connection sees it.
pub(crate) struct ConnectionEnvironment {
    shared: Arc<Shared>,
    local: SocketAddr,
    handle: SessionHandle,
    /// The place in the session table, once the login has got one.
    place: RefCell<Option<Place>>,
    /// Initiator and target that were asked for last, for the log.
    subject: RefCell<(String, String)>,
}

impl ConnectionEnvironment {
    /// `local` is the address that the initiator has connected to; `handle` reaches the connection's task.
    pub(crate) fn new(shared: Arc<Shared>, local: SocketAddr, handle: SessionHandle) -> Self {
        Self { shared, local, handle, place: RefCell::new(None), subject: RefCell::default() }
    }

    /// Initiator and target of the login; empty until it has named them. The target of a discovery session is empty.
    pub(crate) fn subject(&self) -> (String, String) {
        self.subject.borrow().clone()
    }

    /// The place that [`Environment::assign_tsih`] has taken, if it has.
    pub(crate) fn take_place(&self) -> Option<Place> {
        self.place.borrow_mut().take()
    }
}

impl Environment for ConnectionEnvironment {
    fn fill_random(&self, bytes: &mut [u8]) {
        // Without randomness there are no challenges and so no logins; nothing sensible is left to do.
        if let Err(error) = getrandom::fill(bytes) {
            tracing::error!(%error, "the system gives no random bytes");
            std::process::abort();
        }
    }

    fn target_access(&self, initiator: &IscsiName, target: &IscsiName) -> Result<Access, Refusal> {
        *self.subject.borrow_mut() = (initiator.to_string(), target.to_string());
        if !self.shared.accepts_logins() {
            return Err(Refusal::ServiceUnavailable);
        }
        let catalogue = self.shared.catalogue.load();
        let served = catalogue.target(target).ok_or(Refusal::NotFound)?;
        let chap = self.shared.access.target_chap(&served.volume, initiator)?;
        Ok(Access { chap: chap.cloned(), portal_group_tag: self.shared.id, target_alias: Some(served.volume.clone()) })
    }

    fn discovery_access(&self, initiator: &IscsiName) -> Result<Access, Refusal> {
        *self.subject.borrow_mut() = (initiator.to_string(), String::new());
        if !self.shared.accepts_logins() {
            return Err(Refusal::ServiceUnavailable);
        }
        Ok(Access {
            chap: self.shared.access.discovery_chap().cloned(),
            portal_group_tag: self.shared.id,
            target_alias: None,
        })
    }

    fn targets(&self, initiator: &IscsiName) -> Vec<TargetRecord> {
        let address = self.shared.portal_address(self.local);
        self.shared
            .catalogue
            .load()
            .targets()
            .filter(|served| self.shared.access.target_chap(&served.volume, initiator).is_ok())
            .map(|served| TargetRecord {
                name: served.name.clone(),
                addresses: vec![(address.clone(), self.shared.id)],
            })
            .collect()
    }

    fn assign_tsih(&self, login: &SessionIdentity, requested: u16, cid: u16) -> Result<u16, Refusal> {
        let place = self.shared.sessions.assign(login, requested, cid, self.handle.clone())?;
        let tsih = place.tsih;
        *self.place.borrow_mut() = Some(place);
        Ok(tsih)
    }
}
