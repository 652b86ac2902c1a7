//! The hosts of a lab, as programs see them.

use std::time::{Duration, Instant};

use fullpipe_experiment::Interrupt;
use fullpipe_lab::{Host, Lab, Output, Stdio};
use fullpipe_units::ByteCount;

use crate::error::CompareError;
use crate::program::Program;

/// Makes the keys, configurations and the file.
const PREPARE: &str = include_str!("prepare.sh");

/// Gives every connection the congestion control `$1`, whatever the program or the host's default says: the setting of
/// a namespace may not name one that is reserved for privileged users.
const CONGESTION: &str = "ip route show | while read -r route; do ip route replace $route congctl \"$1\"; done";

/// Waits for 10 s until something listens on the TCP port `$1`, in hexadecimal digits.
const LISTENS: &str = "n=0; until grep -Eqs \":$1 0+:0000 0A\" /proc/net/tcp /proc/net/tcp6; do \\
                       n=$((n+1)); test $n -lt 250 || exit 1; sleep 0.04; done";

/// Interval of the checks for an end or an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time of a step of the preparation.
const PREPARATION: Duration = Duration::from_mins(3);

/// Maximum time for a program to end after it was asked to.
const END: Duration = Duration::from_secs(10);

/// Congestion control of every program.
const CONGESTION_CONTROL: &str = "cubic";

/// Both hosts, prepared.
pub(crate) struct Hosts<'l> {
    lab: &'l Lab,
    interrupt: Interrupt<'l>,
}

/// The end of a program that moved a file.
pub(crate) struct Ended {
    pub(crate) took: Duration,
    pub(crate) output: Output,
}

impl<'l> Hosts<'l> {
    /// Prepares both hosts to move a file of this size.
    pub(crate) fn prepare(lab: &'l Lab, size: ByteCount, interrupt: Interrupt<'l>) -> Result<Self, CompareError> {
        let hosts = Self { lab, interrupt };
        for host in Host::ALL {
            hosts.script(host, CONGESTION, CONGESTION_CONTROL)?;
        }
        hosts.script(Host::Sender, PREPARE, &size.get().to_string())?;
        Ok(hosts)
    }

    pub(crate) const fn lab(&self) -> &'l Lab {
        self.lab
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }

    /// Runs a script of the shell with one argument.
    fn script(&self, host: Host, script: &str, argument: &str) -> Result<(), CompareError> {
        let arguments = ["-euc", script, "compare", argument].map(str::to_owned);
        let output = self.lab.start_program(host, "sh", &arguments, Stdio::Collected)?.finish(PREPARATION)?;
        match output.code {
            0 => Ok(()),
            _ => Err(CompareError::Preparation { host, why: last_line(&output) }),
        }
    }

    /// Removes the copy that an earlier program made.
    pub(crate) fn remove_copy(&self) -> Result<(), CompareError> {
        self.script(Host::Receiver, "rm -rf \"$1\"", crate::program::COPY)
    }

    /// Returns true if the copy is the same as the file.
    pub(crate) fn is_intact(&self) -> bool {
        self.script(Host::Receiver, "cmp -s /run/compare/from/file \"$1\"", crate::program::COPY).is_ok()
    }

    /// Starts the server of `program`, and returns it once it listens; or the reason why it does not. The one that
    /// sends the file is watched.
    pub(crate) fn serve(&self, program: Program) -> Result<Result<fullpipe_lab::Program<'l>, String>, CompareError> {
        let host = program.server_host();
        let server = self.start(host, host == Host::Sender, &program.server())?;
        if self.script(host, LISTENS, &format!("{:04X}", program.port())).is_ok() {
            return Ok(Ok(server));
        }
        let output = Self::end(server)?;
        Ok(Err(format!("its server does not listen: {}", last_line(&output))))
    }

    /// Runs the client of `program` to its end, or until `most` has passed.
    pub(crate) fn call(&self, program: Program, size: ByteCount, most: Duration) -> Result<Ended, CompareError> {
        let host = program.server_host().peer();
        let words = program.client(program.server_host().address(), size);
        let began = Instant::now();
        let mut client = self.start(host, host == Host::Sender, &words)?;
        while client.wait_for(POLL_INTERVAL).is_none() && began.elapsed() < most && !self.interrupted() {}
        let took = began.elapsed();
        Ok(Ended { took, output: Self::end(client)? })
    }

    /// Asks a program to end, waits for it, and returns what it wrote.
    pub(crate) fn end(program: fullpipe_lab::Program<'_>) -> Result<Output, CompareError> {
        program.interrupt()?;
        Ok(program.finish(END)?)
    }

    fn start(&self, host: Host, is_watched: bool, words: &[String]) -> Result<fullpipe_lab::Program<'l>, CompareError> {
        if is_watched {
            let watching = ["diagnose", "--json", "--no-store", "--"].map(str::to_owned);
            return Ok(self.lab.start_self(host, &[&watching, words].concat())?);
        }
        Ok(self.lab.start_program(host, &words[0], &words[1..], Stdio::Collected)?)
    }
}

/// Returns the last line that a program wrote to standard error, or else to standard output.
pub(crate) fn last_line(output: &Output) -> String {
    let texts = [&output.stderr, &output.stdout];
    let line = texts.into_iter().find_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
    line.map_or_else(|| format!("it ended with code {}", output.code), |line| line.trim().to_owned())
}
