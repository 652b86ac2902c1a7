//! The hosts of a lab, as programs see them.

use std::time::{Duration, Instant};

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_lab::{Host, Lab, ProgramOutput, ProgramStdio};

use super::error::CompareError;
use super::figures::last_words;
use super::folder::TransferFolder;
use super::participant::{Participant, fill_placeholders};
use super::program::{COPY, SOURCE, TransferProgram};

/// Makes the keys, configurations and the file.
const PREPARE: &str = include_str!("prepare.sh");

/// Gives every connection the congestion control `$1`, whatever the program or the host's default
/// says: the setting of a namespace may not name one that is reserved for privileged users.
const CONGESTION: &str =
    "ip route show | while read -r route; do ip route replace $route congctl \"$1\"; done";

/// Waits for 10 s until something listens on the TCP port `$1`, in hexadecimal digits.
const LISTENS: &str = "n=0; until grep -Eqs \":$1 0+:0000 0A\" /proc/net/tcp /proc/net/tcp6; do \\
                       n=$((n+1)); test $n -lt 250 || exit 1; sleep 0.04; done";

/// Removes the copy `$1`. If the file `$2` is on a disk, it is written out and no longer cached.
const RESET: &str =
    "rm -rf \"$1\"; test -z \"$2\" || { sync; dd if=\"$2\" iflag=nocache count=0 2> /dev/null; }";

/// Ends every program in the lab but its first process; nothing if that is not the lab's.
const END_ALL: &str = "if grep -qas lab-keeper /proc/1/cmdline; then kill -KILL -1 || true; fi";

/// Interval of the checks for an end or an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time of a step of the preparation.
const PREPARATION: Duration = Duration::from_mins(3);

/// Maximum time for a program to end after it was asked to.
const END: Duration = Duration::from_secs(10);

/// Congestion control of every program.
const CONGESTION_CONTROL: &str = "cubic";

/// Both hosts, prepared.
pub(crate) struct PreparedHosts<'l> {
    pub(crate) lab: &'l Lab,
    pub(crate) interrupt: Interrupt<'l>,
    /// True if the file and its copy are on a disk.
    on_disk: bool,
}

/// The end of a program that moved a file.
pub(crate) struct ProgramEnd {
    pub(crate) took: Duration,
    pub(crate) output: ProgramOutput,
}

impl<'l> PreparedHosts<'l> {
    /// Prepares both hosts to move a file of this size, which is in `folder` if that is given, or
    /// else in memory.
    pub(crate) fn prepare(
        lab: &'l Lab,
        size: ByteCount,
        folder: Option<&TransferFolder>,
        interrupt: Interrupt<'l>,
    ) -> Result<Self, CompareError> {
        let hosts = Self {
            lab,
            interrupt,
            on_disk: folder.is_some(),
        };
        for host in Host::ALL {
            hosts.run_script(host, CONGESTION, &[CONGESTION_CONTROL])?;
        }
        hosts.run_script(
            Host::Sender,
            PREPARE,
            &[
                &size.get().to_string(),
                folder.map_or("", TransferFolder::path),
            ],
        )?;
        Ok(hosts)
    }

    /// Returns the settings of a host, with the congestion control that its routes give to every
    /// connection.
    pub(crate) fn host_settings(&self, host: Host) -> Result<HostSettings, CompareError> {
        let settings = self.lab.host_settings(host)?;
        Ok(HostSettings {
            congestion_control: CONGESTION_CONTROL.to_owned(),
            ..settings
        })
    }

    /// Runs a script of the shell.
    fn run_script(&self, host: Host, script: &str, arguments: &[&str]) -> Result<(), CompareError> {
        let arguments: Vec<String> = ["-euc", script, "compare"]
            .iter()
            .chain(arguments)
            .map(|word| (*word).to_owned())
            .collect();
        let output = self
            .lab
            .start_program(host, "sh", &arguments, ProgramStdio::Collected)?
            .finish_within(PREPARATION)?;
        match output.code {
            0 => Ok(()),
            _ => Err(CompareError::Failed(format!(
                "the {} cannot be prepared for the programs: {}",
                host.name(),
                last_line(&output)
            ))),
        }
    }

    /// Removes the copy that an earlier program made, and ends what it left running.
    pub(crate) fn remove_copy(&self) -> Result<(), CompareError> {
        self.run_script(Host::Receiver, END_ALL, &[])?;
        self.run_script(
            Host::Receiver,
            RESET,
            &[COPY, if self.on_disk { SOURCE } else { "" }],
        )
    }

    /// Returns true if the copy is the same as the file.
    pub(crate) fn is_intact(&self) -> bool {
        self.run_script(Host::Receiver, "cmp -s \"$1\" \"$2\"", &[SOURCE, COPY])
            .is_ok()
    }

