//! What `holdfast dev` prints when it is ready.

use std::fmt::Write as _;
use std::path::Path;

use holdfast_proto::units::SizeBytes;

use crate::cluster_file::ClusterFile;

/// The targets, how to attach one from Linux, where to look, how to stop.
pub(crate) fn ready(cluster: &ClusterFile, data_dir: &Path) -> String {
    let mut text = String::from("\nHoldfast is ready.\n\n");
    // Writing to a string cannot fail.
    let _ = write(&mut text, cluster, data_dir);
    text
}

fn write(text: &mut String, cluster: &ClusterFile, data_dir: &Path) -> std::fmt::Result {
    let Some(gateway) = cluster.gateways.first() else {
        return Ok(());
    };
    let portal = &gateway.portal;
    for volume in &cluster.volumes {
        let size = SizeBytes::new(volume.size_bytes).map_or(String::new(), |size| size.to_string());
        writeln!(text, "  {:<9} iscsi://{portal}/{}/{}  ({size})", "target", volume.target, volume.lun)?;
    }
    writeln!(text)?;
    if let Some(volume) = cluster.volumes.first() {
        let target = &volume.target;
        writeln!(text, "  attach    sudo iscsiadm -m discovery -t sendtargets -p {portal}")?;
        writeln!(text, "            sudo iscsiadm -m node -T {target} -p {portal} --login")?;
        writeln!(text, "  detach    sudo iscsiadm -m node -T {target} -p {portal} --logout")?;
    }
    writeln!(text)?;
    writeln!(text, "  metrics   http://{}/metrics", gateway.http)?;
    for node in &cluster.nodes {
        writeln!(text, "            http://{}/metrics  (storage node {})", node.http, node.id)?;
    }
    writeln!(text, "  health    http://{0}/healthz  http://{0}/readyz", gateway.http)?;
    writeln!(text, "  sessions  holdfast session list   or   http://{}/sessions", gateway.http)?;
    writeln!(text)?;
    writeln!(text, "  Data is in {} and stays there. Stop with Ctrl-C.", data_dir.display())
}
