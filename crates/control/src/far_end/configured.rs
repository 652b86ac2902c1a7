//! What ssh is configured to do.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fullpipe_sys::ends_within;

/// Time for ssh to say what its configuration has for a host.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

/// Bytes that ssh may say of a host.
const MAX_ANSWER: u64 = 64 << 10;

/// Returns the host that ssh reaches by a name: its configuration may have another one (ssh(1),
/// `-G`). `None` if the program is no ssh, or does not say so at once.
pub fn configured_host(ssh: &[String], name: &str) -> Option<String> {
    let (program, arguments) = ssh.split_first()?;
    if Path::new(program).file_name()? != "ssh" {
        return None;
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(["-G", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut asked = command.spawn().ok()?;
    if !ends_within(&mut asked, ANSWER_DEADLINE) {
        let _ = asked.kill();
        let _ = asked.wait();
        return None;
    }
    // What has ended has written all of it, which a pipe holds.
    let mut said = String::new();
    asked
        .stdout
        .take()?
        .take(MAX_ANSWER)
        .read_to_string(&mut said)
        .ok()?;
    said.lines()
        .find_map(|line| line.strip_prefix("hostname "))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use fullpipe_testkit::write_program;

    use super::*;

    #[test]
    fn the_configuration_of_ssh_names_the_host_of_an_alias_and_no_other_program_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        for (name, asked) in [("ssh", Some("192.0.2.9")), ("other", None)] {
            let program = folder.path().join(name);
            let text = "#!/bin/sh\n[ \"$*\" = '-p 22 -G me@alias' ] && printf 'user me\\nhostname 192.0.2.9\\n'";
            write_program(&program, text);
            let words = [program.to_str().unwrap(), "-p", "22"].map(str::to_owned);
            assert_eq!(configured_host(&words, "me@alias").as_deref(), asked);
            assert_eq!(configured_host(&words, "another"), None);
        }
    }
}
