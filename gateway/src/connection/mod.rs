//! One connection: a task that moves bytes between the socket and the protocol, and commands between the protocol and
//! storage.
//!
//! The protocol itself is [`holdfast_iscsi::connection::Connection`], which knows no socket; SCSI is [`holdfast_scsi`]. The
//! task waits for whatever comes first - bytes, finished operations, memory, a word from another session, time - hands it
//! on, sends what came of it, and waits again. It never waits for storage, so NOP and task management are answered while
//! I/O is stuck (field report 7).

mod environment;
mod logical_unit;
mod outgoing;
mod tasks;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use holdfast_iscsi::connection::{Connection, ConnectionConfig, LOGIN_DATA_SEGMENT_BYTES};
use holdfast_iscsi::frame::Decoder;
use holdfast_iscsi::login::Established;
use holdfast_iscsi::output::{Action, CloseReason, Output};
use holdfast_iscsi::session::SessionLimits;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, debug, info, info_span, warn};

use self::environment::ConnectionEnvironment;
use self::outgoing::Outgoing;
use self::tasks::Tasks;
use crate::metrics::Irregularities;
use crate::sessions::{EndCause, Place, SessionCommand, SessionHandle};
use crate::shared::Shared;
use crate::volume::Lane;
use crate::worker::ConnectionSlot;

/// Queued bytes above which they are sent although more may follow at once.
const SEND_EARLY_BYTES: usize = 48 << 10;

/// Serves one connection until it ends and everything that it sent to storage is settled.
pub(crate) async fn serve(shared: Arc<Shared>, lane: Lane, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
    let span = info_span!("connection", %peer, session = tracing::field::Empty);
    shared.metrics.connections.inc();
    let local = match stream.local_addr() {
        Ok(local) => local,
        Err(error) => {
            debug!(%peer, %error, "the connection is gone already");
            shared.metrics.connections.dec();
            return;
        }
    };
    Task::new(shared.clone(), lane, local, peer).run(stream).instrument(span).await;
    shared.metrics.connections.dec();
    drop(slot);
}

/// Everything of one connection but its socket.
struct Task {
    shared: Arc<Shared>,
    lane: Lane,
    peer: SocketAddr,
    started: Instant,
    protocol: Connection,
    environment: ConnectionEnvironment,
    decoder: Decoder,
    outgoing: Outgoing,
    output: Output,
    commands: mpsc::UnboundedReceiver<SessionCommand>,
    handle: SessionHandle,
    settled: watch::Sender<bool>,
    /// Present from the end of the login on.
    session: Option<LoggedIn>,
    end: Option<CloseReason>,
}

/// What a connection has besides, once logged in.
struct LoggedIn {
    place: Place,
    tasks: Tasks,
    irregularities: Irregularities,
}

