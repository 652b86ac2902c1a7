//! Keys and secrets, as they are typed, and the width of the terminal.

use super::{StandardStream, Terminal, print_text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

impl Terminal {
    /// Returns true if a line comes from the terminal before `until`.
    pub(crate) fn enter_before(until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let input = stdin();
            // A signal cuts the wait short.
            if poll(&mut [PollFd::new(&input, PollFlags::IN)], timeout.as_ref()).unwrap_or(0) > 0 {
                return io::stdin()
                    .read_line(&mut String::new())
                    .is_ok_and(|length| length > 0);
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Returns the user's answer without showing it; `None` if no user can be asked, or on an
    /// interrupt.
    pub(crate) fn ask_secretly(
        question: &str,
        interrupt: &AtomicBool,
    ) -> Option<Zeroizing<String>> {
        let _unseen = HiddenInput::disable_echo()?;
        print_text(StandardStream::Error, question);
        let line = secret_line(interrupt);
        print_text(StandardStream::Error, "\n");
        line
    }
}

/// Returns the columns of the terminal that shows standard output, if one does that has a width.
pub(super) fn columns_of_output() -> Option<usize> {
    let columns = tcgetwinsize(stdout()).ok()?.ws_col;
    (columns > 0).then(|| columns.into())
}

/// Keys as they are typed at the terminal, or the first character of each line of an input that is
/// no terminal.
pub(crate) struct KeyReader {
    /// Settings of the terminal before.
    before: Option<Termios>,
    is_open: bool,
    at_line_start: bool,
}

impl KeyReader {
    /// Begins to read keys, but not from a terminal that has another program in its foreground.
    pub(crate) fn start_reading() -> Self {
        let ours = tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        let before = tcgetattr(stdin()).ok();
        let is_open = before.is_none() || ours;
        let before = before.filter(|_| ours).filter(|before| {
            let mut unseen = before.clone();
            unseen
                .local_modes
                .remove(LocalModes::ECHO | LocalModes::ICANON);
            tcsetattr(stdin(), OptionalActions::Flush, &unseen).is_ok()
        });
        Self {
            before,
            is_open,
            at_line_start: true,
        }
    }

    /// Returns the next key, if one comes within `timeout`. A signal ends the wait.
    pub(crate) fn next_key(&mut self, timeout: Duration) -> Option<char> {
        let timeout = Timespec::try_from(timeout).ok();
        let input = stdin();
        let mut waiting = [PollFd::new(&input, PollFlags::IN)];
        // No user types at an input that has ended: the wait remains.
        let watched = if self.is_open {
            &mut waiting[..]
        } else {
            &mut []
        };
        if poll(watched, timeout.as_ref()).unwrap_or(0) == 0 {
            return None;
        }
        let mut byte = [0];
        if !matches!(rustix::io::read(stdin(), &mut byte), Ok(1)) {
            self.is_open = false;
            return None;
        }
        let key = char::from(byte[0]);
        let counts = self.before.is_some() || self.at_line_start;
        self.at_line_start = key == '\n';
        (counts && key != '\n').then_some(key)
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that went away shows nothing anyway.
            let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
            print_text(StandardStream::Output, "\n");
        }
    }
}

/// Standard input whose terminal does not show what is typed, as long as this lives.
struct HiddenInput(Termios);

impl HiddenInput {
    fn disable_echo() -> Option<Self> {
        let before = tcgetattr(stdin())
            .ok()
            .filter(|_| io::stderr().is_terminal())?;
        let mut unseen = before.clone();
        unseen.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &unseen).ok()?;
        Some(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that went away shows nothing anyway.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads the next line of standard input and keeps no other copy of it.
fn secret_line(interrupt: &AtomicBool) -> Option<Zeroizing<String>> {
    /// Largest line of a terminal, in bytes.
    const LINE: usize = 4096;
    const POLL_INTERVAL: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let mut line = Zeroizing::new([0; LINE]);
    while !interrupt.load(Ordering::Relaxed) {
        let input = stdin();
        // A signal cuts this short, and is then seen above.
        if poll(
            &mut [PollFd::new(&input, PollFlags::IN)],
            Some(&POLL_INTERVAL),
        )
        .unwrap_or(0)
            > 0
        {
            let length = rustix::io::read(stdin(), &mut line[..]).ok()?;
            let text = str::from_utf8(line.get(..length)?)
                .ok()?
                .strip_suffix('\n')?;
            return Some(Zeroizing::new(text.to_owned()));
        }
    }
    None
}
