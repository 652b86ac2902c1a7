//! The terminal: its size, its keys, and what it shows.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Size;
use ratatui_core::style::{Color, Modifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::getpgrp;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

use crate::failure::{Failure, Result, cannot, usage_failure};

/// Begins the alternate screen, and hides the cursor (xterm's control sequences).
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";

/// Ends the alternate screen, and shows the cursor.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// Clears the screen.
const CLEAR: &str = "\x1b[0m\x1b[2J";

/// Time for the terminal to take the last bytes: one whose output was stopped takes none.
const LAST_BYTES: Duration = Duration::from_millis(200);

/// Usual size, of a terminal that does not state its own.
const USUAL: Size = Size {
    width: 80,
    height: 24,
};

/// A terminal that shows a picture.
pub(crate) struct TerminalScreen {
    terminal: Arc<OwnTerminal>,
    /// The picture that is shown once `pending` is written.
    shown: Buffer,
    /// Bytes that the terminal has not taken.
    pending: Vec<u8>,
    /// True once the terminal is closed.
    is_gone: bool,
}

/// A terminal in our mode, until it is given back.
#[derive(Debug)]
pub(crate) struct OwnTerminal {
    file: File,
    before: Termios,
    is_ours: AtomicBool,
}

impl TerminalScreen {
    /// Takes a terminal that is open, and ours.
    pub(crate) fn from_file(file: File) -> Result<Self> {
        let before = tcgetattr(&file).map_err(cannot_use_terminal)?;
        let mut ours = before.clone();
        // Keys come one by one and unseen, and Ctrl-C too: a program that a signal ends leaves the
        // terminal as it is.
        ours.local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN);
        ours.input_modes.remove(InputModes::IXON);
        tcsetattr(&file, OptionalActions::Now, &ours).map_err(cannot_use_terminal)?;
        let terminal = Arc::new(OwnTerminal {
            file,
            before,
            is_ours: AtomicBool::new(true),
        });
        Ok(Self {
            terminal,
            shown: Buffer::default(),
            pending: ENTER.into(),
            is_gone: false,
        })
    }

    /// Returns the terminal, to be given back from wherever the program ends.
    pub(crate) fn own_terminal(&self) -> &Arc<OwnTerminal> {
        &self.terminal
    }

    /// Returns the size in characters.
    pub(crate) fn size(&self) -> Size {
        match tcgetwinsize(&self.terminal.file) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size::new(size.ws_col, size.ws_row),
            _ => USUAL,
        }
    }

    /// Shows a picture in place of the last one. A terminal that has not yet taken the last one
    /// keeps that.
    pub(crate) fn show_picture(&mut self, picture: Buffer) {
        if !self.write_pending() {
            return;
        }
        if picture.area != self.shown.area {
            self.pending.extend(CLEAR.as_bytes());
            self.shown = Buffer::empty(picture.area);
        }
        self.pending.extend(bytes_of(&self.shown.diff(&picture)));
        self.shown = picture;
        self.write_pending();
    }

    /// Writes what the terminal takes at once. Returns true if nothing is left.
    fn write_pending(&mut self) -> bool {
        while !self.pending.is_empty() && self.is_open() {
            match (&self.terminal.file).write(&self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => self.is_gone = true,
            }
        }
        self.is_open()
    }

    fn is_open(&self) -> bool {
        !self.is_gone && self.terminal.is_ours.load(Ordering::Relaxed)
    }

    /// Waits for keys, for the end of `wake`, or for `timeout`. Returns the keys; `None` if `wake`
    /// has ended.
    pub(crate) fn wait_for_keys(&mut self, wake: impl AsFd, timeout: Duration) -> Option<Vec<u8>> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut watched = vec![PollFd::new(&wake, PollFlags::IN)];
        if self.is_open() {
            watched.push(PollFd::new(&self.terminal.file, PollFlags::IN));
        }
        // An interrupted wait is one more turn of the caller's loop.
        let _ = poll(&mut watched, timeout.as_ref());
        let events: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        if !events[0].is_empty() {
            return None;
        }
        if events.get(1).is_none_or(PollFlags::is_empty) {
            return Some(Vec::new());
        }
        let mut keys = [0; 64];
        match (&self.terminal.file).read(&mut keys) {
            Ok(length) if length > 0 => return Some(typed_keys(&keys[..length])),
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            _ => self.is_gone = true,
        }
        Some(Vec::new())
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        // A half-written sequence would swallow the beginning of the next.
        let rest = std::mem::take(&mut self.pending);
        if self.is_open() {
            self.terminal.write_in_time(&rest);
        }
        self.terminal.give_back();
    }
}

