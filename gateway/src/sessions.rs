//! Every session of this gateway: TSIHs, reinstatement, what one session asks of another, and the list for people.
//!
//! A session lives in its connection's task; here is only its address and description. The lock is held for look-ups alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_iscsi::chap::ChapAlgorithm;
use holdfast_iscsi::environment::Refusal;
use holdfast_iscsi::login::{Authentication, Established, SessionIdentity};
use holdfast_proto::ids::VolumeId;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::Limits;

/// What a session is asked to do by somebody else.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    /// Close the connection at once; what was sent to storage is settled before the session is forgotten.
    Close(EndCause),
    /// Another nexus has reset this volume's logical unit (`None`: the whole target): end its tasks with TASK ABORTED,
    /// note the unit attention, and say when all are settled.
    ResetByOther {
        /// Logical units concerned.
        volume: Option<VolumeId>,
        /// Answered when settled.
        settled: oneshot::Sender<()>,
    },
    /// What this session itself asked of the others is done.
    OthersReset {
        /// The session's own number for the task management function.
        token: u64,
    },
    /// The gateway stops: ask the initiator to log out.
    RequestLogout {
        /// Seconds that it has.
        seconds: u16,
    },
}

/// Why a session is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The same initiator port logged in again (RFC 7143, 6.3.5).
    Reinstated,
    /// TARGET COLD RESET (RFC 7143, 11.5.1).
    ColdReset,
    /// The gateway stops.
    Shutdown,
}

/// One line of the session list.
#[derive(Clone, Debug, Serialize)]
pub struct SessionInfo {
    /// Number of the session in this run of the gateway.
    pub id: u64,
    /// Initiator's iSCSI name.
    pub initiator: String,
    /// Initiator's alias, if it told one.
    pub alias: Option<String>,
    /// ISID, twelve hexadecimal digits.
    pub isid: String,
    /// Target's iSCSI name; none for a discovery session.
    pub target: Option<String>,
    /// Target session identifying handle.
    pub tsih: u16,
    /// Initiator's address and port.
    pub peer: String,
    /// `CRC32C` or `None`.
    pub header_digest: &'static str,
    /// `CRC32C` or `None`.
    pub data_digest: &'static str,
    /// `None`, `CHAP-MD5`, `CHAP-SHA256` or `CHAP-SHA3-256`.
    pub auth: String,
    /// Whether the target authenticated itself too.
    pub mutual: bool,
    /// The other operational parameters.
    pub parameters: ParameterInfo,
}

/// Operational parameters of a session (RFC 7143, 13); lengths in bytes.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the fields are the keys of RFC 7143, 13, in snake case")]
pub struct ParameterInfo {
    pub initiator_max_recv_data_segment_length: u32,
    pub target_max_recv_data_segment_length: u32,
    pub max_burst_length: u32,
    pub first_burst_length: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_outstanding_r2t: u16,
    pub default_time2wait: u16,
    pub default_time2retain: u16,
    pub error_recovery_level: u8,
    pub max_connections: u16,
}

impl SessionInfo {
    fn new(id: u64, peer: String, established: &Established) -> Self {
        let identity = &established.identity;
        let parameters = &established.parameters;
        let digest = |on: bool| if on { "CRC32C" } else { "None" };
        let (auth, mutual) = match &established.authentication {
            Authentication::None => ("None", false),
            Authentication::Chap { algorithm, mutual, .. } => (chap_name(*algorithm), *mutual),
        };
        Self {
            id,
            initiator: identity.initiator.to_string(),
            alias: identity.initiator_alias.clone(),
            isid: identity.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
            target: identity.target.as_ref().map(ToString::to_string),
            tsih: established.tsih,
            peer,
            header_digest: digest(parameters.header_digest),
            data_digest: digest(parameters.data_digest),
            auth: auth.to_owned(),
            mutual,
            parameters: ParameterInfo {
                initiator_max_recv_data_segment_length: parameters.max_send_data_segment_length,
                target_max_recv_data_segment_length: parameters.max_recv_data_segment_length,
                max_burst_length: parameters.max_burst_length,
                first_burst_length: parameters.first_burst_length,
                initial_r2t: parameters.initial_r2t,
                immediate_data: parameters.immediate_data,
                max_outstanding_r2t: parameters.max_outstanding_r2t,
                default_time2wait: parameters.default_time2wait,
                default_time2retain: parameters.default_time2retain,
                error_recovery_level: parameters.error_recovery_level,
                max_connections: parameters.max_connections,
            },
        }
    }
}

fn chap_name(algorithm: ChapAlgorithm) -> &'static str {
    match algorithm {
        ChapAlgorithm::Md5 => "CHAP-MD5",
        ChapAlgorithm::Sha256 => "CHAP-SHA256",
        ChapAlgorithm::Sha3_256 => "CHAP-SHA3-256",
    }
}

