//! Functions that all tests of the program use.

pub(crate) mod oracles;

use std::fs::File;
use std::process::{Command, Output};
use std::time::Duration;

use fullpipe_testkit::Running;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};

/// The program under test with `arguments`, in a terminal of 80 columns.
pub(crate) fn fullpipe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command
        .args(arguments)
        .env("COLUMNS", "80")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    // Whoever runs the tests may have an archive, and does not want the tests in it.
    command
        .env("XDG_DATA_HOME", "/dev/null/none")
        .env_remove("FULLPIPE_STORE");
    command
}

/// Runs `command` to its end, which must come within `seconds`.
pub(crate) fn run(command: &mut Command, seconds: u64) -> Output {
    Running::start(command).finish(Duration::from_secs(seconds))
}

/// Returns both ends of a new pseudo-terminal: ours, and that of a program.
pub(crate) fn pseudo_terminal() -> (File, File) {
    // Another program with our end would keep a terminal open that we close.
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(path.to_str().unwrap())
        .unwrap();
    (ours.into(), theirs)
}