impl OwnTerminal {
    /// Makes the terminal as it was before, once.
    pub(crate) fn give_back(&self) {
        if self.is_ours.swap(false, Ordering::Relaxed) {
            self.write_in_time(LEAVE.as_bytes());
            // A terminal that went away shows nothing anyway.
            let _ = tcsetattr(&self.file, OptionalActions::Now, &self.before);
        }
    }

    fn write_in_time(&self, mut bytes: &[u8]) {
        let deadline = Instant::now() + LAST_BYTES;
        while !bytes.is_empty() && Instant::now() < deadline {
            match (&self.file).write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Returns the terminal of this process: that which controls it, or else the one that is standard
/// error.
///
/// # Errors
/// Fails if there is no terminal, it cannot place text, or it is another program's.
pub(crate) fn find_terminal() -> Result<File> {
    let kind = std::env::var("TERM").unwrap_or_default();
    let file = open_terminal().ok_or_else(|| {
        usage_failure(
            "--live needs a terminal, and there is none: leave it out, or run it where /dev/tty can be opened",
        )
    })?;
    if ["", "dumb", "unknown"].contains(&kind.as_str()) {
        return Err(usage_failure(format!(
            "--live cannot draw on a terminal of type {kind:?} (TERM): leave it out, or set TERM to the terminal's type"
        )));
    }
    // Changing the settings of a terminal that another program has would stop this one.
    if tcgetpgrp(&file).is_ok_and(|foreground| foreground != getpgrp()) {
        return Err(usage_failure(
            "--live needs the terminal, which another program has: run it in the foreground",
        ));
    }
    Ok(file)
}

/// Returns the failure of a terminal that does not take settings, or of a thread that cannot be
/// started.
pub(crate) fn cannot_use_terminal(cause: impl Into<io::Error>) -> Failure {
    cannot("use the terminal")(cause.into())
}

/// Opens the terminal for itself, so that nothing that others do with it waits or does not.
fn open_terminal() -> Option<File> {
    open_device("/dev/tty").or_else(|| {
        if io::stderr().is_terminal() {
            open_device("/proc/self/fd/2")
        } else {
            None
        }
    })
}

fn open_device(path: &str) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Some(open(path, flags, Mode::empty()).ok()?.into())
}

/// Returns keys without the sequences of others, such as arrows (ECMA-48: an escape, `[` or `O`,
/// parameters, a letter).
fn typed_keys(keys: &[u8]) -> Vec<u8> {
    let mut rest = keys.iter().copied();
    let mut typed = Vec::new();
    while let Some(key) = rest.next() {
        match key {
            b'\x1b' => drop(
                rest.by_ref()
                    .skip(1)
                    .find(|key| (0x40..=0x7e).contains(key)),
            ),
            key => typed.push(key),
        }
    }
    typed
}

/// Returns the bytes for a terminal to show these cells in place of what it shows.
fn bytes_of(cells: &[(u16, u16, &Cell)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut place, mut style) = (None, String::new());
    for (column, row, cell) in cells {
        if place != Some((*column, *row)) {
            bytes.extend(format!("\x1b[{};{}H", row + 1, column + 1).into_bytes());
        }
        let wanted = style_of(cell);
        if wanted != style {
            bytes.extend(format!("\x1b[0{wanted}m").into_bytes());
            style = wanted;
        }
        bytes.extend(cell.symbol().as_bytes());
        place = Some((column + 1, *row));
    }
    bytes.extend(b"\x1b[0m");
    bytes
}

/// Returns the parameters of a cell's style (ECMA-48, SGR), each behind a semicolon.
fn style_of(cell: &Cell) -> String {
    let marks = [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::REVERSED, ";7"),
    ];
    let marks = marks
        .iter()
        .filter(|(mark, _)| cell.modifier.contains(*mark))
        .map(|(_, code)| (*code).to_owned());
    let colours = [(38, cell.fg), (48, cell.bg)]
        .into_iter()
        .filter_map(|(ground, colour)| match colour {
            Color::Indexed(index) => Some(format!(";{ground};5;{index}")),
            _ => None,
        });
    marks.chain(colours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    #[test]
    fn arrows_are_no_letters() {
        assert_eq!(typed_keys(b"\x1b[Aq\x1bOP\x1b[15~x\x1b"), b"qx");
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut before = Buffer::empty(Rect::new(0, 0, 10, 2));
        before.set_string(0, 0, "rate 100", Style::new());
        let mut after = before.clone();
        after.set_string(
            5,
            0,
            "99 ",
            Style::new()
                .fg(Color::Indexed(32))
                .add_modifier(Modifier::BOLD),
        );
        let written = String::from_utf8(bytes_of(&before.diff(&after))).unwrap();
        assert_eq!(written, "\x1b[1;6H\x1b[0;1;38;5;32m99 \x1b[0m");
    }
}
