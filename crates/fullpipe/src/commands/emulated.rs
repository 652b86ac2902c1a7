//! The flags of an emulated path and its hosts.

use std::path::Path as FilePath;

use fullpipe_record::{Change, Path};
use fullpipe_scenario::{PathSpec, parse_host_flag, parse_path_flag_with};

use super::prelude::*;
use crate::sibling::read_sibling;

/// An emulated path, and settings of the hosts at its ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lab")]
pub(crate) struct EmulatedArguments {
    /// Path, as rate=300M,loss=1e-4
    ///
    /// The default is rate=1G,rtt=100ms,loss=0%,queue=1bdp,mtu=1500,framing=ethernet.
    /// docs/scenarios.md has all keys.
    #[arg(long, value_name = "KEY=VALUE,…")]
    path: Option<String>,
    /// Settings of the sender, as `tcp_wmem=64MiB`
    #[arg(long, value_name = "KEY=VALUE,…")]
    sender: Option<String>,
    /// Settings of the receiver, as `tcp_rmem=64MiB`
    #[arg(long, value_name = "KEY=VALUE,…")]
    receiver: Option<String>,
}

impl EmulatedArguments {
    /// Returns the text of `--path`.
    pub(crate) fn path_flag(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the path.
    ///
    /// # Errors
    /// Fails if the text of `--path` is no path.
    pub(crate) fn emulated_path(&self) -> Result<Path> {
        self.path_with(&[])
    }

    /// Returns the path with these keys, as `rate=100M`, in addition to those of `--path`.
    ///
    /// # Errors
    /// Fails if a key cannot be, or is given twice.
    pub(crate) fn path_with(&self, keys: &[String]) -> Result<Path> {
        let pairs: Vec<&str> = self.path.iter().chain(keys).map(String::as_str).collect();
        if pairs.is_empty() {
            return Ok(PathSpec::demo_path().to_path()?);
        }
        let path = parse_path_flag_with(&pairs.join(","), &PathSpec::demo_path(), &|file| {
            read_sibling(FilePath::new(""), file)
        })
        .map_err(|error| {
            in_flag(
                if keys.is_empty() {
                    "--path"
                } else {
                    "the path"
                },
                &error,
            )
        })?;
        if path.forward.effects.opportunities.is_some()
            && keys.iter().any(|key| key.starts_with("rate="))
        {
            let why =
                "--bandwidth: the trace in --path takes the place of a rate; leave one of them out";
            return Err(usage_failure(why));
        }
        Ok(path)
    }

    /// Returns the settings of the sender and of the receiver that differ from their defaults.
    ///
    /// # Errors
    /// Fails if the text of a flag is no list of settings.
    pub(crate) fn host_changes(&self) -> Result<[Vec<Change>; 2]> {
        Ok([
            parse_changes("--sender", self.sender.as_deref())?,
            parse_changes("--receiver", self.receiver.as_deref())?,
        ])
    }
}

fn parse_changes(flag: &str, text: Option<&str>) -> Result<Vec<Change>> {
    text.map_or_else(
        || Ok(Vec::new()),
        |text| parse_host_flag(text).map_err(|error| in_flag(flag, &error)),
    )
}

fn in_flag(flag: &str, error: &dyn std::error::Error) -> Failure {
    usage_failure(format!("{flag}: {error}"))
}
