//! The SCSI tasks of one session: from a command to its operation at storage and back.
//!
//! A task goes through: held (the session that this one replaces is not settled yet), waiting (for memory), receiving (its
//! data comes from the initiator), running (at storage). Whatever happens, it is completed exactly once.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use holdfast_iscsi::login::SessionIdentity;
use holdfast_iscsi::output::{
    Action, DataPieces, Output, ScsiCommand, TaskFunction, TaskId, TaskManagement, TaskManagementOutcome, TaskResult,
};
use holdfast_iscsi::session::Session;
use holdfast_proto::ids::VolumeId;
use holdfast_scsi::{Io, IoError, LunAddress, Nexus, Plan, Request, Response, SenseFormat, UnitAttention};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::logical_unit::{block_operation, io_error, kind_of};
use super::outgoing::Outgoing;
use crate::catalogue::ServedTarget;
use crate::memory::{Reservation, Room, SessionShare};
use crate::metrics::{NexusMeters, Operation as Meter};
use crate::sessions::{EndCause, Place, SessionCommand, SessionHandle};
use crate::shared::Shared;
use crate::volume::{BlockOperation, Lane, OperationDone, Operations, PartError};

type Waiting<T> = Pin<Box<dyn Future<Output = T>>>;

/// All tasks of a session.
pub(crate) struct Tasks {
    shared: Arc<Shared>,
    share: SessionShare,
    session_id: u64,
    handle: SessionHandle,
    target: Option<Arc<ServedTarget>>,
    nexus: Nexus,
    meters: NexusMeters,
    operations: Operations,
    /// Set until the session that this one replaces is settled.
    gate: Option<Waiting<()>>,
    held: VecDeque<ScsiCommand>,
    /// Task management functions, and resets by others, whose answers wait for the gate too: what they cover is not settled
    /// while the previous session is not.
    held_functions: Vec<TaskManagement>,
    held_resets: Vec<oneshot::Sender<()>>,
    /// Commands without memory, in order; for the first of them it has been asked for.
    short_of_memory: VecDeque<Prepared>,
    memory: Option<Waiting<Reservation>>,
    granted: Option<Reservation>,
    receiving: HashMap<TaskId, Receiving>,
    running: HashMap<u64, Running>,
    /// Memory of tasks that have just been completed, to be held until their data is sent.
    freed: Vec<Reservation>,
    /// Those who wait until a reset by another nexus is settled here.
    resets: HashMap<u64, oneshot::Sender<()>>,
    last_reset: u64,
}

/// A command that has been looked at and has its block operation.
struct Prepared {
    task: TaskId,
    io: Io,
    started: Instant,
    memory_bytes: u64,
}

enum Receiving {
    /// With the memory that is kept for the data, if any, and since when.
    Blocks(Prepared, Option<(Reservation, Instant)>),
    Parameters(holdfast_scsi::ParameterCommand, u64, Instant),
}

struct Running {
    prepared: Prepared,
    bytes: u64,
    reservation: Option<Reservation>,
}

impl Tasks {
    pub(crate) fn new(
        shared: Arc<Shared>,
        lane: Lane,
        identity: &SessionIdentity,
        place: &Place,
        handle: SessionHandle,
        predecessor: Option<watch::Receiver<bool>>,
    ) -> Self {
        let target = identity.target.as_ref().and_then(|name| shared.catalogue.load().target(name).cloned());
        let volume = target.as_ref().map_or("", |target| &target.volume);
        let gate = predecessor.map(|mut settled| -> Waiting<()> {
            Box::pin(async move {
                // An error means that the task is gone, and with it everything that could be open.
                let _ = settled.wait_for(|settled| *settled).await;
            })
        });
        Self {
            share: shared.memory.enter_session(),
            session_id: place.id,
            handle,
            nexus: Nexus::new(identity.initiator.as_str(), identity.isid),
            meters: shared.metrics.nexus(volume, identity.initiator.as_str()),
            operations: Operations::new(lane, place.id),
            target,
            gate,
            held: VecDeque::new(),
            held_functions: Vec::new(),
            held_resets: Vec::new(),
            short_of_memory: VecDeque::new(),
            memory: None,
            granted: None,
            receiving: HashMap::new(),
            running: HashMap::new(),
            freed: Vec::new(),
            resets: HashMap::new(),
            last_reset: 0,
            shared,
        }
    }