impl Task {
    fn new(shared: Arc<Shared>, lane: Lane, local: SocketAddr, peer: SocketAddr) -> Self {
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (settled, settled_receiver) = watch::channel(false);
        let handle = SessionHandle { commands: command_sender, settled: settled_receiver };
        let started = Instant::now();
        let limits = &shared.limits;
        let config = ConnectionConfig {
            limits: SessionLimits {
                command_window: shared.memory.command_window(),
                nop_interval: limits.nop_interval,
                nop_timeout: limits.nop_timeout,
                ..SessionLimits::default()
            },
            login_timeout: limits.login_timeout,
            ..ConnectionConfig::default()
        };
        Self {
            environment: ConnectionEnvironment::new(shared.clone(), local, handle.clone()),
            protocol: Connection::new(config, Duration::ZERO),
            decoder: Decoder::new(LOGIN_DATA_SEGMENT_BYTES),
            outgoing: Outgoing::default(),
            output: Output::default(),
            session: None,
            end: None,
            shared,
            lane,
            peer,
            started,
            commands,
            handle,
            settled,
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn run(mut self, mut stream: TcpStream) {
        if let Err(error) = self.exchange(&mut stream).await {
            debug!(%error, "the connection is lost");
        }
        let cause = self.end.as_ref().map_or("connection_lost", close_cause);
        self.report_end(cause);
        drop(stream);
        self.settle().await;
    }

    /// Runs until the protocol asks for the end or the socket fails.
    async fn exchange(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        let (mut incoming, outward) = stream.split();
        let mut stop = self.shared.stop.subscribe();
        let mut timer = pin!(tokio::time::sleep(self.until_deadline()));
        loop {
            self.outgoing.send(&outward)?;
            if self.end.is_some() {
                return self.send_rest(&outward).await;
            }
            let reading = !self.outgoing.is_over_unreserved(self.shared.limits.send_queue_bytes);
            let logging_in = self.session.is_none();
            tokio::select! {
                biased;
                () = stopped(&mut stop), if logging_in => {
                    self.end.get_or_insert(CloseReason::Administrative);
                }
                Some(command) = self.commands.recv() => self.obey(command),
                () = Tasks::ready(self.session.as_mut().map(|session| &mut session.tasks)) => {
                    while self.advance_tasks() {
                        self.carry_out();
                        self.send_early(&outward)?;
                    }
                }
                read = incoming.read_buf(self.decoder.buffer()), if reading => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.take_pdus(&outward)?;
                }
                writable = outward.writable(), if !self.outgoing.is_empty() => {
                    writable?;
                }
                () = &mut timer => {
                    self.protocol.tick(self.started.elapsed(), &mut self.output);
                    if self.session.as_ref().is_some_and(|session| session.tasks.is_write_data_overdue()) {
                        self.end.get_or_insert(CloseReason::ProtocolError("write data overdue while others wait for memory"));
                    }
                    timer.as_mut().reset(tokio::time::Instant::now() + self.until_deadline());
                }
            }
            self.carry_out();
            self.end_round();
        }
    }

    fn until_deadline(&self) -> Duration {
        self.protocol.next_deadline().saturating_sub(self.now()).max(Duration::from_millis(1))
    }

    fn advance_tasks(&mut self) -> bool {
        match (&mut self.session, self.protocol.session()) {
            (Some(session), Some(protocol)) => session.tasks.advance(protocol, &mut self.output),
            _ => false,
        }
    }

    /// Lets the initiator begin with a large answer while the next one is being made; small ones leave together, by one call.
    fn send_early(&mut self, outward: &WriteHalf<'_>) -> std::io::Result<()> {
        if self.outgoing.is_over(SEND_EARLY_BYTES) { self.outgoing.send(outward) } else { Ok(()) }
    }

    /// Every PDU that has arrived whole.
    fn take_pdus(&mut self, outward: &WriteHalf<'_>) -> std::io::Result<()> {
        while self.end.is_none() {
            match self.decoder.decode() {
                Ok(Some(pdu)) => {
                    let now = self.now();
                    self.protocol.receive(pdu, now, &self.environment, &mut self.output);
                    self.carry_out();
                    self.send_early(outward)?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.end = Some(CloseReason::Frame(error));
                }
            }
        }
        Ok(())
    }

    /// Queues PDUs for sending and does what the protocol asks for, until it asks for nothing more.
    fn carry_out(&mut self) {
        loop {
            self.outgoing.queue(&mut self.output);
            let Some(action) = self.output.actions.pop_front() else {
                break;
            };
            match action {
                Action::Established(established) => self.log_in(&established),
                Action::Close(reason) => {
                    self.end.get_or_insert(reason);
                }
                other => {
                    if let (Some(session), Some(protocol)) = (&mut self.session, self.protocol.session()) {
                        session.tasks.act(other, protocol, &mut self.output);
                    }
                }
            }
        }
    }

    /// What is done once for all that has come in together.
    fn end_round(&mut self) {
        if let (Some(session), Some(protocol)) = (&mut self.session, self.protocol.session()) {
            session.tasks.take_reservations(&mut self.outgoing);
            session.tasks.serve_short_of_memory(protocol, &mut self.output);
            protocol.set_command_window(self.shared.memory.command_window(), &mut self.output);
            self.outgoing.queue(&mut self.output);
            session.irregularities.report(protocol.counters(), &self.shared.metrics);
        }
    }

    fn log_in(&mut self, established: &Established) {
        let Some(mut place) = self.environment.take_place() else {
            self.end.get_or_insert(CloseReason::ProtocolError("login without a session handle"));
            return;
        };
        let parameters = &established.parameters;
        self.decoder.set_digests(parameters.header_digest, parameters.data_digest);
        self.decoder.set_max_data_segment(parameters.max_recv_data_segment_length);
        self.outgoing.set_digests(parameters.header_digest, parameters.data_digest);
        self.shared.sessions.established(&place, self.peer.to_string(), established);
        self.shared.metrics.count_login("success");
        self.shared.metrics.sessions.inc();
        tracing::Span::current().record("session", place.id);
        let identity = &established.identity;
        info!(
            initiator = %identity.initiator,
            target = identity.target.as_ref().map(tracing::field::display),
            tsih = place.tsih,
            "logged in"
        );
        let predecessor = place.predecessor.take();
        let tasks =
            Tasks::new(self.shared.clone(), self.lane.clone(), identity, &place, self.handle.clone(), predecessor);
        self.session = Some(LoggedIn { place, tasks, irregularities: Irregularities::default() });
    }

    /// What another session, or the gateway, wants of this one.
    fn obey(&mut self, command: SessionCommand) {
        match (command, &mut self.session, self.protocol.session()) {
            (SessionCommand::Close(cause), ..) => {
                self.end.get_or_insert(match cause {
                    EndCause::Reinstated => CloseReason::Replaced,
                    EndCause::ColdReset => CloseReason::TargetReset,
                    EndCause::Shutdown => CloseReason::Administrative,
                });
            }
            (SessionCommand::RequestLogout { seconds }, _, Some(protocol)) => {
                protocol.request_logout(seconds, &mut self.output);
            }
            (SessionCommand::ResetByOther { volume, settled }, Some(session), Some(protocol)) => {
                session.tasks.reset_by_other(volume, settled, protocol, &mut self.output);
            }
            (SessionCommand::OthersReset { token }, Some(session), Some(protocol)) => {
                session.tasks.others_reset(token, protocol, &mut self.output);
            }
            // A discovery session has no tasks, and nobody waits for one.
            _ => {}
        }
    }

    /// Gives the last PDUs a moment to leave: a login refusal, a logout response.
    async fn send_rest(&mut self, outward: &WriteHalf<'_>) -> std::io::Result<()> {
        let all = async {
            while !self.outgoing.is_empty() {
                outward.writable().await?;
                self.outgoing.send(outward)?;
            }
            Ok(())
        };
        tokio::time::timeout(Duration::from_secs(1), all).await.unwrap_or(Ok(()))
    }

    /// The connection is gone: drops what has not been sent to storage and waits for the rest, so that nothing of this
    /// session happens after its successor's commands (hazards A4 and A6).
    async fn settle(mut self) {
        if let Some(mut session) = self.session.take() {
            if let Some(protocol) = self.protocol.session() {
                protocol.abandon_all(&mut self.output);
                session.tasks.settle(protocol, &mut self.output).await;
            }
            self.shared.sessions.remove(session.place.tsih, session.place.id);
            self.shared.metrics.sessions.dec();
        } else if let Some(place) = self.environment.take_place() {
            self.shared.sessions.remove(place.tsih, place.id);
        }
        // Nobody may be waiting for it.
        let _ = self.settled.send(true);
    }

    /// One line and one count for each end; bad input is a warning, limited in rate.
    fn report_end(&self, cause: &'static str) {
        self.shared.metrics.count_end(cause);
        match &self.end {
            None => info!(cause, "the initiator closed the connection"),
            Some(CloseReason::LoginFailed(failure)) => {
                self.shared.metrics.count_login("failure");
                let (initiator, target) = self.environment.subject();
                let mut throttle = self.shared.refused_logins.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(suppressed) = throttle.permit() {
                    warn!(initiator, target, reason = %failure, suppressed, "login refused");
                }
            }
            Some(CloseReason::ProtocolError(what)) => self.warn_limited(cause, what),
            Some(CloseReason::Frame(error)) => self.warn_limited(cause, &error.to_string()),
            Some(_) => info!(cause, "the connection is closed"),
        }
    }

    fn warn_limited(&self, cause: &'static str, detail: &str) {
        let mut throttle = self.shared.bad_input.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = throttle.permit() {
            warn!(cause, detail, suppressed, "the connection is closed");
        }
    }
}

/// Resolves when the gateway stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as the gateway's shared state.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The cause as counters name it.
fn close_cause(reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::LoggedOut => "logged_out",
        CloseReason::LoginFailed(_) => "login_failed",
        CloseReason::LoginTimeout => "login_timeout",
        CloseReason::ProtocolError(_) => "protocol_error",
        CloseReason::Frame(_) => "frame_error",
        CloseReason::InitiatorDead => "initiator_dead",
        CloseReason::LogoutOverdue => "logout_overdue",
        CloseReason::Replaced => "replaced",
        CloseReason::TargetReset => "target_reset",
        CloseReason::Administrative => "administrative",
    }
}
