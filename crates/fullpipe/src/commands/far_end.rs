//! Hosts that ssh reaches: a far end there, or a whole command.

use std::io;
use std::str::FromStr;

use fullpipe_control::{FarEndOptions, FarProgram, SshHost};
use fullpipe_experiment::FarEnd;

use super::prelude::*;
use crate::values::{CommandWords, parse_words};

/// Opening of a host that ssh reaches.
pub(crate) const SCHEME: &str = "ssh://";

/// How a host behind `ssh://` is reached, and what is left there.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hosts by ssh (ssh://)")]
pub(crate) struct FarEndArguments {
    /// Program with its arguments that reaches the host
    #[arg(
        long,
        short = 'e',
        value_name = "COMMAND",
        default_value = "ssh",
        value_parser = parse_words,
        hide_short_help = true
    )]
    ssh: CommandWords,
    /// Folder with fullpipe for other processors
    ///
    /// Its files are fullpipe-x86_64, fullpipe-aarch64 and so on, by the name that `uname -m` has.
    /// By default this program is sent to processors of its kind.
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    binaries: Option<PathBuf>,
    /// Remove the program that was sent there as soon as it runs
    ///
    /// By default it stays in ~/.cache/fullpipe, for the next time.
    #[arg(long, hide_short_help = true)]
    leave_nothing: bool,
}

impl FarEndArguments {
    fn options(&self) -> FarEndOptions {
        FarEndOptions {
            ssh: self.ssh.0.clone(),
            binaries: self.binaries.clone(),
            leaves_nothing: self.leave_nothing,
        }
    }

    /// Starts a far end that serves this program's tests, on `port` or any that is free.
    ///
    /// # Errors
    /// Fails if the host cannot be reached, cannot run it, or its port cannot be reached.
    pub(crate) fn start(&self, host: &SshHost, port: Option<u16>) -> Result<FarEnd> {
        Ok(FarEnd::start(host, &self.options(), port.unwrap_or(0))?)
    }

    /// Runs this very command line at the host, without the flags of the way there.
    ///
    /// # Errors
    /// Fails if the host cannot be reached or cannot run it, and as the command does there.
    pub(crate) fn run_there(&self, host: &SshHost) -> Result {
        let words = words_for_there(std::env::args().skip(1));
        let program = FarProgram::start(host, &self.options(), &words)?;
        match program.copy_output(&mut io::stdout().lock()) {
            Ok(Some(0)) => Ok(()),
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(cannot("print what the host says")(error)),
            Ok(code) => Err(Failure::already_printed(
                code.and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(FAILED),
            )),
        }
    }
}

/// Returns the words of a command line without the host and the flags of the way there.
fn words_for_there(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut there = Vec::new();
    let mut is_value = false;
    for word in words {
        let is_flag = ["--ssh", "--binaries"].contains(&&*word);
        let is_ours = is_value
            || is_flag
            || word == "--leave-nothing"
            || word.starts_with(SCHEME)
            || word.starts_with("--ssh=")
            || word.starts_with("--binaries=");
        is_value = is_flag;
        if !is_ours {
            there.push(word);
        }
    }
    there
}

/// A host behind `ssh://`, at the command line.
#[derive(Debug, Clone)]
pub(crate) struct SshUrl(pub(crate) SshHost);

impl FromStr for SshUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text
            .strip_prefix(SCHEME)
            .ok_or("another host is written as ssh://HOST")?;
        host.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_there_without_the_way_there() {
        let words =
            "host apply tcp_rmem=64MiB ssh://me@h --ssh x --binaries=y --json --leave-nothing";
        assert_eq!(
            words_for_there(words.split(' ').map(str::to_owned)),
            ["host", "apply", "tcp_rmem=64MiB", "--json"]
        );
    }
}
