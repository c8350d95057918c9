//! One connection from its first byte to its last: a login, then the session that it establishes (RFC 7143, 5.1.1).
//!
//! The shell reads bytes into a [`Decoder`](crate::frame::Decoder) that accepts
//! [`LOGIN_DATA_SEGMENT_BYTES`], hands each PDU to [`Connection::receive`], sends and does what comes out, and calls
//! [`Connection::tick`] when [`Connection::next_deadline`] is reached. At [`Action::Established`] it sets digests
//! and data segment length of decoder and write queue from the parameters; the PDUs that came out together with it
//! still go without digests.

use std::time::Duration;

use crate::environment::Environment;
use crate::login::{Login, LoginConfig, LoginStep};
use crate::output::{Action, CloseReason, Output};
use crate::pdu::Pdu;
use crate::session::{Session, SessionLimits};

/// Longest data segment that either end accepts during login, in bytes (RFC 7143, 13.12).
pub const LOGIN_DATA_SEGMENT_BYTES: u32 = 8192;

/// What a connection is given to begin with.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// This target's side of the negotiation. Its command window is that of `limits`.
    pub login: LoginConfig,
    /// Limits of the session to come.
    pub limits: SessionLimits,
    /// How long a login may take.
    pub login_timeout: Duration,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self { login: LoginConfig::default(), limits: SessionLimits::default(), login_timeout: Duration::from_secs(15) }
    }
}

/// The protocol of one connection. See the [module](self).
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Login {
        login: Box<Login>,
        limits: SessionLimits,
        deadline: Duration,
    },
    FullFeature(Box<Session>),
    /// Closed without ever having had a session.
    Over,
}

impl Connection {
    /// A connection that was accepted at `now`.
    pub fn new(config: ConnectionConfig, now: Duration) -> Self {
        let ConnectionConfig { mut login, limits, login_timeout } = config;
        login.command_window = limits.command_window;
        let deadline = now.saturating_add(login_timeout);
        Self { phase: Phase::Login { login: Box::new(Login::new(login)), limits, deadline } }
    }

    /// Takes the next PDU. Nothing happens after [`Action::Close`].
    pub fn receive(&mut self, pdu: Pdu, now: Duration, environment: &dyn Environment, out: &mut Output) {
        match &mut self.phase {
            Phase::FullFeature(session) => session.receive(pdu, now, environment, out),
            Phase::Login { login, limits, .. } => match login.receive(pdu, environment) {
                LoginStep::Continue(responses) => out.pdus.extend(responses),
                LoginStep::Failed { responses, reason } => {
                    out.pdus.extend(responses);
                    out.actions.push_back(Action::Close(CloseReason::LoginFailed(reason)));
                    self.phase = Phase::Over;
                }
                LoginStep::Established { responses, established } => {
                    out.pdus.extend(responses);
                    let session = Session::new(&established, limits.clone(), now);
                    self.phase = Phase::FullFeature(Box::new(session));
                    out.actions.push_back(Action::Established(established));
                }
            },
            Phase::Over => {}
        }
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Duration, out: &mut Output) {
        match &mut self.phase {
            Phase::FullFeature(session) => session.tick(now, out),
            Phase::Login { deadline, .. } if *deadline <= now => {
                out.actions.push_back(Action::Close(CloseReason::LoginTimeout));
                self.phase = Phase::Over;
            }
            Phase::Login { .. } | Phase::Over => {}
        }
    }

    /// When [`tick`](Self::tick) is to be called next; `Duration::MAX` for never.
    pub fn next_deadline(&self) -> Duration {
        match &self.phase {
            Phase::FullFeature(session) => session.next_deadline(),
            Phase::Login { deadline, .. } => *deadline,
            Phase::Over => Duration::MAX,
        }
    }

    /// The session, from [`Action::Established`] on; it stays after the connection is closed, for its tasks have to
    /// be settled.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::FullFeature(session) => Some(session),
            Phase::Login { .. } | Phase::Over => None,
        }
    }
}

#[cfg(test)]
mod tests;