    /// Resolves when [`Self::advance`] has work to do; never without a session.
    pub(crate) async fn ready(tasks: Option<&mut Self>) {
        match tasks {
            Some(tasks) => std::future::poll_fn(|context| tasks.poll_ready(context)).await,
            None => std::future::pending().await,
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(gate) = &mut self.gate
            && gate.as_mut().poll(context).is_ready()
        {
            self.gate = None;
            return Poll::Ready(());
        }
        if let Some(memory) = &mut self.memory
            && let Poll::Ready(reservation) = memory.as_mut().poll(context)
        {
            self.memory = None;
            self.granted = Some(reservation);
            return Poll::Ready(());
        }
        self.operations.poll_ready(context)
    }

    /// Takes up one thing that has become possible: a finished operation; or else memory, or the end of the previous session.
    /// Whether there may be more.
    pub(crate) fn advance(&mut self, session: &mut Session, output: &mut Output) -> bool {
        if let Some(done) = self.operations.poll_done() {
            self.finish(done, session, output);
            return true;
        }
        if let Some(reservation) = self.granted.take() {
            if let Some(prepared) = self.short_of_memory.pop_front() {
                self.proceed(prepared, Some(reservation), session, output);
            }
            self.serve_short_of_memory(session, output);
        }
        if self.gate.is_none() {
            for settled in self.held_resets.drain(..) {
                // The asking session may be gone by now.
                let _ = settled.send(());
            }
            for request in std::mem::take(&mut self.held_functions) {
                self.manage(request, session, output);
            }
            while let Some(command) = self.held.pop_front() {
                self.start(command, session, output);
            }
        }
        false
    }

    /// Carries out what the session asks for.
    pub(crate) fn act(&mut self, action: Action, session: &mut Session, output: &mut Output) {
        match action {
            Action::Command(command) if self.gate.is_some() => self.held.push_back(command),
            Action::Command(command) => self.start(command, session, output),
            Action::DataOut { task, data } => self.received(task, data, session, output),
            Action::Abandon(tasks) => self.abandon(&tasks, session, output),
            Action::TaskManagement(request) if self.gate.is_some() => self.held_functions.push(request),
            Action::TaskManagement(request) => self.manage(request, session, output),
            Action::AbortsSettled(token) => match self.resets.remove(&token) {
                Some(settled) if self.gate.is_some() => self.held_resets.push(settled),
                Some(settled) => {
                    // The asking session may be gone by now.
                    let _ = settled.send(());
                }
                None => {}
            },
            // The connection itself deals with these.
            Action::Established(_) | Action::Close(_) => {}
        }
    }

    /// Passes on the memory of completed tasks, which is free when their data has left.
    pub(crate) fn take_reservations(&mut self, outgoing: &mut Outgoing) {
        for reservation in self.freed.drain(..) {
            outgoing.hold(reservation);
        }
    }

    fn start(&mut self, command: ScsiCommand, session: &mut Session, output: &mut Output) {
        let started = Instant::now();
        let Some(target) = &self.target else {
            let response = Response::check(IoError::Internal.sense(), SenseFormat::Fixed);
            self.respond(command.task, response, 0, session, output);
            return;
        };
        let announced = if command.write { command.expected_data_transfer_length } else { 0 };
        let request =
            Request { lun: command.lun, cdb: command.cdb.as_slice(), expected_data_out_bytes: u64::from(announced) };
        let plan = holdfast_scsi::prepare(&request, &mut self.nexus, &target.device);
        self.follow(command.task, plan, started, session, output);
    }

    fn follow(&mut self, task: TaskId, plan: Plan, started: Instant, session: &mut Session, output: &mut Output) {
        match plan {
            Plan::Respond(response) => {
                self.respond(task, response, 0, session, output);
                self.meters.record(Meter::other, started.elapsed(), 0);
            }
            Plan::Parameters { len_bytes, command } => {
                self.receiving.insert(task, Receiving::Parameters(command, u64::from(len_bytes), started));
                session.transfer_out(task, u64::from(len_bytes), output);
            }
            Plan::Io(io) => {
                let memory_bytes = match io.data_out_bytes {
                    0 => io.data_in_bytes(),
                    wanted => session.missing_bytes(task, wanted),
                };
                let prepared = Prepared { task, io, started, memory_bytes };
                if memory_bytes == 0 {
                    self.proceed(prepared, None, session, output);
                } else {
                    self.short_of_memory.push_back(prepared);
                    self.serve_short_of_memory(session, output);
                }
            }
        }
    }

    /// Lets those in whose turn it is and for whom there is memory now; asks for memory for the next. To be called again when
    /// memory of this session has become free.
    pub(crate) fn serve_short_of_memory(&mut self, session: &mut Session, output: &mut Output) {
        while self.memory.is_none()
            && self.granted.is_none()
            && let Some(first) = self.short_of_memory.pop_front()
        {
            match self.share.try_reserve(first.memory_bytes) {
                Room::Granted(reservation) => {
                    self.proceed(first, Some(reservation), session, output);
                    continue;
                }
                Room::ShareUsedUp => {}
                Room::Wait => self.memory = Some(Box::pin(self.share.wait(first.memory_bytes))),
            }
            self.short_of_memory.push_front(first);
            return;
        }
    }

    /// Whether the data of some write has been awaited too long, while other sessions wait for the memory kept for it.
    pub(crate) fn is_write_data_overdue(&self) -> bool {
        let limit = self.shared.limits.write_data_timeout;
        self.shared.memory.is_contended()
            && self.receiving.values().any(|receiving| match receiving {
                // Not since the command came: the time that it waited for memory itself is not the initiator's fault.
                Receiving::Blocks(_, Some((_, since))) => since.elapsed() > limit,
                _ => false,
            })
    }

    fn proceed(
        &mut self,
        prepared: Prepared,
        reservation: Option<Reservation>,
        session: &mut Session,
        output: &mut Output,
    ) {
        let (task, wanted) = (prepared.task, prepared.io.data_out_bytes);
        if wanted == 0 {
            self.run(prepared, DataPieces::new(), reservation, session, output);
        } else {
            let kept = reservation.map(|reservation| (reservation, Instant::now()));
            self.receiving.insert(task, Receiving::Blocks(prepared, kept));
            session.transfer_out(task, wanted, output);
        }
    }

    fn received(&mut self, task: TaskId, data: DataPieces, session: &mut Session, output: &mut Output) {
        match self.receiving.remove(&task) {
            Some(Receiving::Blocks(prepared, kept)) => {
                let reservation = kept.map(|(reservation, _)| reservation);
                self.run(prepared, data, reservation, session, output);
            }
            Some(Receiving::Parameters(command, wanted, started)) => {
                match command.finish(&contiguous(data.into_vec())) {
                    Plan::Io(io) => {
                        // The parameter list is what the residual is counted against.
                        let io = Io { data_out_bytes: wanted, ..io };
                        let prepared = Prepared { task, io, started, memory_bytes: 0 };
                        self.run(prepared, DataPieces::new(), None, session, output);
                    }
                    Plan::Respond(response) => {
                        self.respond(task, response, wanted, session, output);
                        self.meters.record(Meter::other, started.elapsed(), wanted);
                    }
                    // It never asks twice.
                    Plan::Parameters { .. } => {
                        let response = Response::check(IoError::Internal.sense(), SenseFormat::Fixed);
                        self.respond(task, response, wanted, session, output);
                    }
                }
            }
            // Abandoned in between.
            None => {}
        }
    }

    /// Sends the operation to storage.
    fn run(
        &mut self,
        prepared: Prepared,
        data: DataPieces,
        reservation: Option<Reservation>,
        session: &mut Session,
        output: &mut Output,
    ) {
        let Some(target) = &self.target else { return };
        let operation = block_operation(&prepared.io, data.into_vec());
        let bytes = match &operation {
            BlockOperation::Read(range) | BlockOperation::Write(range, _) => range.len,
            _ => 0,
        };
        let number = prepared.task.as_u64();
        let backend = target.backend;
        self.running.insert(number, Running { prepared, bytes, reservation });
        if let Some(done) = self.operations.start(number, backend, operation) {
            self.finish(done, session, output);
        }
    }

    fn finish(&mut self, done: OperationDone, session: &mut Session, output: &mut Output) {
        let Some(running) = self.running.remove(&done.operation) else {
            return;
        };
        let Prepared { task, io, started, .. } = running.prepared;
        let (response, data) = match done.result {
            Ok(data) => (Response::good(), DataPieces::from_vec(data)),
            Err(error) => {
                self.report(&error, &io);
                (io_error(&error, &io).response(&io.unit), DataPieces::new())
            }
        };
        self.meters.record(kind_of(&io), started.elapsed(), running.bytes);
        self.respond_with(task, response, data, io.data_out_bytes, session, output);
        self.freed.extend(running.reservation);
    }

    /// A line for whoever looks after storage.
    fn report(&self, error: &PartError, io: &Io) {
        if *error == PartError::Cancelled {
            return;
        }
        let mut throttle = self.shared.storage_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = throttle.permit() {
            let command = kind_of(io).name();
            warn!(volume = io.unit.name, command, ?error, suppressed, "storage could not do an operation");
        }
    }

    fn respond(
        &mut self,
        task: TaskId,
        mut response: Response,
        data_out_wanted: u64,
        session: &mut Session,
        output: &mut Output,
    ) {
        let data_in = DataPieces::from_iter([std::mem::take(&mut response.data_in)]);
        self.respond_with(task, response, data_in, data_out_wanted, session, output);
    }

    /// As [`Self::respond`], with data that storage has given.
    fn respond_with(
        &mut self,
        task: TaskId,
        response: Response,
        data_in: DataPieces,
        data_out_wanted: u64,
        session: &mut Session,
        output: &mut Output,
    ) {
        if let Some(sense) = &response.sense {
            self.shared.metrics.count_check_condition(sense.key as u8);
        }
        let result =
            TaskResult { status: response.status.byte(), sense: response.sense_bytes(), data_in, data_out_wanted };
        session.complete(task, result, output);
    }

    /// Drops of these tasks whatever has not been sent to storage.
    fn abandon(&mut self, tasks: &[TaskId], session: &mut Session, output: &mut Output) {
        for &task in tasks {
            if self.running.contains_key(&task.as_u64()) {
                self.operations.abandon(task.as_u64());
                continue;
            }
            self.receiving.remove(&task);
            self.held.retain(|command| command.task != task);
            if self.short_of_memory.front().is_some_and(|first| first.task == task) {
                // What it asked for is not what the next one needs.
                self.memory = None;
                self.granted = None;
            }
            self.short_of_memory.retain(|prepared| prepared.task != task);
            session.complete(task, TaskResult::default(), output);
        }
        self.serve_short_of_memory(session, output);
    }

    /// What a task management function does beyond this session's own tasks, which are settled already.
    fn manage(&mut self, request: TaskManagement, session: &mut Session, output: &mut Output) {
        let TaskManagement { token, function, lun } = request;
        let mut outcome = TaskManagementOutcome::Complete;
        match function {
            TaskFunction::AbortTaskSet | TaskFunction::ClearTaskSet => {
                if self.mapped_lun(lun).is_none() {
                    outcome = TaskManagementOutcome::LunDoesNotExist;
                }
            }
            TaskFunction::LogicalUnitReset => match self.mapped_lun(lun) {
                Some((number, volume)) => {
                    self.nexus.raise(Some(number), UnitAttention::BusDeviceResetFunction);
                    self.reset_others(token, Some(volume), false);
                    return;
                }
                None => outcome = TaskManagementOutcome::LunDoesNotExist,
            },
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                self.nexus.raise(None, UnitAttention::BusDeviceResetFunction);
                self.reset_others(token, None, function == TaskFunction::TargetColdReset);
                return;
            }
        }
        session.complete_task_management(token, outcome, output);
    }

