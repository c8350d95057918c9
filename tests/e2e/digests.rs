//! Header and data digests: agreed as offered, shown in the session list, right on every PDU, and what a wrong one does.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::scsi::status;
use holdfast_tests::initiator::wire::Spoil;
use holdfast_tests::initiator::{Command, Event, Login, WireError};
use holdfast_tests::{relay, tools};
use std::time::Duration;

use crate::support::{SECTOR, initiator, log_in, read, settle, write};

/// Reject reason "data digest error" (RFC 7143, 11.17.1).
const DATA_DIGEST_ERROR: u8 = 0x02;

// Of the tools of libiscsi 1.19, iscsi-ls alone leaves the URL's header_digest as it is: the others set "None,CRC32C" after
// they have read it. qemu has an option of its own, and reads and writes with it.

#[test]
fn libiscsi_when_url_asks_for_header_digest_then_agreed() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    for (asked, agreed) in [("crc32c", "CRC32C"), ("none", "None")] {
        let session = relay::session_of(&cluster, |portal| {
            tools::iscsi_ls(&format!("{}?header_digest={asked}", cluster.url_at(portal, "disk0")?), false)
        })?;
        ensure!(session["header_digest"] == agreed && session["data_digest"] == "None", "{session}");
    }
    let url = format!("{}?header_digest=crc32c", cluster.url("disk0")?);
    tools::iscsi_inq(&url, initiator())?.succeeded()?;
    Ok(())
}

#[test]
fn qemu_when_header_digest_is_asked_for_then_agreed_and_data_is_right() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    for (asked, agreed) in [("crc32c", "CRC32C"), ("crc32c-none", "CRC32C"), ("none", "None")] {
        let session = relay::session_of(&cluster, |portal| {
            let image = format!(
                "driver=iscsi,transport=tcp,portal={portal},target={},lun=0,header-digest={asked}",
                cluster.target("disk0")?
            );
            let pattern = ["write -P 165 4096 1M", "read -P 165 4096 1M", "read -P 0 0 4096"];
            tools::qemu_io(&image, &pattern)?.succeeded()
        })?;
        ensure!(session["header_digest"] == agreed, "{session}");
    }
    Ok(())
}

#[test]
fn digests_when_offered_then_agreed_and_listed() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    for (offer, agreed) in [("CRC32C", "CRC32C"), ("None", "None"), ("CRC32C,None", "CRC32C"), ("None,CRC32C", "None")]
    {
        for (header, data, expected) in [(offer, "None", (agreed, "None")), ("None", offer, ("None", agreed))] {
            let login = Login::to(&cluster.target("disk0")?).with_digests(header, data);
            let mut session = login.connect(cluster.portal()?)?;
            settle(&mut session)?;
            let negotiated = session.negotiated();
            let own = (negotiated.header_digest, negotiated.data_digest);
            ensure!(own == (expected.0 == "CRC32C", expected.1 == "CRC32C"), "{header} {data}: {negotiated:?}");
            let listed = cluster.session(session.tsih())?;
            ensure!(listed["header_digest"] == expected.0 && listed["data_digest"] == expected.1, "{listed}");
        }
    }
    Ok(())
}

#[test]
fn header_digest_when_wrong_then_only_that_connection_is_dropped() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut bystander = log_in(&cluster, "disk0")?;
    let login = Login::to(&cluster.target("disk0")?).with_digests("CRC32C", "CRC32C");
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    session.wire().spoil_next(Spoil::HeaderDigest);
    session.send_ping(b"ping")?;
    session.wire().receive_until_closed(Duration::from_secs(10))?;
    write(&mut bystander, 0, vec![7; SECTOR])
}

#[test]
fn data_digest_when_wrong_then_the_task_fails_and_the_session_goes_on() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let login = Login::to(&cluster.target("disk0")?).with_digests("None", "CRC32C");
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    write(&mut session, 0, vec![1; SECTOR])?;
    session.wire().spoil_next(Spoil::DataDigest);
    let tag = session.submit(Command::write_16(0, vec![2; SECTOR], SECTOR))?;
    let reason = session.wait_for(|event| match event {
        Event::Reject { reason, .. } => Some(*reason),
        _ => None,
    })?;
    ensure!(reason == DATA_DIGEST_ERROR, "reason {reason:02x}");
    let completion = session.wait_for(|event| match event {
        Event::Completion(completion) if completion.task_tag == tag => Some(completion.clone()),
        _ => None,
    })?;
    ensure!(completion.status == status::CHECK_CONDITION, "{completion:02x?}");
    ensure!(read(&mut session, 0, 1)? == vec![1; SECTOR], "data with a wrong digest was written");
    Ok(())
}

#[test]
fn digests_when_both_are_on_then_large_transfers_are_whole() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let login = Login::to(&cluster.target("disk0")?).with_digests("CRC32C", "CRC32C");
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    // Odd lengths need padding under the digest: MODE SENSE and INQUIRY answer with whatever length is asked for.
    for len_bytes in [5_u8, 6, 7, 8, 36, 37] {
        let inquiry = Command::data_in([0x12, 0, 0, 0, len_bytes, 0], usize::from(len_bytes));
        let answer = session.execute(inquiry)?;
        ensure!(answer.is_good() && answer.data_in.len() == usize::from(len_bytes), "{answer:02x?}");
    }
    let data: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    write(&mut session, 100, data.clone())?;
    ensure!(read(&mut session, 100, 2048)? == data);
    match session.wire().receive_within(Duration::from_millis(1)) {
        Ok(None) => Ok(()),
        Ok(Some(pdu)) => anyhow::bail!("unasked: {pdu:02x?}"),
        Err(WireError::Closed) => anyhow::bail!("closed"),
        Err(error) => Err(error.into()),
    }
}
