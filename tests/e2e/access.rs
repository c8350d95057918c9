//! Who may log in: CHAP and mutual CHAP with every algorithm, right and wrong, and lists of initiators.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use holdfast_tests::cluster::{Cluster, Options};
use holdfast_tests::initiator::chap::Credential;
use holdfast_tests::initiator::text::BinaryForm;
use holdfast_tests::initiator::{Algorithm, Chap, Login, LoginError};
use holdfast_tests::{relay, tools};

use crate::support::{initiator, refusal, settle};

/// Login status "authentication failure" (RFC 7143, 11.13.5).
const AUTHENTICATION_FAILURE: (u8, u8) = (2, 1);
/// Login status "authorization failure".
const AUTHORIZATION_FAILURE: (u8, u8) = (2, 2);

const USER: &str = "alice";
const SECRET: &str = "the secret of alice";
const TARGET_USER: &str = "holdfast";
const TARGET_SECRET: &str = "the secret of the target";
const URL_SECRET: &str = "SecretOfAlice1";
const URL_TARGET_SECRET: &str = "SecretOfTarget1";

/// `one-way` wants CHAP, `mutual` also proves itself; both with secrets of this pair.
fn cluster_with(secret: &[u8], target_secret: &[u8]) -> Result<Cluster> {
    let mut cluster = Options::volumes(&["one-way=64MiB", "mutual=64MiB", "open=64MiB"])
        .access(&format!(
            r#"
            [[target]]
            volume = "one-way"
            chap = [{{ user = "{USER}", secret-file = "user" }}, {{ user = "bob", secret-file = "bob" }}]
            [[target]]
            volume = "mutual"
            chap = [{{ user = "{USER}", secret-file = "user" }}]
            mutual-chap = {{ user = "{TARGET_USER}", secret-file = "target" }}
            [[target]]
            volume = "open"
            initiators = ["{}"]
            "#,
            initiator()
        ))
        .prepare()?;
    cluster.put_secret("user", secret)?;
    cluster.put_secret("bob", b"another secret")?;
    cluster.put_secret("target", target_secret)?;
    cluster.start()?;
    Ok(cluster)
}

#[test]
fn libiscsi_when_secret_is_right_or_wrong_then_in_or_out() -> Result<()> {
    let cluster = cluster_with(URL_SECRET.as_bytes(), URL_TARGET_SECRET.as_bytes())?;
    let inquire = |portal: SocketAddr, secret: &str| {
        let url = cluster.url_at(format!("{USER}%{secret}@{portal}"), "one-way")?;
        tools::iscsi_inq(&url, initiator())
    };
    let session = relay::session_of(&cluster, |portal| inquire(portal, URL_SECRET))?;
    ensure!(session["auth"] == "CHAP-MD5" && session["mutual"] == false, "{session}");
    inquire(cluster.portal()?, URL_SECRET)?.succeeded()?;
    inquire(cluster.portal()?, "SecretOfAlice2")?.failed()?;
    inquire(cluster.portal()?, "SecretOfAlice")?.failed()?;
    tools::iscsi_inq(&cluster.url("one-way")?, initiator())?.failed()?;
    Ok(())
}

#[test]
fn libiscsi_when_chap_is_mutual_then_both_secrets_matter() -> Result<()> {
    let cluster = cluster_with(URL_SECRET.as_bytes(), URL_TARGET_SECRET.as_bytes())?;
    let inquire = |portal: SocketAddr, secret: &str, target_secret: &str| {
        let url = cluster.url_at(format!("{USER}%{secret}@{portal}"), "mutual")?;
        tools::iscsi_inq_mutual(&url, TARGET_USER, target_secret)
    };
    let session = relay::session_of(&cluster, |portal| inquire(portal, URL_SECRET, URL_TARGET_SECRET))?;
    ensure!(session["auth"] == "CHAP-MD5" && session["mutual"] == true, "{session}");
    inquire(cluster.portal()?, URL_SECRET, URL_TARGET_SECRET)?.succeeded()?;
    inquire(cluster.portal()?, URL_SECRET, "SecretOfTarget2")?.failed()?;
    inquire(cluster.portal()?, "SecretOfAlice2", URL_TARGET_SECRET)?.failed()?;
    Ok(())
}

#[test]
fn chap_when_each_algorithm_is_used_then_right_secret_in_and_wrong_out() -> Result<()> {
    let cluster = cluster_with(SECRET.as_bytes(), TARGET_SECRET.as_bytes())?;
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha3_256] {
        let login = |volume: &str, secret: &str| -> Result<Login> {
            let chap = Chap::one_way(algorithm, Credential::new(USER, secret));
            Ok(Login::to(&cluster.target(volume)?).with_chap(chap))
        };
        let mut session = login("one-way", SECRET)?.connect(cluster.portal()?)?;
        settle(&mut session)?;
        let listed = cluster.session(session.tsih())?;
        ensure!(listed["auth"] == algorithm.session_list_name() && listed["mutual"] == false, "{listed}");
        ensure!(refusal(&cluster, &login("one-way", "wrong")?)? == AUTHENTICATION_FAILURE);

        let own = Credential::new(USER, SECRET);
        let mutual = |target_secret: &str| -> Result<Login> {
            let chap = Chap::mutual(algorithm, own.clone(), Credential::new(TARGET_USER, target_secret));
            Ok(Login::to(&cluster.target("mutual")?).with_chap(chap))
        };
        let session = mutual(TARGET_SECRET)?.connect(cluster.portal()?)?;
        let listed = cluster.session(session.tsih())?;
        ensure!(listed["auth"] == algorithm.session_list_name() && listed["mutual"] == true, "{listed}");
        let wrong = mutual("wrong")?.connect(cluster.portal()?);
        ensure!(matches!(wrong, Err(LoginError::TargetNotAuthentic)), "the target has proved a wrong secret");
    }
    Ok(())
}

