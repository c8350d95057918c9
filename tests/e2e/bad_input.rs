//! Malformed input of every kind: the answer that the RFC gives, that session alone affected, counted, and logged briefly.

mod full_feature;
mod login_phase;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::{Pdu, Session, WireError};
use holdfast_tests::wait;

use crate::support::{SECTOR, log_in, read, write};

/// Time in which the target has to answer or to close.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the target has made of a malformed PDU.
#[derive(Debug)]
enum Answer {
    /// A PDU: a Reject, a SCSI response, a login response.
    Pdu(Box<Pdu>),
    /// The connection was closed.
    Closed,
    /// Nothing within the given time.
    Silence,
}

impl Answer {
    fn of(received: Result<Option<Pdu>, WireError>) -> Result<Self> {
        match received {
            Ok(Some(pdu)) => Ok(Self::Pdu(Box::new(pdu))),
            Ok(None) => Ok(Self::Silence),
            Err(WireError::Closed) => Ok(Self::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// The reason code of a Reject.
    fn reject_reason(&self) -> Option<u8> {
        match self {
            Self::Pdu(pdu) if pdu.bhs.opcode() == 0x3f => Some(pdu.bhs.0[2]),
            _ => None,
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// A cluster and a session beside the malformed ones, which must not notice anything.
struct Bystander {
    cluster: Cluster,
    session: Session,
    rounds: u8,
}

impl Bystander {
    fn start() -> Result<Self> {
        let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
        let session = log_in(&cluster, "disk0")?;
        Ok(Self { cluster, session, rounds: 0 })
    }

    /// The process lives and the bystander's session works.
    fn ensure_unaffected(&mut self) -> Result<()> {
        let exited = self.cluster.server()?.exited()?;
        ensure!(exited.is_none(), "the process has ended: {exited:?}");
        self.rounds = self.rounds.wrapping_add(1);
        write(&mut self.session, 1000, vec![self.rounds; 8 * SECTOR]).context("the bystander")?;
        ensure!(read(&mut self.session, 1000, 8)? == vec![self.rounds; 8 * SECTOR], "the bystander reads wrong data");
        Ok(())
    }

    /// The number of bad inputs that the gateway has counted so far, in whatever way they ended.
    fn counted(&self) -> Result<f64> {
        const COUNTERS: [&str; 4] = ["irregularities", "check_conditions", "connection_ends", "logins"];
        let counts = |name: &str| COUNTERS.iter().any(|counter| name == format!("holdfast_gateway_{counter}_total"));
        Ok(self.cluster.metrics()?.matching(counts))
    }

    /// Fails unless more bad inputs than `before` are counted, soon.
    fn ensure_counted(&self, before: f64) -> Result<()> {
        wait::until("a counter to rise", PATIENCE, || Ok((self.counted()? > before).then_some(())))
    }
}
