//! Effect of a remedy on other transfers of the two hosts.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_record::{Direction, Remedy};
use fullpipe_units::Ratio;
use serde_json::Value;

use super::case::CROSS_TRAFFIC_PORT;
use super::network::{FAR, Host, Network};
use crate::judged::MUST_KEEP;
use crate::process::{Process, RunError};

/// Duration of a transfer of another program, in seconds.
const DURATION: &str = "4";

/// Longest that it may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Carries out the first of `remedies` that changes a host, by the commands that are printed, and
/// returns the share of its rate that a transfer of another program keeps, whose buffers the kernel
/// tunes: the less of both directions. A share below [`MUST_KEEP`] is the median of three. Returns
/// `None` if no remedy changes a host.
///
/// # Errors
/// If a command fails, or the other program does.
pub(super) fn kept_by_others(
    network: &Network,
    remedies: &[Remedy],
    direction: Direction,
    fullpipe: &Path,
    stop: &AtomicBool,
) -> Result<Option<Ratio>, RunError> {
    let changes_host = |remedy: &&Remedy| {
        remedy
            .commands
            .apply
            .iter()
            .any(|command| host_of(command, direction).is_some())
    };
    let Some(remedy) = remedies.iter().find(changes_host) else {
        return Ok(None);
    };
    let compare = || -> Result<f64, RunError> {
        let before = rates(network, stop)?;
        carry_out(network, &remedy.commands.apply, direction, fullpipe)?;
        let after = rates(network, stop)?;
        carry_out(network, &remedy.commands.undo, direction, fullpipe)?;
        Ok(before
            .into_iter()
            .zip(after)
            .map(kept)
            .fold(f64::INFINITY, f64::min))
    };
    let first = compare()?;
    if first >= MUST_KEEP {
        return Ok(Some(Ratio::new(first)));
    }
    let mut all = [first, compare()?, compare()?];
    all.sort_by(f64::total_cmp);
    Ok(Some(Ratio::new(all[1])))
}

/// Returns the share of the rate before that is left. Where nothing passed before, as into a black
/// hole, nothing can be lost.
fn kept((before, after): (f64, f64)) -> f64 {
    const NOTHING: f64 = 1e4;
    if before < NOTHING {
        1.0
    } else {
        after / before
    }
}

/// Rates of a transfer to the far host and one from it, one after the other, in bits per second.
fn rates(network: &Network, stop: &AtomicBool) -> Result<[f64; 2], RunError> {
    let rate = |reversed: &[&str]| {
        let port = CROSS_TRAFFIC_PORT.to_string();
        let words = ["iperf3", "-J", "-c", FAR, "-p", &port, "-t", DURATION];
        let words: Vec<String> = words
            .iter()
            .chain(reversed)
            .map(|word| (*word).to_owned())
            .collect();
        let ended =
            Process::start(&mut network.command(Host::Near, &words))?.finish(TIMEOUT, stop)?;
        let document: Value = serde_json::from_str(&ended.stdout)?;
        let rate = document["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.ok_or_else(|| RunError::failed("iperf3 does not say what arrived"))
    };
    Ok([rate(&[])?, rate(&["-R"])?])
}

fn carry_out(
    network: &Network,
    commands: &[String],
    direction: Direction,
    fullpipe: &Path,
) -> Result<(), RunError> {
    for command in commands {
        if let Some(host) = host_of(command, direction) {
            network.shell(
                host,
                &format!(
                    "fullpipe() {{ '{}' \"$@\"; }}\n{command}",
                    fullpipe.display()
                ),
            )?;
        }
    }
    Ok(())
}

/// Returns the host whose setting `command` changes, as its comment says; `None` for flags of the
/// load.
fn host_of(command: &str, direction: Direction) -> Option<Host> {
    let (words, end) = command.rsplit_once("# ")?;
    let sends_here = direction == Direction::Upload;
    let host = if (end.trim() == "sender") == sends_here {
        Host::Near
    } else {
        Host::Far
    };
    (!words.starts_with("fullpipe measure ")).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carried_nothing_keeps_it_all() {
        assert!((kept((0.0, 0.0)) - 1.0).abs() < 1e-9);
        assert!((kept((4e6, 1e6)) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_command_is_run_where_it_says() {
        let host = |command| host_of(command, Direction::Download);
        assert_eq!(
            host("sysctl -w net.ipv4.tcp_window_scaling=1  # sender"),
            Some(Host::Far)
        );
        assert_eq!(
            host("fullpipe host apply qdisc:eth0=default  # receiver"),
            Some(Host::Near)
        );
        assert_eq!(host("fullpipe measure HOST -C bbr  # sender"), None);
    }
}
