//! The daemon's memory under the largest load that it has to bear: bounded, whatever the initiators send.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::{Command, Event, Login};
use holdfast_tests::report;

use crate::support::{SECTOR, settle};

const SESSIONS: usize = 64;
const DEPTH: usize = 32;
const WRITE_BYTES: usize = 1 << 20;
const LIMIT_BYTES: u64 = 512 << 20;

#[test]
fn memory_when_64_sessions_write_1_mib_at_depth_32_then_under_512_mib() -> Result<()> {
    // Each session has DEPTH writes on its way all the time; a soak only keeps it up for longer.
    for (volume, writes) in [("null=1GiB,kind=null", report::count(48, 512)), ("disk0=1GiB", report::count(36, 128))] {
        let mut cluster = Cluster::with_volumes(&[volume])?;
        let name = volume.split('=').next().unwrap_or_default();
        load(&cluster, name, writes).context(volume)?;
        let peak_bytes = cluster.server()?.peak_memory_bytes()?;
        let peak_mib = peak_bytes >> 20;
        report::figure(
            &format!("{SESSIONS} sessions, 1 MiB writes at depth {DEPTH}, {name}"),
            format!("peak resident memory of the whole process {peak_mib} MiB after {} writes", writes * SESSIONS),
        );
        ensure!(peak_bytes < LIMIT_BYTES, "{volume}: {peak_mib} MiB");
    }
    Ok(())
}

fn load(cluster: &Cluster, volume: &str, writes: usize) -> Result<()> {
    let (portal, login) = (cluster.portal()?, Login::to(&cluster.target(volume)?));
    let data: Arc<[u8]> = vec![0xa5; WRITE_BYTES].into();
    let results = std::thread::scope(|scope| {
        let loads: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut login = login.clone();
                login.isid = [0x80, 0x4d, 0x45, 0x4d, 0, u8::try_from(number).unwrap_or(0)];
                let data = data.clone();
                scope.spawn(move || one_session(&login, portal, number, &data, writes))
            })
            .collect();
        loads.into_iter().map(|load| load.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.map_err(|_| anyhow::anyhow!("a session has panicked"))??;
    }
    Ok(())
}

fn one_session(
    login: &Login,
    portal: std::net::SocketAddr,
    number: usize,
    data: &Arc<[u8]>,
    writes: usize,
) -> Result<()> {
    let mut session = login.connect(portal)?;
    settle(&mut session)?;
    let (mut begun, mut ended) = (0, 0);
    while ended < writes {
        if begun < writes && session.outstanding() < DEPTH && session.window() > 0 {
            let place = (number * DEPTH + begun % DEPTH) % 1024;
            let lba = u64::try_from(place * WRITE_BYTES / SECTOR)?;
            session.submit(Command::write_16(lba, data.clone(), SECTOR))?;
            begun += 1;
            continue;
        }
        match session.next_event()? {
            Event::Completion(completion) => {
                ensure!(completion.is_good(), "session {number}: {completion:02x?}");
                ended += 1;
            }
            Event::Pinged => {}
            other => anyhow::bail!("session {number}: {other:02x?}"),
        }
    }
    Ok(())
}
