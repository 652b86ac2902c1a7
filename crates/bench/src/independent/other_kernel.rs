//! The near host as a User-Mode Linux: a kernel of another version, as a program on this one.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::network::{Host, Network, prepare_host};
use crate::process::{Ended, Process, RunError};

/// Runs `words` in the kernel `program`, whose device ends at the near router, after `scripts`.
///
/// # Errors
/// If the kernel does not start or end in time, or a file cannot be written for it.
pub(crate) fn run_in(
    program: &Path,
    network: &Network,
    scripts: &[&str],
    words: &[String],
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<Ended, RunError> {
    let folder = network.scratch();
    fs::create_dir_all(&folder).map_err(RunError::failed)?;
    let [init, output, errors] = ["init", "output", "errors"].map(|name| folder.join(name));
    fs::write(&init, init_script(network, scripts, words)).map_err(RunError::failed)?;
    let kernel = [
        program.display().to_string(),
        "rootfstype=hostfs".to_owned(),
        "rw".to_owned(),
        "mem=256M".to_owned(),
        "quiet".to_owned(),
        "con=null".to_owned(),
        "init=/bin/sh".to_owned(),
        "vec0:transport=tap,ifname=host0,depth=128,gro=1".to_owned(),
        "--".to_owned(),
        init.display().to_string(),
    ];
    let ended =
        Process::start(&mut network.command(Host::NearRouter, &kernel))?.finish(timeout, stop)?;
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let (stdout, stderr) = (text(output), text(errors));
    let _ = fs::remove_dir_all(&folder);
    Ok(Ended {
        succeeded: !stdout.is_empty(),
        stdout,
        stderr,
        ..ended
    })
}

/// A script for the first process of that kernel, whose end is the end of the kernel.
fn init_script(network: &Network, scripts: &[&str], words: &[String]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    let folder = network.scratch();
    format!(
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /run\n\
         ip link set lo up; ip link set vec0 name host0\n{}{}\n{} >{folder}/output 2>{folder}/errors\n\
         sync; poweroff -f\n",
        prepare_host(network.joins_segments()),
        scripts.join("\n"),
        quoted.join(" "),
        folder = folder.display(),
    )
}
