//! Progress while other programs are watched: a status line, or a picture.

use std::io::{Read, pipe};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use fullpipe_diagnose::diagnose;
use fullpipe_live::{WatchedPage, WatchedUpdate};
use fullpipe_observe::Standing;
use fullpipe_probe::{Snapshot, StreamSnapshot};
use fullpipe_record::Direction;
use fullpipe_report as report;
use fullpipe_units::{BitRate, ByteCount, Span, printable};

use super::Arguments;
use super::seen::Seen;
use crate::commands::live::{Interrupts, Picture};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Time between two pictures.
const PICTURE_INTERVAL: Span = Span::from_millis(100);

/// Time between two status lines, and two judgements.
const STATUS_INTERVAL: Span = Span::from_secs(1);

/// Time of which a status line names the limit.
const JUDGED_TIME: Span = Span::from_secs(3);

/// Most that is kept of what a program prints while there is a picture.
const MAX_KEPT: u64 = 64 * 1024;

/// The picture or the line that a user sees while a program is watched.
pub(super) struct Progress<'t> {
    picture: Option<Picture<WatchedUpdate>>,
    terminal: &'t Terminal,
    drawn: Span,
    stated: Span,
    moved: ByteCount,
    bandwidth: Option<BitRate>,
}

impl<'t> Progress<'t> {
    /// Begins, with a picture if one is asked for; `name` is what is watched.
    pub(super) fn begin(
        arguments: &Arguments,
        name: &str,
        interrupts: &Interrupts,
        terminal: &'t Terminal,
    ) -> Result<Self, Failure> {
        let picture = arguments.live.start(|| WatchedPage::new(name), interrupts)?;
        let [drawn, stated] = [Span::ZERO; 2];
        Ok(Self { picture, terminal, drawn, stated, moved: ByteCount::ZERO, bandwidth: arguments.bandwidth })
    }

    pub(super) fn show(&mut self, now: Standing<'_>) {
        let is_due = |last: Span, interval| now.elapsed >= last + interval;
        if self.picture.is_some() && is_due(self.drawn, PICTURE_INTERVAL) {
            self.drawn = now.elapsed;
            self.draw(WatchedUpdate::Snapshot(snapshot(now)));
        }
        if is_due(self.stated, STATUS_INTERVAL) {
            self.state(now);
        }
    }

    fn draw(&self, update: WatchedUpdate) {
        if let Some(picture) = &self.picture {
            picture.send(update);
        }
    }

    /// States rate and limit of the last moments.
    fn state(&mut self, now: Standing<'_>) {
        let moved: ByteCount = now.moved_each_way().into_iter().sum();
        let passed = now.elapsed.saturating_sub(self.stated);
        let rate = BitRate::of(moved.saturating_sub(self.moved), passed);
        (self.stated, self.moved) = (now.elapsed, moved);
        let (limit, sentence) = limit(now, self.bandwidth);
        let seconds = now.elapsed.as_secs_f64();
        self.terminal.status(&format!("{seconds:.0} s: {rate}, {moved} so far; {limit}"));
        self.draw(WatchedUpdate::Now(limit, sentence));
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.stated > Span::ZERO && self.picture.is_none() {
            self.terminal.status("");
        }
    }
}

fn snapshot(now: Standing<'_>) -> Snapshot {
    let ways = [Direction::Upload, Direction::Download].into_iter().zip(now.moved_each_way());
    let streams = ways.map(|(direction, bytes)| StreamSnapshot { direction, bytes }).collect();
    Snapshot { at: now.elapsed, rtt: now.rtt, streams }
}

/// Returns the name of the longest use of the last moments, and a sentence on it: the verdict where
/// the time went into data.
fn limit(now: Standing<'_>, bandwidth: Option<BitRate>) -> (String, String) {
    let seen = Seen::from_watched((Some(&now.last(JUDGED_TIME)), None), None, bandwidth);
    let Some(time) = &seen.time else { return ("no TCP data".to_owned(), String::new()) };
    let verdict = seen.transfers.first().filter(|_| time.data >= time.whole / 2).map(|one| diagnose(&one.evidence));
    match verdict {
        Some(verdict) => (verdict.name().to_owned(), verdict.sentence),
        None => (report::longest_use(time).to_owned(), String::new()),
    }
}

/// The output of a program that would draw over a picture: its end, which is printed behind the picture.
pub(super) struct HeldOutput(Option<JoinHandle<Vec<u8>>>);

impl HeldOutput {
    /// Holds the output of a program back, and gives it no input.
    pub(super) fn divert_from(command: &mut Command) -> std::io::Result<Self> {
        let (reader, writer) = pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let read = move || {
            let (mut reader, mut kept) = (reader, Vec::new());
            // The rest is read and lost, so that the program goes on.
            let _ = reader.by_ref().take(MAX_KEPT).read_to_end(&mut kept);
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            kept
        };
        Ok(Self(Some(thread::Builder::new().name("output".to_owned()).spawn(read)?)))
    }

    /// Prints it, once the program has ended.
    pub(super) fn print(mut self, terminal: &Terminal) {
        let kept = self.0.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        for line in String::from_utf8_lossy(&kept).lines() {
            terminal.result(&format!("{}\n", printable(line)));
        }
    }
}
