//! The other end, started through ssh.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::CopyError;
use crate::pulse::SilenceWatch;
use fullpipe_sys::{lock, start_thread};

/// The line with which the far end begins. What a login script prints before, on lines or not, is
/// skipped.
pub(crate) const GREETING: &[u8] = b"fullpipe copy far end 1\n";

/// Bytes that a login script may print.
const MAX_BANNER: usize = 64 << 10;

/// Exit code of a shell that does not find a program (POSIX, 2.8.2).
const NOT_FOUND: i32 = 127;

/// Time for ssh to end by itself.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// The way to the far end, which can be ended from another thread.
pub(crate) type Link = Arc<Mutex<Option<LinkHolder>>>;

/// The holder of the way to the far end.
pub(crate) enum LinkHolder {
    /// A process, such as ssh.
    Process(Child),
    /// A connection to a server.
    Connection(TcpStream),
}

/// Bytes to and from the far end.
pub(crate) struct LinkPipes {
    pub to: Box<dyn Write + Send>,
    pub from: Box<dyn BufRead + Send>,
}

impl LinkPipes {
    pub(crate) fn new(to: impl Write + Send + 'static, from: impl Read + Send + 'static) -> Self {
        Self {
            to: Box::new(to),
            from: Box::new(BufReader::with_capacity(128 << 10, from)),
        }
    }
}