    /// Starts the server of `program`, and returns it once it listens; or the reason why it does
    /// not. The one that sends the file is watched.
    pub(crate) fn start_server(
        &self,
        program: TransferProgram,
    ) -> Result<Result<fullpipe_lab::LabProgram<'l>, String>, CompareError> {
        let host = program.server_host();
        let server = self.start_program(host, host == Host::Sender, &program.server_command())?;
        if self
            .run_script(host, LISTENS, &[&format!("{:04X}", program.server_port())])
            .is_ok()
        {
            return Ok(Ok(server));
        }
        let output = Self::end_program(server)?;
        Ok(Err(format!(
            "its server does not listen: {}",
            last_line(&output)
        )))
    }

    /// Returns true if something is at the place of the copy.
    pub(crate) fn has_copy(&self) -> bool {
        self.run_script(Host::Receiver, "test -e \"$1\"", &[COPY])
            .is_ok()
    }

    /// Runs the client of `participant` to its end, or until `most` has passed.
    pub(crate) fn run_client(
        &self,
        participant: &Participant,
        size: ByteCount,
        most: Duration,
    ) -> Result<ProgramEnd, CompareError> {
        let (host, words) = match participant {
            Participant::Known(program) => {
                let server = program.server_host();
                (
                    server.peer_host(),
                    program.client_command(server.address(), size),
                )
            }
            Participant::Command(words) => (Host::Sender, of_command(words, size)),
        };
        let began = Instant::now();
        let mut client = self.start_program(host, host == Host::Sender, &words)?;
        while client.wait_for(POLL_INTERVAL).is_none()
            && began.elapsed() < most
            && !self.interrupt.is_requested()
        {}
        let took = began.elapsed();
        if took >= most {
            self.run_script(host, END_ALL, &[])?;
        }
        Ok(ProgramEnd {
            took,
            output: Self::end_program(client)?,
        })
    }

    /// Asks a program to end, waits for it, and returns what it wrote.
    pub(crate) fn end_program(
        program: fullpipe_lab::LabProgram<'_>,
    ) -> Result<ProgramOutput, CompareError> {
        program.interrupt_program()?;
        Ok(program.finish_within(END)?)
    }

    fn start_program(
        &self,
        host: Host,
        is_watched: bool,
        words: &[String],
    ) -> Result<fullpipe_lab::LabProgram<'l>, CompareError> {
        if is_watched {
            let watching = ["diagnose", "--json", "--no-store", "--"].map(str::to_owned);
            return Ok(self.lab.start_self(host, &[&watching, words].concat())?);
        }
        Ok(self
            .lab
            .start_program(host, &words[0], &words[1..], ProgramStdio::Collected)?)
    }
}

/// Returns the words of the user's command. With {ssh}, it reaches the server of ssh at the
/// receiver.
fn of_command(words: &[String], size: ByteCount) -> Vec<String> {
    let [host, size] = [Host::Receiver.address().to_string(), size.get().to_string()];
    let ssh = "ssh -F /run/compare/ssh.conf";
    fill_placeholders(
        words,
        &[
            ("file", SOURCE),
            ("copy", COPY),
            ("host", &host),
            ("size", &size),
            ("ssh", ssh),
        ],
    )
}

/// Returns the last line that a program wrote to standard error, or else to standard output.
pub(crate) fn last_line(output: &ProgramOutput) -> String {
    let line = [&output.stderr, &output.stdout]
        .into_iter()
        .find_map(|text| last_words(text));
    line.unwrap_or_else(|| format!("it ended with code {}", output.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    fn output(stdout: &str, stderr: &str) -> ProgramOutput {
        ProgramOutput {
            code: 7,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            cpu: Span::ZERO,
        }
    }

    #[test]
    fn the_last_line_of_a_program_is_readable() {
        assert_eq!(last_line(&output("out\n", "one\ntwo\n\n")), "two");
        assert_eq!(last_line(&output("out\n", "\n")), "out");
        assert_eq!(last_line(&output("", "")), "it ended with code 7");
        assert_eq!(last_line(&output("", "\u{1b}[31mred\u{7}\n")), "[31mred");
        assert_eq!(
            last_line(&output("", &"x".repeat(5000))).chars().count(),
            201
        );
    }

    #[test]
    fn a_command_has_the_names_of_the_lab() {
        let words = ["sh", "-c", "{ssh} {host} 'cat > {copy}' < {file}"].map(str::to_owned);
        let words = of_command(&words, ByteCount::new(5));
        let script = "ssh -F /run/compare/ssh.conf 198.18.0.2 'cat > /run/compare/to/file' < /run/compare/from/file";
        assert_eq!(words[2], script);
    }
}
