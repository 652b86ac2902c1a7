//! The thread that draws.

use std::io::{PipeReader, PipeWriter, pipe};
use std::panic;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_units::Span;

use crate::failure::{INTERRUPTED, Result};
use crate::live::frame::{LivePage, PictureState, draw_page};
use crate::live::screen::{OwnTerminal, TerminalScreen, cannot_use_terminal, find_terminal};

/// Time between two pictures.
const PERIOD: Duration = Duration::from_millis(100);

/// Updates that may wait to be drawn; more are lost.
const WAITING: usize = 1024;

/// Longest time to give the terminal back.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Key of Ctrl-C.
const CTRL_C: u8 = 3;

/// A page on the terminal, until this is dropped.
#[derive(Debug)]
pub(crate) struct LiveDisplay<U> {
    updates: SyncSender<U>,
    thread: JoinHandle<()>,
    /// Nothing is ever written; when it is dropped, the thread gives the terminal back.
    wake: Option<PipeWriter>,
}

impl<U: Send + 'static> LiveDisplay<U> {
    /// Takes the terminal and draws `page` on it, without colour if `NO_COLOR` is set. Sets
    /// `interrupt` when the user asks for the end by a key or a signal; each signal sets
    /// `signalled`, which is cleared when it was seen.
    ///
    /// # Errors
    /// Fails if there is no terminal, it cannot place text, or it is another program's.
    pub(crate) fn start(
        page: impl LivePage<Update = U>,
        interrupt: Arc<AtomicBool>,
        signalled: Arc<AtomicBool>,
    ) -> Result<Self> {
        let screen = TerminalScreen::from_file(find_terminal()?)?;
        give_back_before_panic(Arc::clone(screen.own_terminal()));
        let (updates, waiting) = sync_channel(WAITING);
        let (ended, wake) = pipe().map_err(cannot_use_terminal)?;
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let drawer = DisplayThread {
            page,
            updates: waiting,
            screen,
            interrupt,
            signalled,
            begun: Instant::now(),
            asked: 0,
            has_colour,
        };
        let thread = thread::Builder::new()
            .name("live".to_owned())
            .spawn(move || drawer.run(&ended))
            .map_err(cannot_use_terminal)?;
        Ok(Self {
            updates,
            thread,
            wake: Some(wake),
        })
    }

    /// Passes an update to the page. Never waits: where too many wait to be drawn, it is lost.
    pub(crate) fn send(&self, update: U) {
        let _ = self.updates.try_send(update);
    }
}

impl<U> Drop for LiveDisplay<U> {
    fn drop(&mut self) {
        self.wake = None;
        let deadline = Instant::now() + LAST_WORDS;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Gives the terminal back before the message of a panic, wherever that is, so that it can be read.
fn give_back_before_panic(terminal: Arc<OwnTerminal>) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        terminal.give_back();
        print(panic);
    }));
}

/// State of the thread.
struct DisplayThread<P: LivePage> {
    page: P,
    updates: Receiver<P::Update>,
    screen: TerminalScreen,
    interrupt: Arc<AtomicBool>,
    signalled: Arc<AtomicBool>,
    begun: Instant,
    /// Number of times that the user asked for the end, but for those by `q`.
    asked: u32,
    has_colour: bool,
}

impl<P: LivePage> DisplayThread<P> {
    fn run(mut self, ended: &PipeReader) {
        loop {
            let now: Span = self.begun.elapsed().into();
            for update in self.updates.try_iter() {
                self.page.apply_update(now, update);
            }
            let is_ending = self.interrupt.load(Ordering::Relaxed);
            let view = PictureState {
                size: self.screen.size(),
                has_colour: self.has_colour,
                is_ending,
            };
            self.screen.show_picture(draw_page(&self.page, now, view));
            if !self.wait_for_picture(ended) {
                return;
            }
        }
    }

    /// Waits until the next picture is due, and takes keys and signals meanwhile. Returns false at
    /// the end.
    fn wait_for_picture(&mut self, ended: &PipeReader) -> bool {
        let due = Instant::now() + PERIOD;
        loop {
            let Some(keys) = self
                .screen
                .wait_for_keys(ended, due.saturating_duration_since(Instant::now()))
            else {
                return false;
            };
            for key in keys {
                match key {
                    b'q' | b'Q' => self.interrupt.store(true, Ordering::Relaxed),
                    CTRL_C => self.request_end(),
                    _ => {}
                }
            }
            if self.signalled.swap(false, Ordering::Relaxed) {
                self.request_end();
            }
            if Instant::now() >= due {
                return true;
            }
        }
    }

    /// Asks for the end; the second time, ends at once.
    fn request_end(&mut self) {
        self.interrupt.store(true, Ordering::Relaxed);
        self.asked += 1;
        if self.asked > 1 {
            self.screen.own_terminal().give_back();
            exit(INTERRUPTED.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn a_panic_anywhere_gives_the_terminal_back() {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options()
            .read(true)
            .write(true)
            .open(path.to_str().unwrap())
            .unwrap();
        let modes = || tcgetattr(&theirs).unwrap().local_modes;
        let before = modes();
        let mut screen = TerminalScreen::from_file(theirs.try_clone().unwrap()).unwrap();
        assert!(before.contains(LocalModes::ECHO) && !modes().contains(LocalModes::ECHO));
        give_back_before_panic(Arc::clone(screen.own_terminal()));
        assert!(
            thread::spawn(|| panic!("a fault, as this test wants one"))
                .join()
                .is_err()
        );
        assert_eq!(modes(), before);
        // Nothing is drawn on what is no longer ours.
        let mut picture = Buffer::empty(Rect::new(0, 0, 10, 1));
        picture.set_string(0, 0, "picture", ratatui_core::style::Style::new());
        screen.show_picture(picture);
        drop(screen);
        let mut shown = [0; 1_000];
        let length = File::from(ours).read(&mut shown).unwrap();
        assert!(
            shown[..length].ends_with(b"\x1b[?25h\x1b[?1049l"),
            "{:?}",
            String::from_utf8_lossy(&shown[..length])
        );
    }
}