/// How others reach a session, and how they learn that all of it is settled.
#[derive(Clone, Debug)]
pub(crate) struct SessionHandle {
    pub(crate) commands: mpsc::UnboundedSender<SessionCommand>,
    /// Becomes true when nothing that the session sent to storage is open any more.
    pub(crate) settled: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    identity: SessionIdentity,
    cid: u16,
    handle: SessionHandle,
    /// Set when the login has come to its end.
    info: Option<SessionInfo>,
}

/// The table of sessions.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_tsih: HashMap<u16, Entry>,
    last_tsih: u16,
    last_id: u64,
    /// No session comes in any more.
    closed: bool,
}

/// A place in the table, given at the end of a login.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) tsih: u16,
    pub(crate) id: u64,
    /// The session that this one replaces; its tasks are settled before the new one's commands run (hazard A6).
    pub(crate) predecessor: Option<watch::Receiver<bool>>,
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds or makes the TSIH for a login that is about to succeed (RFC 7143, 6.3.1): a new session, or the
    /// reinstatement of one with the same initiator port and target. `requested` is the TSIH in the request, 0 for none.
    pub(crate) fn assign(
        &self,
        identity: &SessionIdentity,
        requested: u16,
        cid: u16,
        handle: SessionHandle,
    ) -> Result<Place, Refusal> {
        let inner = &mut *self.lock();
        if inner.closed {
            return Err(Refusal::ServiceUnavailable);
        }
        let same = inner
            .by_tsih
            .iter()
            .find(|(_, entry)| is_same_port(&entry.identity, identity))
            .map(|(tsih, entry)| (*tsih, entry.cid));
        match same {
            Some((tsih, _)) if requested != 0 && requested != tsih => {
                return Err(Refusal::SessionDoesNotExist);
            }
            Some((_, old_cid)) if requested != 0 && old_cid != cid => {
                return Err(Refusal::TooManyConnections);
            }
            None if requested != 0 => return Err(Refusal::SessionDoesNotExist),
            _ => {}
        }
        let predecessor = same.and_then(|(tsih, _)| inner.by_tsih.remove(&tsih)).map(|entry| {
            // A task that is gone already has settled; nobody is left to tell.
            let _ = entry.handle.commands.send(SessionCommand::Close(EndCause::Reinstated));
            entry.handle.settled
        });
        let of_initiator =
            inner.by_tsih.values().filter(|entry| entry.identity.initiator == identity.initiator).count();
        if of_initiator >= self.limits.sessions_per_initiator || inner.by_tsih.len() >= self.limits.sessions {
            return Err(Refusal::OutOfResources);
        }
        let tsih = match same {
            Some((tsih, _)) if requested != 0 => tsih,
            _ => inner.free_tsih().ok_or(Refusal::OutOfResources)?,
        };
        inner.last_id += 1;
        let id = inner.last_id;
        let entry = Entry { id, identity: identity.clone(), cid, handle, info: None };
        inner.by_tsih.insert(tsih, entry);
        Ok(Place { tsih, id, predecessor })
    }

    /// The login of the session at this place has come to its end.
    pub(crate) fn established(&self, place: &Place, peer: String, established: &Established) {
        if let Some(entry) = self.lock().by_tsih.get_mut(&place.tsih)
            && entry.id == place.id
        {
            entry.info = Some(SessionInfo::new(place.id, peer, established));
        }
    }

    /// Forgets a session that has ended, unless its TSIH belongs to a successor by now.
    pub(crate) fn remove(&self, tsih: u16, id: u64) {
        let inner = &mut *self.lock();
        if inner.by_tsih.get(&tsih).is_some_and(|entry| entry.id == id) {
            inner.by_tsih.remove(&tsih);
        }
    }

    /// All sessions that are logged in to `target`, but for number `except`.
    pub(crate) fn others_of_target(&self, target: &str, except: u64) -> Vec<SessionHandle> {
        self.lock()
            .by_tsih
            .values()
            .filter(|entry| entry.id != except)
            .filter(|entry| entry.identity.target.as_ref().is_some_and(|name| name.as_str() == target))
            .map(|entry| entry.handle.clone())
            .collect()
    }

    /// Every session, discovery sessions and logins about to succeed included.
    pub(crate) fn all(&self) -> Vec<SessionHandle> {
        self.lock().by_tsih.values().map(|entry| entry.handle.clone()).collect()
    }

    /// Lets nobody in from now on; every session that is in.
    pub(crate) fn close(&self) -> Vec<SessionHandle> {
        let inner = &mut *self.lock();
        inner.closed = true;
        inner.by_tsih.values().map(|entry| entry.handle.clone()).collect()
    }

    /// The list for people, in the order of logins.
    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let mut list: Vec<_> = self.lock().by_tsih.values().filter_map(|entry| entry.info.clone()).collect();
        list.sort_by_key(|info| info.id);
        list
    }
}

impl Inner {
    /// The next TSIH in turn that is free; 0 is no TSIH.
    fn free_tsih(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.last_tsih = self.last_tsih.wrapping_add(1);
            if self.last_tsih != 0 && !self.by_tsih.contains_key(&self.last_tsih) {
                return Some(self.last_tsih);
            }
        }
        None
    }
}