#[test]
fn chap_when_several_algorithms_are_offered_then_first_of_the_list() -> Result<()> {
    let cluster = cluster_with(SECRET.as_bytes(), TARGET_SECRET.as_bytes())?;
    for algorithms in [
        [Algorithm::Sha3_256, Algorithm::Sha256, Algorithm::Md5],
        [Algorithm::Sha256, Algorithm::Md5, Algorithm::Sha3_256],
        [Algorithm::Md5, Algorithm::Sha3_256, Algorithm::Sha256],
    ] {
        let first = algorithms[0];
        let mut chap = Chap::one_way(first, Credential::new(USER, SECRET));
        chap.algorithms = algorithms.to_vec();
        let session = Login::to(&cluster.target("one-way")?).with_chap(chap).connect(cluster.portal()?)?;
        let listed = cluster.session(session.tsih())?;
        ensure!(listed["auth"] == first.session_list_name(), "{listed}");
    }
    Ok(())
}

#[test]
fn chap_when_secret_holds_any_byte_then_in_with_it_alone() -> Result<()> {
    // Every byte value once, newline, zero and quotes among them; 255 bytes is the most.
    let all: Vec<u8> = (1..=255).rev().collect();
    let mut odd = b"#\0 \n%@\"'\\\r\t=,".to_vec();
    odd.extend([0xff, 0x80, 0x00]);
    for (secret, target_secret) in [(&all, &odd), (&odd, &all), (&vec![0], &vec![b'\r'])] {
        let cluster = cluster_with(secret, target_secret)?;
        for form in [BinaryForm::Hex, BinaryForm::Base64] {
            let own = Credential::new(USER, secret);
            let mut chap = Chap::mutual(Algorithm::Sha256, own, Credential::new(TARGET_USER, target_secret));
            chap.form = form;
            Login::to(&cluster.target("mutual")?).with_chap(chap).connect(cluster.portal()?)?;
        }
        let mut almost = secret.clone();
        almost.pop();
        almost.push(0x55);
        let chap = Chap::one_way(Algorithm::Md5, Credential::new(USER, almost));
        let login = Login::to(&cluster.target("one-way")?).with_chap(chap);
        ensure!(refusal(&cluster, &login)? == AUTHENTICATION_FAILURE);
    }
    Ok(())
}

#[test]
fn chap_when_secret_file_ends_in_a_newline_then_it_does_not_count() -> Result<()> {
    let cluster = cluster_with(b"twelve bytes\n", b"other bytes\n\n")?;
    let own = Credential::new(USER, "twelve bytes");
    let chap = Chap::mutual(Algorithm::Md5, own, Credential::new(TARGET_USER, "other bytes\n"));
    Login::to(&cluster.target("mutual")?).with_chap(chap).connect(cluster.portal()?)?;
    Ok(())
}

#[test]
fn chap_when_evaded_then_authentication_failure() -> Result<()> {
    let cluster = cluster_with(SECRET.as_bytes(), TARGET_SECRET.as_bytes())?;
    let target = cluster.target("mutual")?;
    // No CHAP offered, and the security stage left out altogether.
    let mut login = Login::to(&target);
    ensure!(refusal(&cluster, &login)?.0 == 2);
    login.auth_method = Some("None".to_owned());
    ensure!(refusal(&cluster, &login)? == AUTHENTICATION_FAILURE);

    // The target's own challenge sent back to it (RFC 7143, 12.1.3).
    let own = Credential::new(USER, TARGET_SECRET);
    let mut chap = Chap::mutual(Algorithm::Md5, own, Credential::new(TARGET_USER, TARGET_SECRET));
    chap.reflect = true;
    ensure!(refusal(&cluster, &Login::to(&target).with_chap(chap))? == AUTHENTICATION_FAILURE);

    // A user of another target, and one that does not exist, with a right secret.
    for name in ["bob", "mallory", TARGET_USER, ""] {
        let chap = Chap::one_way(Algorithm::Md5, Credential::new(name, SECRET));
        let refused = refusal(&cluster, &Login::to(&target).with_chap(chap))?;
        ensure!(refused == AUTHENTICATION_FAILURE, "{name:?}: {refused:?}");
    }
    ensure!(!cluster.log().contains(SECRET), "the log shows a secret");
    Ok(())
}

#[test]
fn chap_when_target_asks_none_then_none_is_agreed_in_the_security_stage() -> Result<()> {
    let cluster = cluster_with(SECRET.as_bytes(), TARGET_SECRET.as_bytes())?;
    let mut login = Login::to(&cluster.target("open")?);
    login.auth_method = Some("CHAP,None".to_owned());
    let session = login.connect(cluster.portal()?)?;
    let listed = cluster.session(session.tsih())?;
    ensure!(listed["auth"] == "None", "{listed}");
    Ok(())
}

#[test]
fn initiators_when_named_then_only_they_may_log_in() -> Result<()> {
    let cluster = cluster_with(SECRET.as_bytes(), TARGET_SECRET.as_bytes())?;
    let login = Login::to(&cluster.target("open")?);
    login.connect(cluster.portal()?)?;
    let other = login.as_initiator("iqn.2026-11.io.holdfast.tests:other");
    ensure!(refusal(&cluster, &other)? == AUTHORIZATION_FAILURE);
    tools::iscsi_inq(&cluster.url("open")?, "iqn.2026-11.io.holdfast.tests:other")?.failed()?;
    tools::iscsi_inq(&cluster.url("open")?, initiator())?.succeeded()?;
    Ok(())
}
