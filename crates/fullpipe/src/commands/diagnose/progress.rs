//! Progress while other programs are watched: a status line, or a picture.

use std::io::{Read, pipe};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use crate::live::{WatchedPage, WatchedUpdate};
use fullpipe_diagnose::diagnose;
use fullpipe_observe::WatchProgress;
use fullpipe_probe::{StreamSnapshot, TestSnapshot};
use fullpipe_units::printable_line;

use super::DiagnoseArguments;
use super::completion::CompletionWatch;
use super::seen::WatchedFindings;
use crate::commands::live::LivePicture;
use crate::commands::prelude::*;

/// Time between two pictures.
const PICTURE_INTERVAL: Span = Span::from_millis(100);

/// Time between two status lines, and two judgements.
const STATUS_INTERVAL: Span = Span::from_secs(1);

/// Time of which a status line names the limit.
const JUDGED_TIME: Span = Span::from_secs(3);

/// Most that is kept of what a program prints while there is a picture.
const MAX_KEPT: u64 = 64 * 1024;

/// The picture or the line that a user sees while a program is watched.
pub(super) struct WatchDisplay<'t> {
    picture: Option<LivePicture<WatchedUpdate>>,
    terminal: &'t Terminal,
    drawn: Span,
    stated: Span,
    moved: ByteCount,
    bandwidth: Option<BitRate>,
    /// When what the program sends is complete.
    pub(super) completion: CompletionWatch,
}

impl<'t> WatchDisplay<'t> {
    /// Begins, with a picture if one is asked for; `name` is what is watched, and `process` the
    /// root of its processes, if it is known.
    pub(super) fn start_display(
        arguments: &DiagnoseArguments,
        (name, process): (&str, Option<u32>),
        interrupts: &InterruptFlags,
        terminal: &'t Terminal,
    ) -> Result<Self> {
        let picture = arguments
            .live
            .start_picture(|| WatchedPage::new(name), interrupts)?;
        let [drawn, stated] = [Span::ZERO; 2];
        Ok(Self {
            picture,
            terminal,
            drawn,
            stated,
            moved: ByteCount::ZERO,
            bandwidth: arguments.bandwidth,
            completion: CompletionWatch::new(process, arguments.size),
        })
    }

    pub(super) fn show_progress(&mut self, now: WatchProgress<'_>) {
        self.completion.update(now);
        if self.picture.is_some() && now.elapsed >= self.drawn + PICTURE_INTERVAL {
            self.drawn = now.elapsed;
            self.draw_update(WatchedUpdate::Snapshot(watched_snapshot(now)));
        }
        if now.elapsed >= self.stated + STATUS_INTERVAL {
            self.print_limit(now);
        }
    }

    fn draw_update(&self, update: WatchedUpdate) {
        if let Some(picture) = &self.picture {
            picture.send(update);
        }
    }

    /// States rate and limit of the last moments.
    fn print_limit(&mut self, now: WatchProgress<'_>) {
        let moved: ByteCount = now.moved_each_way().into_iter().sum();
        let passed = now.elapsed.saturating_sub(self.stated);
        let rate = BitRate::from_bytes_in(moved.saturating_sub(self.moved), passed);
        (self.stated, self.moved) = (now.elapsed, moved);
        let (limit, sentence) = recent_limit(now, self.bandwidth);
        let seconds = now.elapsed.as_secs_f64();
        let completion = self.completion.last.as_ref();
        let shown = completion.map_or_else(
            || format!("{moved} so far"),
            |completion| report::time_left(&completion.forecast),
        );
        self.terminal
            .print_status_line(&format!("{seconds:.0} s: {rate}, {shown}; {limit}"));
        let completion = completion.map(report::file_completion);
        self.draw_update(WatchedUpdate::Now(limit, sentence, completion));
    }
}

impl Drop for WatchDisplay<'_> {
    fn drop(&mut self) {
        if self.stated > Span::ZERO && self.picture.is_none() {
            self.terminal.print_status_line("");
        }
    }
}

fn watched_snapshot(now: WatchProgress<'_>) -> TestSnapshot {
    let ways = [Direction::Upload, Direction::Download]
        .into_iter()
        .zip(now.moved_each_way());
    let streams = ways
        .map(|(direction, bytes)| StreamSnapshot { direction, bytes })
        .collect();
    TestSnapshot {
        at: now.elapsed,
        rtt: now.rtt,
        streams,
    }
}

/// Returns the name of the longest use of the last moments, and a sentence on it: the verdict where
/// the time went into data.
fn recent_limit(now: WatchProgress<'_>, bandwidth: Option<BitRate>) -> (String, String) {
    let seen = WatchedFindings::from_watched(
        (Some(&now.recent_interval(JUDGED_TIME)), None),
        None,
        bandwidth,
    );
    let Some(time) = &seen.time else {
        return ("no TCP data".to_owned(), String::new());
    };
    let verdict = seen
        .transfers
        .first()
        .filter(|_| time.data >= time.whole / 2)
        .map(|one| diagnose(&one.evidence));
    match verdict {
        Some(verdict) => (verdict.name().to_owned(), verdict.sentence),
        None => (report::longest_use(time).to_owned(), String::new()),
    }
}

/// The output of a program that would draw over a picture: its end, which is printed behind the
/// picture.
pub(super) struct HeldOutput(Option<JoinHandle<Vec<u8>>>);

impl HeldOutput {
    /// Holds the output of a program back, and gives it no input.
    pub(super) fn divert_from(command: &mut Command) -> std::io::Result<Self> {
        let (mut reader, writer) = pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let thread = thread::Builder::new().name("output".to_owned());
        let thread = thread.spawn(move || {
            let mut kept = Vec::new();
            // The rest is read and lost, so that the program goes on.
            let _ = reader.by_ref().take(MAX_KEPT).read_to_end(&mut kept);
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            kept
        })?;
        Ok(Self(Some(thread)))
    }

    /// Prints it, once the program has ended.
    pub(super) fn print(mut self, terminal: &Terminal) {
        let kept = self
            .0
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        for line in String::from_utf8_lossy(&kept).lines() {
            terminal.print_result(&format!("{}\n", printable_line(line)));
        }
    }
}