    /// The LUN's number and volume, if it is mapped for this initiator.
    fn mapped_lun(&self, lun: [u8; 8]) -> Option<(u16, VolumeId)> {
        let target = self.target.as_ref()?;
        match LunAddress::from_bytes(lun) {
            LunAddress::Unit(number) if target.device.luns.contains_key(&number) => Some((number, target.volume_id)),
            _ => None,
        }
    }

    /// Tells the other sessions of the target, and this one by [`SessionCommand::OthersReset`] when all have settled.
    fn reset_others(&self, token: u64, volume: Option<VolumeId>, cold: bool) {
        let others = self
            .target
            .as_ref()
            .map(|target| self.shared.sessions.others_of_target(target.name.as_str(), self.session_id))
            .unwrap_or_default();
        let mut answers = Vec::with_capacity(others.len());
        for mut other in others {
            let (settled, answer) = oneshot::channel();
            let command = SessionCommand::ResetByOther { volume, settled };
            if other.commands.send(command).is_ok() {
                // A session that ends instead of answering says so by settling as a whole.
                answers.push(async move {
                    if answer.await.is_err() {
                        let _ = other.settled.wait_for(|settled| *settled).await;
                    }
                    other.commands
                });
            }
        }
        let back = self.handle.commands.clone();
        tokio::task::spawn_local(async move {
            for answer in answers {
                let commands = answer.await;
                if cold {
                    // A session that is gone needs no closing.
                    let _ = commands.send(SessionCommand::Close(EndCause::ColdReset));
                }
            }
            // The session that asked may have ended meanwhile.
            let _ = back.send(SessionCommand::OthersReset { token });
        });
    }

