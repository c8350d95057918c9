//! What waits to be sent on a connection, and the memory that it holds.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use holdfast_iscsi::frame::WriteQueue;
use holdfast_iscsi::output::Output;
use tokio::net::tcp::WriteHalf;

use crate::memory::Reservation;

/// Segments handed to the kernel in one call.
const MAX_SLICES: usize = 128;

/// Encoded PDUs on their way to the socket.
#[derive(Default)]
pub(crate) struct Outgoing {
    queue: WriteQueue,
    /// Bytes that the socket has taken, since the beginning.
    sent_bytes: u64,
    /// Memory of data in the queue, with the count of sent bytes at which it is free again.
    reservations: VecDeque<(u64, Reservation)>,
    /// Sum of these.
    reserved_bytes: u64,
}

impl Outgoing {
    pub(crate) fn set_digests(&mut self, header: bool, data: bool) {
        self.queue.set_digests(header, data);
    }

    /// Encodes the PDUs that the protocol has made.
    pub(crate) fn queue(&mut self, output: &mut Output) {
        while let Some(pdu) = output.pdus.pop_front() {
            self.queue.push(pdu);
        }
    }

    /// Keeps memory reserved until everything that is queued now has left.
    pub(crate) fn hold(&mut self, reservation: Reservation) {
        let end = self.sent_bytes + self.queue.len_bytes() as u64;
        if end > self.sent_bytes {
            self.reserved_bytes += reservation.bytes();
            self.reservations.push_back((end, reservation));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether more than `limit_bytes` wait.
    pub(crate) fn is_over(&self, limit_bytes: usize) -> bool {
        self.queue.len_bytes() > limit_bytes
    }

    /// Whether more than `limit_bytes` wait that no reservation stands for: echoes of NOPs, rejects, sense data.
    pub(crate) fn is_over_unreserved(&self, limit_bytes: usize) -> bool {
        self.queue.len_bytes() as u64 > self.reserved_bytes + limit_bytes as u64
    }

    /// Sends as much as the socket takes now.
    pub(crate) fn send(&mut self, stream: &WriteHalf<'_>) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let filled = self.queue.io_slices(&mut slices);
            match stream.try_write_vectored(&slices[..filled]) {
                Ok(sent) => {
                    self.queue.advance(sent);
                    self.sent_bytes += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.reservations.front().is_some_and(|(end, _)| *end <= self.sent_bytes)
            && let Some((_, reservation)) = self.reservations.pop_front()
        {
            self.reserved_bytes -= reservation.bytes();
        }
        Ok(())
    }
}
