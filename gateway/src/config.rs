//! Settings of a gateway.

use std::net::TcpListener;
use std::time::Duration;

use crate::StorageConnector;
use crate::access::AccessRules;

/// Everything that a gateway has to be told.
pub struct Config {
    /// Number of the gateway in its cluster, which is its target portal group tag (RFC 7143, 4.4.3) and target port group
    /// (SPC-4, 5.15), 1 to 65535.
    pub id: u16,
    /// Where iSCSI connections come in. Bound by the caller, so that a port in use is found before anything is changed on disk.
    pub portal: TcpListener,
    /// `host:port` told to initiators in SendTargets; without it, the address that each has connected to.
    pub advertised: Option<String>,
    /// Where requests for metrics, health and the session list come in.
    pub http: TcpListener,
    /// Threads that serve sessions; 0 takes one for each core.
    pub workers: usize,
    /// Who may log in, and how.
    pub access: AccessRules,
    /// How to reach the storage node.
    pub storage: StorageConnector,
    /// What the network can make grow, at most.
    pub limits: Limits,
}

/// What the network can make grow, at most.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections, in whatever state.
    pub connections: usize,
    /// Sessions of all initiators.
    pub sessions: usize,
    /// Sessions of one initiator name (field report 20).
    pub sessions_per_initiator: usize,
    /// Time from the connection to the end of the login.
    pub login_timeout: Duration,
    /// Quiet time after which the target sends a NOP-In.
    pub nop_interval: Duration,
    /// Time that an initiator has to answer one.
    pub nop_timeout: Duration,
    /// Bytes of data in transfers that were asked for, over all sessions.
    pub transfer_bytes: u64,
    /// Bytes of data that may come unasked, over all sessions.
    pub unsolicited_bytes: usize,
    /// Bytes of small answers queued for a slow initiator, above which nothing more is read from it.
    pub send_queue_bytes: usize,
    /// Time that the data of a write may take while other sessions wait for the memory that is kept for it.
    pub write_data_timeout: Duration,
    /// Time that orderly shutdown gives initiators to log out.
    pub logout_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            sessions: 4096,
            sessions_per_initiator: 256,
            login_timeout: Duration::from_secs(15),
            nop_interval: Duration::from_secs(5),
            nop_timeout: Duration::from_secs(10),
            transfer_bytes: 160 << 20,
            unsolicited_bytes: 128 << 20,
            send_queue_bytes: 256 << 10,
            write_data_timeout: Duration::from_secs(30),
            logout_window: Duration::from_secs(1),
        }
    }
}
