//! A TCP connection that carries PDUs: padding and digests are added and checked here (RFC 7143, 11.2.3).

use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::crc32c::{Crc32c, crc32c};
use super::pdu::{Bhs, Pdu};

/// How long a read may take before the test fails.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why no PDU came.
#[derive(Debug)]
pub enum WireError {
    /// The target has closed the connection, between two PDUs or within one.
    Closed,
    /// Nothing came in time.
    TimedOut,
    /// The header digest that came is not that of the header.
    HeaderDigest,
    /// The data digest that came is not that of the data.
    DataDigest,
    /// The target has sent bytes in the padding that are not zero.
    Padding,
    /// Something else of the socket.
    Io(std::io::Error),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => write!(formatter, "the target has closed the connection"),
            Self::TimedOut => write!(formatter, "the target has sent nothing in time"),
            Self::HeaderDigest => write!(formatter, "wrong header digest"),
            Self::DataDigest => write!(formatter, "wrong data digest"),
            Self::Padding => write!(formatter, "padding that is not zero"),
            Self::Io(error) => write!(formatter, "{error}"),
        }
    }
}

impl std::error::Error for WireError {}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Self::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io(error),
        }
    }
}

/// What is spoiled in the next PDU that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// The header digest.
    HeaderDigest,
    /// The data digest.
    DataDigest,
}

/// The connection.
#[derive(Debug)]
pub struct Wire {
    reader: BufReader<TcpStream>,
    header_digest: bool,
    data_digest: bool,
    spoil: Option<Spoil>,
}

