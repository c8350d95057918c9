//! Discovery sessions: SendTargets, what it lists to whom, and CHAP of its own.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_tests::cluster::{Cluster, Options};
use holdfast_tests::initiator::chap::Credential;
use holdfast_tests::initiator::{Algorithm, Chap, Command, Login};
use holdfast_tests::tools;

use crate::support::{initiator, log_in, refusal};

fn target_names(pairs: &[(String, String)]) -> Vec<&str> {
    pairs.iter().filter(|(key, _)| key == "TargetName").map(|(_, value)| value.as_str()).collect()
}

#[test]
fn iscsi_ls_when_asked_then_lists_targets_and_luns() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB", "disk1=1GiB"])?;
    let portal = format!("iscsi://{}", cluster.portal()?);
    let listed = tools::iscsi_ls(&portal, true)?.succeeded()?.output();
    for volume in ["disk0", "disk1"] {
        ensure!(listed.contains(&cluster.target(volume)?), "{listed}");
    }
    ensure!(listed.contains(&cluster.portal()?.to_string()), "{listed}");
    ensure!(listed.contains("Lun:0"), "{listed}");
    Ok(())
}

#[test]
fn send_targets_when_all_then_address_with_group_tag_of_each() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB", "disk1=64MiB"])?;
    let mut session = Login::discovery().connect(cluster.portal()?)?;
    let pairs = session.send_targets("All")?;
    ensure!(target_names(&pairs) == [cluster.target("disk0")?, cluster.target("disk1")?], "{pairs:?}");
    let address = format!("{},1", cluster.portal()?);
    let addresses: Vec<_> = pairs.iter().filter(|(key, _)| key == "TargetAddress").collect();
    ensure!(addresses.len() == 2 && addresses.iter().all(|(_, value)| *value == address), "{pairs:?}");
    ensure!(session.log_out()? == 0);
    Ok(())
}

#[test]
fn send_targets_when_empty_in_a_normal_session_then_that_target_alone() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB", "disk1=64MiB"])?;
    let mut session = log_in(&cluster, "disk1")?;
    ensure!(target_names(&session.send_targets("")?) == [cluster.target("disk1")?]);
    Ok(())
}

#[test]
fn send_targets_when_list_is_long_then_it_is_continued() -> Result<()> {
    let volumes: Vec<String> = (0..40).map(|number| format!("volume-with-a-long-name-{number:02}=1MiB")).collect();
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let cluster = Cluster::with_volumes(&volumes)?;
    let login = Login::discovery().with("MaxRecvDataSegmentLength", "512");
    let mut session = login.connect(cluster.portal()?)?;
    let pairs = session.send_targets("All")?;
    ensure!(target_names(&pairs).len() == 40, "{}", target_names(&pairs).len());
    Ok(())
}

#[test]
fn send_targets_when_initiators_are_named_then_lists_only_what_they_may_use() -> Result<()> {
    let cluster = Options::volumes(&["mine=64MiB", "other=64MiB", "all=64MiB"])
        .access(&format!(
            r#"
            [[target]]
            volume = "mine"
            initiators = ["{}"]
            [[target]]
            volume = "other"
            initiators = ["iqn.2026-11.io.holdfast.tests:other"]
            "#,
            initiator()
        ))
        .start()?;
    let listed = |login: Login| -> Result<Vec<String>> {
        let pairs = login.connect(cluster.portal()?)?.send_targets("All")?;
        let mut names: Vec<_> = target_names(&pairs).into_iter().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    };
    ensure!(listed(Login::discovery())? == [cluster.target("all")?, cluster.target("mine")?]);
    let other = Login::discovery().as_initiator("iqn.2026-11.io.holdfast.tests:other");
    ensure!(listed(other)? == [cluster.target("all")?, cluster.target("other")?]);
    Ok(())
}

#[test]
fn discovery_when_chap_is_set_then_right_secrets_only() -> Result<()> {
    let mut cluster = Options::volumes(&["disk0=64MiB"])
        .access(
            r#"
            [discovery]
            chap = [{ user = "finder", secret-file = "finder" }]
            mutual-chap = { user = "found", secret-file = "found" }
            "#,
        )
        .prepare()?;
    cluster.put_secret("finder", b"SecretOfFinder")?;
    cluster.put_secret("found", b"SecretOfFound")?;
    cluster.start()?;

    let portal = cluster.portal()?;
    tools::iscsi_ls(&format!("iscsi://finder%SecretOfFinder@{portal}"), false)?.succeeded()?;
    let refused = tools::iscsi_ls(&format!("iscsi://finder%SecretOfOther@{portal}"), false)?;
    ensure!(!refused.output().contains(&cluster.target("disk0")?), "{}", refused.output());
    ensure!(refusal(&cluster, &Login::discovery())?.0 == 2);

    let own = Credential::new("finder", "SecretOfFinder");
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha3_256] {
        let chap = Chap::mutual(algorithm, own.clone(), Credential::new("found", "SecretOfFound"));
        let mut session = Login::discovery().with_chap(chap).connect(portal)?;
        let listed = cluster.session(session.tsih())?;
        ensure!(listed["auth"] == algorithm.session_list_name() && listed["mutual"] == true, "{listed}");
        ensure!(listed["target"].is_null(), "{listed}");
        ensure!(target_names(&session.send_targets("All")?).len() == 1);
        let wrong = Chap::one_way(algorithm, Credential::new("finder", "SecretOfFound"));
        ensure!(refusal(&cluster, &Login::discovery().with_chap(wrong))? == (2, 1));
    }
    // The target itself is open.
    tools::iscsi_inq(&cluster.url("disk0")?, initiator())?.succeeded()?;
    Ok(())
}

#[test]
fn discovery_when_scsi_command_is_sent_then_no_answer_but_reject_or_end() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = Login::discovery().connect(cluster.portal()?)?;
    session.submit(Command::test_unit_ready())?;
    match session.wire().receive_within(Duration::from_secs(10)) {
        Ok(Some(pdu)) => ensure!(pdu.bhs.opcode() == 0x3f, "{pdu:02x?}"),
        Ok(None) => anyhow::bail!("neither reject nor end"),
        Err(_) => {}
    }
    Ok(())
}