    /// All other nexuses have settled what a reset of this session covers.
    pub(crate) fn others_reset(&mut self, token: u64, session: &mut Session, output: &mut Output) {
        session.complete_task_management(token, TaskManagementOutcome::Complete, output);
    }

    /// Another nexus has reset a logical unit, or (`None`) the target.
    pub(crate) fn reset_by_other(
        &mut self,
        volume: Option<VolumeId>,
        settled: oneshot::Sender<()>,
        session: &mut Session,
        output: &mut Output,
    ) {
        let Some(target) = &self.target else { return };
        if volume.is_some_and(|volume| volume != target.volume_id) {
            return;
        }
        // Each target has one logical unit, so a reset of its volume covers the whole session.
        self.nexus.raise(None, UnitAttention::BusDeviceResetFunction);
        self.last_reset += 1;
        self.resets.insert(self.last_reset, settled);
        session.abort_from_other_nexus(None, self.last_reset, output);
    }

    /// After the connection's end: waits until nothing of the session is open at storage.
    pub(crate) async fn settle(&mut self, session: &mut Session, output: &mut Output) {
        loop {
            while let Some(action) = output.actions.pop_front() {
                if let Action::Abandon(tasks) = action {
                    self.abandon(&tasks, session, output);
                }
            }
            output.pdus.clear();
            if self.running.is_empty() {
                break;
            }
            Self::ready(Some(self)).await;
            while self.advance(session, output) {}
        }
        // The next session of this port waits for this one alone, so this one answers for those before it.
        if let Some(gate) = self.gate.take() {
            gate.await;
        }
    }
}

/// The segments as one; without a copy where there is one.
pub(super) fn contiguous(mut segments: Vec<Bytes>) -> Bytes {
    match segments.len() {
        0 => Bytes::new(),
        1 => segments.remove(0),
        _ => {
            let mut whole = BytesMut::with_capacity(segments.iter().map(Bytes::len).sum());
            for segment in segments {
                whole.extend_from_slice(&segment);
            }
            whole.freeze()
        }
    }
}