impl Wire {
    /// Connects; digests are off, as at the start of every login.
    pub fn connect(portal: SocketAddr) -> Result<Self, WireError> {
        let stream = TcpStream::connect_timeout(&portal, DEFAULT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEFAULT_TIMEOUT))?;
        stream.set_write_timeout(Some(DEFAULT_TIMEOUT))?;
        Ok(Self {
            reader: BufReader::with_capacity(64 << 10, stream),
            header_digest: false,
            data_digest: false,
            spoil: None,
        })
    }

    /// Switches digests, from the next PDU on in both directions.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        self.header_digest = header;
        self.data_digest = data;
    }

    /// Spoils something in the next PDU that is sent.
    pub fn spoil_next(&mut self, spoil: Spoil) {
        self.spoil = Some(spoil);
    }

    /// The address this connection comes from.
    pub fn local_address(&self) -> Result<SocketAddr, WireError> {
        Ok(self.reader.get_ref().local_addr()?)
    }

    /// Sends a PDU; the lengths in `bhs` are set from `ahs` and `data`.
    pub fn send(&mut self, bhs: Bhs, ahs: &[u8], data: &[u8]) -> Result<(), WireError> {
        self.send_as_is(bhs.with_lengths(ahs.len(), data.len()), ahs, data)
    }

    /// Sends a PDU with the lengths that `bhs` claims, true or not. `ahs` and `data` are padded to words.
    pub fn send_as_is(&mut self, bhs: Bhs, ahs: &[u8], data: &[u8]) -> Result<(), WireError> {
        let spoil = self.spoil.take();
        let mut head = bhs.0.to_vec();
        head.extend_from_slice(ahs);
        head.resize(head.len().next_multiple_of(4), 0);
        if self.header_digest {
            let digest = crc32c(&head) ^ u32::from(spoil == Some(Spoil::HeaderDigest));
            head.extend_from_slice(&digest.to_le_bytes());
        }
        let mut tail = vec![0; data.len().next_multiple_of(4) - data.len()];
        if self.data_digest && !data.is_empty() {
            let digest = Crc32c::new().update(data).update(&tail).value();
            let digest = digest ^ u32::from(spoil == Some(Spoil::DataDigest));
            tail.extend_from_slice(&digest.to_le_bytes());
        }
        self.write_all([&head, data, &tail])
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        Ok(self.reader.get_mut().write_all(bytes)?)
    }

    fn write_all(&mut self, parts: [&[u8]; 3]) -> Result<(), WireError> {
        let mut slices = parts.map(IoSlice::new);
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.reader.get_mut().write_vectored(rest) {
                Ok(0) => return Err(WireError::Closed),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next PDU. Checks padding and digests.
    pub fn receive(&mut self) -> Result<Pdu, WireError> {
        let mut bhs = [0; 48];
        self.reader.read_exact(&mut bhs)?;
        let bhs = Bhs(bhs);
        let ahs = self.read_vec(bhs.ahs_len_bytes())?;
        if self.header_digest && self.read_u32()? != Crc32c::new().update(&bhs.0).update(&ahs).value() {
            return Err(WireError::HeaderDigest);
        }
        let len_bytes = bhs.data_len_bytes();
        let mut data = self.read_vec(len_bytes.next_multiple_of(4))?;
        if self.data_digest && len_bytes > 0 && self.read_u32()? != crc32c(&data) {
            return Err(WireError::DataDigest);
        }
        if data[len_bytes..].iter().any(|byte| *byte != 0) {
            return Err(WireError::Padding);
        }
        data.truncate(len_bytes);
        Ok(Pdu { bhs, ahs, data })
    }

    /// The next PDU, or `None` when nothing begins to arrive within `patience`.
    pub fn receive_within(&mut self, patience: Duration) -> Result<Option<Pdu>, WireError> {
        if self.reader.buffer().is_empty() {
            self.reader.get_ref().set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
            let filled = self.reader.fill_buf().map(<[u8]>::is_empty).map_err(WireError::from);
            self.reader.get_ref().set_read_timeout(Some(DEFAULT_TIMEOUT))?;
            match filled {
                Ok(true) => return Err(WireError::Closed),
                Ok(false) => {}
                Err(WireError::TimedOut) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.receive().map(Some)
    }

    /// Reads until the target closes the connection and returns what came before. Fails when it stays open.
    pub fn receive_until_closed(&mut self, deadline: Duration) -> Result<Vec<Pdu>, WireError> {
        let started = Instant::now();
        let mut pdus = Vec::new();
        loop {
            match self.receive_within(deadline.saturating_sub(started.elapsed())) {
                Ok(Some(pdu)) => pdus.push(pdu),
                Ok(None) => return Err(WireError::TimedOut),
                Err(WireError::Closed) => return Ok(pdus),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the sending direction; the target sees the end of the stream.
    pub fn finish_sending(&mut self) -> Result<(), WireError> {
        Ok(self.reader.get_ref().shutdown(Shutdown::Write)?)
    }

    fn read_vec(&mut self, len_bytes: usize) -> Result<Vec<u8>, WireError> {
        let mut bytes = vec![0; len_bytes];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_u32(&mut self) -> Result<u32, WireError> {
        let mut bytes = [0; 4];
        self.reader.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// Two ends of a connection.
#[cfg(test)]
pub(crate) fn pair() -> (Wire, Wire) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = Wire::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    (near, Wire { reader: BufReader::new(far), header_digest: false, data_digest: false, spoil: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initiator::pdu::request;

    #[test]
    fn receive_when_digests_are_on_then_what_was_sent() {
        let (mut near, mut far) = pair();
        near.set_digests(true, true);
        far.set_digests(true, true);
        let ahs = [0, 5, 2, 0, 0, 0, 0, 9];
        near.send(Bhs::new(request::SCSI_COMMAND, 0), &ahs, b"abcde").unwrap();
        near.send(Bhs::new(request::NOP_OUT, 0), &[], b"").unwrap();
        let pdu = far.receive().unwrap();
        assert_eq!((pdu.ahs.as_slice(), pdu.data.as_slice()), (&ahs[..], &b"abcde"[..]));
        assert_eq!(far.receive().unwrap().bhs.opcode(), request::NOP_OUT);
    }

    #[test]
    fn receive_when_a_digest_is_spoiled_then_says_which() {
        for (spoil, data) in [(Spoil::HeaderDigest, &b""[..]), (Spoil::DataDigest, &b"abc"[..])] {
            let (mut near, mut far) = pair();
            near.set_digests(true, true);
            far.set_digests(true, true);
            near.spoil_next(spoil);
            near.send(Bhs::new(request::NOP_OUT, 0), &[], data).unwrap();
            match (spoil, far.receive()) {
                (Spoil::HeaderDigest, Err(WireError::HeaderDigest)) => {}
                (Spoil::DataDigest, Err(WireError::DataDigest)) => {}
                (_, other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn receive_until_closed_when_far_end_closes_then_pdus_before() {
        let (near, mut far) = pair();
        let mut near = near;
        far.send(Bhs::new(request::NOP_OUT, 0), &[], b"").unwrap();
        drop(far);
        assert_eq!(near.receive_until_closed(Duration::from_secs(5)).unwrap().len(), 1);
    }
}
