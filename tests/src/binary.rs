//! Where the `holdfast` binary under test is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};

/// The binary: `HOLDFAST_BIN` where it is set, else the one of this test's own build profile, brought up to date first.
pub fn holdfast() -> Result<PathBuf> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| locate().map_err(|error| format!("{error:#}")));
    found.clone().map_err(|error| anyhow!(error))
}

fn locate() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HOLDFAST_BIN") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "HOLDFAST_BIN names no file: {}", path.display());
        return Ok(path);
    }
    // TARGET/PROFILE/deps/e2e-HASH
    let own = std::env::current_exe().context("where this test is")?;
    let profile = own.parent().and_then(Path::parent).context("this test is not in a build folder")?;
    build(profile)?;
    Ok(profile.join("holdfast"))
}

fn build(profile: &Path) -> Result<()> {
    let target = profile.parent().context("no build folder around the profile's")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "holdfast-cli", "--bin", "holdfast"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(target).current_dir(checkout());
    let status = cargo.status().context("cargo build")?;
    ensure!(status.success(), "cargo build of the binary under test: {status}");
    Ok(())
}

/// The root of the checkout that this crate was built from.
pub fn checkout() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}
