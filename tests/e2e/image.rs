//! A real disk image goes in and comes out: by qemu through iSCSI, and by the admin commands without an initiator.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::random::Random;
use holdfast_tests::{report, tools};
use tempfile::TempDir;

/// How long an import or export may take.
const DEADLINE: Duration = Duration::from_secs(300);

/// An ext4 image of `size_mib` with files in it, about half full.
fn ext4_image(folder: &Path, size_mib: usize) -> Result<std::path::PathBuf> {
    let files = folder.join("files");
    std::fs::create_dir(&files)?;
    let mut random = Random::from_seed(1);
    for number in 0..size_mib / 2 {
        let mut content = vec![0; 1 << 20];
        random.fill(&mut content);
        std::fs::write(files.join(format!("file-{number}")), content)?;
    }
    let image = folder.join("ext4.img");
    tools::make_ext4(&image, &format!("{size_mib}M"), &files)?.succeeded().context("mke2fs")?;
    Ok(image)
}

#[test]
fn image_when_killed_and_restarted_then_comes_out_the_same() -> Result<()> {
    let size_mib = report::count(256, 1024);
    let folder = TempDir::new()?;
    let image = ext4_image(folder.path(), size_mib)?;
    let mut cluster = Cluster::with_volumes(&[&format!("disk0={size_mib}MiB")])?;
    tools::qemu_img_onto(&image, &cluster.url("disk0")?)?.succeeded().context("qemu-img in")?;
    cluster.kill()?;
    cluster.start()?;
    let out = folder.path().join("out.img");
    tools::qemu_img_into(&cluster.url("disk0")?, &out)?.succeeded().context("qemu-img out")?;
    ensure!(tools::sha256(&out)? == tools::sha256(&image)?, "the image has changed");
    tools::check_ext4(&out)?.succeeded().context("e2fsck")?;
    report::figure(
        "ext4 image through qemu-img, kill -9 between",
        format!("{size_mib} MiB, same sha256, e2fsck clean"),
    );
    Ok(())
}

/// A file with islands of data: at its begin, at odd places, and a hole at its end.
fn sparse_file(path: &Path, len_bytes: u64) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(len_bytes)?;
    let mut random = Random::from_seed(2);
    let mut data = vec![0; 256 << 10];
    for at in [0, 1 << 20, (5 << 20) + 4096, (17 << 20) + 512, len_bytes / 2] {
        random.fill(&mut data);
        file.write_all_at(&data, at)?;
    }
    Ok(())
}

#[test]
fn import_and_export_when_file_is_sparse_then_same_content_and_still_sparse() -> Result<()> {
    let folder = TempDir::new()?;
    let (image, out) = (folder.path().join("in.img"), folder.path().join("out.img"));
    let len_bytes = 256 << 20;
    sparse_file(&image, len_bytes)?;
    let mut cluster = Cluster::with_volumes(&["disk0=256MiB"])?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    let sha256 = tools::sha256(&image)?;

    let import = ["volume", "import", "disk0", &text(&image)?, "--yes"];
    let imported = cluster.admin(&import, DEADLINE)?.succeeded().context("import")?;
    ensure!(imported.output().contains(&sha256), "no sha256: {}", imported.output());
    cluster.kill()?;
    cluster.start()?;
    let export = ["volume", "export", "disk0", &text(&out)?];
    let exported = cluster.admin(&export, DEADLINE)?.succeeded().context("export")?;
    ensure!(exported.output().contains(&sha256), "no sha256: {}", exported.output());
    ensure!(tools::sha256(&out)? == sha256, "the file has changed");
    let allocated_bytes = std::fs::metadata(&out)?.blocks() * 512;
    ensure!(allocated_bytes < len_bytes / 16, "{allocated_bytes} bytes allocated");

    // By another way in and out the same is there.
    let through_iscsi = folder.path().join("iscsi.img");
    tools::qemu_img_into(&cluster.url("disk0")?, &through_iscsi)?.succeeded()?;
    ensure!(tools::sha256(&through_iscsi)? == sha256, "iSCSI reads something else");

    // An existing file is not written over unasked, and a volume with data not without --yes.
    cluster.admin(&export, DEADLINE)?.failed().context("export onto an existing file")?;
    cluster.admin(&import[..4], DEADLINE)?.failed().context("import over data")?;
    Ok(())
}

#[test]
fn import_when_it_cannot_be_right_then_refused_and_nothing_written() -> Result<()> {
    let folder = TempDir::new()?;
    let large = folder.path().join("large.img");
    File::create(&large)?.set_len(65 << 20)?;
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let large = large.to_str().context("a path that is not UTF-8")?;
    for arguments in [
        ["volume", "import", "disk0", large, "--yes"],
        ["volume", "import", "nothing", large, "--yes"],
        ["volume", "import", "disk0", "does-not-exist.img", "--yes"],
    ] {
        let refused = cluster.admin(&arguments, DEADLINE)?.failed()?;
        ensure!(refused.stderr.trim().lines().count() == 1, "{}", refused.output());
    }
    Ok(())
}