/// Starts the far end, which is there once it has [`await_greeting`].
///
/// # Errors
/// Fails if ssh cannot be started.
pub(crate) fn start_ssh(
    ssh: &[String],
    host: &str,
    far_path: &str,
    link: &Link,
) -> Result<LinkPipes, CopyError> {
    let (program, arguments) = ssh
        .split_first()
        .ok_or(CopyError::Places("no program is named to reach the host"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(host)
        .arg(format!("{far_path} copy --far"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CopyError::Ssh(format!("{program} cannot be started: {error}")))?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    *lock(link) = Some(LinkHolder::Process(child));
    let (Some(to), Some(from)) = (to, from) else {
        return Err(CopyError::Gone);
    };
    Ok(LinkPipes::new(to, from))
}

/// Returns the error of a far end that has not greeted: ssh cannot connect, or there is no such
/// program at the other end.
pub(crate) fn not_there(ssh: &[String], host: &str, far_path: &str, link: &Link) -> CopyError {
    match wait_for_end(link) {
        Some(NOT_FOUND) => CopyError::NotThere {
            host: host.to_owned(),
            program: far_path.to_owned(),
        },
        code => {
            let program = ssh.first().map_or("ssh", String::as_str);
            let code =
                code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            CopyError::Ssh(format!(
                "{program} ended with {code} before fullpipe at {host} answered"
            ))
        }
    }
}

/// Returns true once the line of the far end has come. The time for it begins with its first byte
/// if `may_ask`: until then, ssh may ask its user for a password.
pub(crate) fn await_greeting(from: &mut impl BufRead, may_ask: bool, pulse: &SilenceWatch) -> bool {
    if may_ask && from.fill_buf().is_err() {
        return false;
    }
    let mut said = Vec::new();
    pulse.while_reading(|| {
        while said.len() < MAX_BANNER && !said.ends_with(GREETING) {
            let mut byte = [0];
            if from.read_exact(&mut byte).is_err() {
                return false;
            }
            said.extend(byte);
        }
        said.ends_with(GREETING)
    })
}

/// Waits for the end of the other end, and ends the way to it after a while. Returns the exit code
/// of a process, if it has one.
pub(crate) fn wait_for_end(link: &Link) -> Option<i32> {
    let deadline = Instant::now() + END_DEADLINE;
    while Instant::now() < deadline {
        let ended = lock(link).as_mut()?.poll_end();
        if let ControlFlow::Break(code) = ended {
            *lock(link) = None;
            return code;
        }
        thread::sleep(Duration::from_millis(5));
    }
    kill_link(link);
    None
}

/// Leaves the way to the far end to its own end, which takes round trips: everything is done and
/// said. The kernel still sends what was written to a connection, and an ssh may carry other
/// sessions as well (`ControlMaster`), which would end with it.
pub(crate) fn release_link(link: &Link) {
    if let Some(LinkHolder::Process(mut child)) = lock(link).take() {
        // Without a thread it is the system that notes its end.
        let _ = start_thread("copy-ssh-end", move || child.wait());
    }
}

/// Ends the way to the far end at once.
pub(crate) fn kill_link(link: &Link) {
    match lock(link).take() {
        Some(LinkHolder::Process(mut child)) => {
            let _ = child.kill();
            let _ = child.wait();
        }
        Some(LinkHolder::Connection(socket)) => drop(socket.shutdown(Shutdown::Both)),
        None => {}
    }
}

impl LinkHolder {
    /// Breaks once it has ended, with the exit code if it has one.
    fn poll_end(&mut self) -> ControlFlow<Option<i32>> {
        match self {
            Self::Process(child) => match child.try_wait() {
                Ok(Some(status)) => ControlFlow::Break(status.code()),
                _ => ControlFlow::Continue(()),
            },
            Self::Connection(socket) => {
                // No other thread reads any more. What still comes has no use.
                let _ = socket.set_read_timeout(Some(Duration::from_millis(5)));
                let is_open = match socket.read(&mut [0; 4096]) {
                    Ok(count) => count > 0,
                    Err(error) => matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ),
                };
                if is_open {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(None)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_login_script_prints_is_skipped_up_to_a_bound() {
        let pulse = SilenceWatch::new(Duration::from_secs(9));
        let greeted =
            |mut said: &[u8]| await_greeting(&mut said, true, &pulse).then(|| said.to_vec());
        for banner in [
            &b""[..],
            b"Welcome\nto this host\n",
            b"without a newline: ",
            b"fullpipe copy ",
            b"\n\n",
        ] {
            assert_eq!(
                greeted(&[banner, GREETING, b"more"].concat()).as_deref(),
                Some(&b"more"[..])
            );
        }
        let endless = [&b"endless ".repeat(10_000), GREETING].concat();
        assert!(
            greeted(&endless).is_none()
                && greeted(b"Welcome\n").is_none()
                && greeted(b"").is_none()
        );
    }

    /// A login script that printed without a newline once let a copy wait for ever.
    #[test]
    fn a_far_end_that_goes_silent_in_its_first_line_is_given_up_and_one_that_says_nothing_is_not() {
        let pulse = SilenceWatch::brief(Duration::from_millis(20));
        for (said, may_ask, is_silent) in
            [("hello ", true, true), ("", false, true), ("", true, false)]
        {
            let (from, mut to) = std::io::pipe().unwrap();
            to.write_all(said.as_bytes()).unwrap();
            let waiting = Arc::clone(&pulse);
            let greeting =
                thread::spawn(move || await_greeting(&mut BufReader::new(from), may_ask, &waiting));
            let was_silent = (0..100).any(|_| {
                thread::sleep(Duration::from_millis(2));
                pulse.is_silent()
            });
            assert_eq!(was_silent, is_silent, "{said} {may_ask}");
            drop(to);
            assert!(!greeting.join().unwrap());
        }
    }

    /// The other sessions of an ssh that is their master once died with each copy that was done.
    #[test]
    fn a_process_that_goes_on_after_a_copy_is_not_killed() {
        let link = Link::default();
        let mut pipes = start_ssh(
            &[
                "sh".to_owned(),
                "-c".to_owned(),
                "read x; echo done".to_owned(),
            ],
            "h",
            "f",
            &link,
        )
        .map_err(|error| error.to_string())
        .unwrap();
        release_link(&link);
        assert!(lock(&link).is_none());
        drop(pipes.to);
        let mut said = String::new();
        pipes.from.read_to_string(&mut said).unwrap();
        assert_eq!(said, "done\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let start = |ssh: &[&str]| {
            let ssh: Vec<String> = ssh.iter().map(|word| (*word).to_owned()).collect();
            let link = Link::default();
            let mut pipes = start_ssh(&ssh, "host", "fullpipe", &link)
                .map_err(|error| error.to_string())
                .unwrap();
            assert!(!await_greeting(
                &mut pipes.from,
                true,
                &SilenceWatch::new(Duration::from_secs(9))
            ));
            drop(pipes);
            not_there(&ssh, "host", "fullpipe", &link).to_string()
        };
        assert!(start(&["sh", "-c", "exit 127"]).contains("--far-path"));
        assert!(start(&["sh", "-c", "exit 255"]).contains("exit code 255"));
        let nowhere = super::start_ssh(
            &["/nowhere/ssh".to_owned()],
            "host",
            "fullpipe",
            &Link::default(),
        );
        assert!(
            nowhere
                .err()
                .unwrap()
                .to_string()
                .contains("cannot be started")
        );
    }
}