/// Whether two identities name the same I_T nexus: initiator name, ISID and target (RFC 7143, 4.4.3).
fn is_same_port(a: &SessionIdentity, b: &SessionIdentity) -> bool {
    a.initiator == b.initiator && a.isid == b.isid && a.target == b.target
}

#[cfg(test)]
mod tests {
    use holdfast_iscsi::name::IscsiName;

    use super::*;

    fn identity(initiator: &str, isid: u8, target: Option<&str>) -> SessionIdentity {
        SessionIdentity {
            initiator: IscsiName::parse(initiator).unwrap(),
            initiator_alias: None,
            isid: [isid; 6],
            target: target.map(|name| IscsiName::parse(name).unwrap()),
        }
    }

    struct Session {
        commands: mpsc::UnboundedReceiver<SessionCommand>,
        settled: watch::Sender<bool>,
    }

    fn session() -> (Session, SessionHandle) {
        let (sender, commands) = mpsc::unbounded_channel();
        let (settled, receiver) = watch::channel(false);
        (Session { commands, settled }, SessionHandle { commands: sender, settled: receiver })
    }

    const HOST: &str = "iqn.2001-04.com.example:host";
    const DISK: Option<&str> = Some("iqn.2026-11.io.holdfast:disk0");

    #[test]
    fn login_of_the_same_port_replaces_the_session_and_waits_for_it() {
        let registry = Registry::new(Limits::default());
        let (mut old, old_handle) = session();
        let first = registry.assign(&identity(HOST, 1, DISK), 0, 0, old_handle).unwrap();
        assert!(first.predecessor.is_none());
        let second = registry.assign(&identity(HOST, 1, DISK), 0, 0, session().1).unwrap();
        assert!(matches!(old.commands.try_recv(), Ok(SessionCommand::Close(EndCause::Reinstated))));
        let predecessor = second.predecessor.unwrap();
        assert!(!*predecessor.borrow());
        old.settled.send_replace(true);
        assert!(*predecessor.borrow());
        // The old session's farewell does not take the new one away.
        registry.remove(first.tsih, first.id);
        assert_eq!(registry.all().len(), 1);
    }

    #[test]
    fn login_with_another_isid_target_or_name_is_another_session() {
        let registry = Registry::new(Limits::default());
        let mut tsihs = Vec::new();
        for identity in [
            identity(HOST, 1, DISK),
            identity(HOST, 2, DISK),
            identity(HOST, 1, None),
            identity("iqn.2001-04.com.example:other", 1, DISK),
        ] {
            let place = registry.assign(&identity, 0, 0, session().1).unwrap();
            assert!(place.predecessor.is_none());
            tsihs.push(place.tsih);
        }
        tsihs.dedup();
        assert_eq!(tsihs.len(), 4);
        assert!(!tsihs.contains(&0));
    }

    #[test]
    fn login_with_a_tsih_joins_only_its_own_session_and_connection() {
        let registry = Registry::new(Limits::default());
        let place = registry.assign(&identity(HOST, 1, DISK), 0, 3, session().1).unwrap();
        let wrong = |id: &SessionIdentity, tsih, cid| registry.assign(id, tsih, cid, session().1).unwrap_err();
        let own = identity(HOST, 1, DISK);
        assert_eq!(wrong(&own, place.tsih + 1, 3), Refusal::SessionDoesNotExist);
        assert_eq!(wrong(&identity(HOST, 2, DISK), place.tsih, 3), Refusal::SessionDoesNotExist);
        assert_eq!(wrong(&own, place.tsih, 4), Refusal::TooManyConnections);
        let again = registry.assign(&own, place.tsih, 3, session().1).unwrap();
        assert_eq!(again.tsih, place.tsih);
        assert!(again.predecessor.is_some());
    }

    #[test]
    fn sessions_of_one_initiator_are_limited_and_a_place_becomes_free() {
        let limits = Limits { sessions_per_initiator: 2, ..Limits::default() };
        let registry = Registry::new(limits);
        let first = registry.assign(&identity(HOST, 1, DISK), 0, 0, session().1).unwrap();
        registry.assign(&identity(HOST, 2, DISK), 0, 0, session().1).unwrap();
        let third = identity(HOST, 3, DISK);
        assert_eq!(registry.assign(&third, 0, 0, session().1).unwrap_err(), Refusal::OutOfResources);
        registry.remove(first.tsih, first.id);
        assert!(registry.assign(&third, 0, 0, session().1).is_ok());
    }

    #[test]
    fn others_of_target_leaves_out_the_asking_session_and_other_targets() {
        let registry = Registry::new(Limits::default());
        let own = registry.assign(&identity(HOST, 1, DISK), 0, 0, session().1).unwrap();
        registry.assign(&identity(HOST, 2, DISK), 0, 0, session().1).unwrap();
        let elsewhere = Some("iqn.2026-11.io.holdfast:disk1");
        registry.assign(&identity(HOST, 3, elsewhere), 0, 0, session().1).unwrap();
        assert_eq!(registry.others_of_target(DISK.unwrap(), own.id).len(), 1);
    }
}
