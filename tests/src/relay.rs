//! A relay in front of a portal that lets a login pass and holds back what comes after it, so that the session of a tool
//! which lasts for a moment only can be looked at.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::initiator::pdu::{Bhs, request};
use crate::process::Finished;
use crate::wait;

/// Runs a tool of libiscsi with the address of a relay, and returns what the gateway's list says of its session.
pub fn session_of(cluster: &Cluster, tool: impl FnOnce(SocketAddr) -> Result<Finished> + Send) -> Result<Value> {
    let relay = Relay::start(cluster.portal()?)?;
    std::thread::scope(|scope| {
        let running = scope.spawn(|| tool(relay.address));
        let listed = wait::until("a session in the list", Duration::from_secs(20), || {
            let session = cluster.sessions()?.into_iter().next();
            Ok(if running.is_finished() { Some(session) } else { session.map(Some) })
        });
        relay.release();
        let finished = running.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the tool's thread has panicked")))?;
        finished.succeeded()?;
        listed?.context("the tool has ended before its session was seen")
    })
}

/// Whether what follows the login may pass.
#[derive(Debug, Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open));
    }
}

struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
    relaying: Option<JoinHandle<()>>,
}

impl Relay {
    fn start(portal: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, gate) = (listener.local_addr()?, Arc::<Gate>::default());
        let relaying = std::thread::spawn({
            let gate = gate.clone();
            move || {
                // An error is the end of the connection, which both ends see.
                if let Ok((near, _)) = listener.accept() {
                    let _ = relay(&near, portal, &gate);
                    let _ = near.shutdown(Shutdown::Both);
                }
            }
        });
        Ok(Self { address, gate, relaying: Some(relaying) })
    }

    fn release(&self) {
        self.gate.open();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.release();
        // Ends the wait for a connection, if none has come.
        let _ = TcpStream::connect(self.address);
        if let Some(relaying) = self.relaying.take() {
            let _ = relaying.join();
        }
    }
}

fn relay(near: &TcpStream, portal: SocketAddr, gate: &Gate) -> Result<()> {
    let far = TcpStream::connect(portal)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut &far, &mut &*near);
            let _ = near.shutdown(Shutdown::Both);
        });
        let forwarded = forward(near, &far, gate);
        far.shutdown(Shutdown::Both)?;
        forwarded
    })
}

/// Initiator to target: whole login requests at once, the rest when the gate is open.
fn forward(mut near: &TcpStream, mut far: &TcpStream, gate: &Gate) -> Result<()> {
    loop {
        let mut bytes = [0; 48];
        near.read_exact(&mut bytes)?;
        let header = Bhs(bytes);
        if header.opcode() != request::LOGIN {
            gate.pass();
            far.write_all(&bytes)?;
            std::io::copy(&mut near, &mut far)?;
            return Ok(());
        }
        let mut data = vec![0; header.ahs_len_bytes() + header.data_len_bytes().next_multiple_of(4)];
        near.read_exact(&mut data)?;
        far.write_all(&[&bytes[..], &data].concat())?;
    }
}
