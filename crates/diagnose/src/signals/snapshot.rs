use fullpipe_model::kernel;

use crate::prelude::*;
use crate::thresholds::{CLEARLY_LOWER_SHARE, SEGMENT_TRAIN};

/// One judged sample with its figures; `None` where the kernel did not report a figure and nothing
/// stands in.
pub(crate) struct JudgedSample<'a> {
    pub(crate) sample: &'a Sample,
    /// In flight in sequence space.
    pub(crate) outstanding: Option<ByteCount>,
    /// The window that the receiver advertises.
    pub(crate) window: Option<ByteCount>,
    /// Congestion window; of a capture, which does not show it, what was in flight.
    pub(crate) cwnd: Option<ByteCount>,
    /// Written and never sent.
    pub(crate) not_sent: Option<ByteCount>,
    /// Written and not yet acknowledged.
    pub(crate) queued: Option<ByteCount>,
    /// The most that the send buffer may hold.
    pub(crate) sndbuf: Option<ByteCount>,
}

/// Figures that stand in for fields that the sending kernel does not report.
pub(crate) struct FallbackFigures {
    sndbuf: Option<ByteCount>,
    /// Windows that the receiver's own kernel reports, by time.
    windows: Vec<(Span, ByteCount)>,
    is_capture: bool,
}

impl FallbackFigures {
    /// Of `stream`, with the `received` samples of its receiver.
    pub(crate) fn from_receiver_samples(
        stream: u16,
        received: &[&Sample],
        evidence: &Evidence,
    ) -> Self {
        let own = received
            .iter()
            .filter_map(|sample| Some((sample.at, own_window(&sample.tcp)?)));
        let mut windows: Vec<_> = own.collect();
        windows.sort_unstable();
        Self {
            sndbuf: sndbuf_by_settings(stream, evidence),
            windows,
            is_capture: evidence.capture.is_some(),
        }
    }

    fn window_at(&self, at: Span) -> Option<ByteCount> {
        let after = self.windows.partition_point(|(time, _)| *time <= at);
        self.windows
            .get(after.saturating_sub(1))
            .map(|(_, window)| *window)
    }
}

/// Segments by which a window that limits may appear unused.
const WINDOW_MARGIN_SEGMENTS: u64 = 3;
/// Share of a window that limits by which it may appear unused.
const WINDOW_MARGIN_SHARE: f64 = 1.0 / 16.0;
/// Largest share of a window by which it may appear unused: a train of segments is the whole of a
/// small window.
const MAX_WINDOW_MARGIN_SHARE: f64 = 1.0 / 4.0;
/// Unsent share of the send buffer below which the buffer held back what could have been sent.
///
/// A buffer that the kernel sizes by the congestion window is 3 to 5 windows large, so that more
/// than half of it is unsent.
const MAX_UNSENT_SHARE: f64 = 1.0 / 4.0;
/// Share of the congestion window in the pipe from which the congestion window limits.
const FULL_CONGESTION_WINDOW_SHARE: f64 = 0.9;
/// Share of the send buffer below which its writer is behind.
const LOW_BUFFER_SHARE: f64 = 0.5;

impl<'a> JudgedSample<'a> {
    pub(crate) fn new(sample: &'a Sample, fallback: &FallbackFigures) -> Self {
        let tcp = &sample.tcp;
        let outstanding = sample.outstanding_bytes();
        Self {
            sample,
            outstanding,
            window: tcp.snd_wnd.or_else(|| fallback.window_at(sample.at)),
            cwnd: sample
                .congestion_window()
                .or_else(|| outstanding.filter(|_| fallback.is_capture)),
            not_sent: tcp
                .not_sent
                .or_else(|| Some(sample.memory?.wmem_queued.saturating_sub(outstanding?))),
            queued: sample
                .memory
                .map(|memory| memory.wmem_queued)
                .or_else(|| Some(outstanding? + tcp.not_sent?)),
            sndbuf: sample
                .memory
                .map(|memory| memory.sndbuf)
                .or(fallback.sndbuf),
        }
    }

    /// Returns true if anything was in flight or waiting.
    pub(crate) fn is_busy(&self) -> bool {
        [self.outstanding, self.not_sent] != [Some(ByteCount::ZERO); 2]
    }

    /// Returns true if the advertised window was used up; `None` if its use is not known. Where the
    /// congestion window has nearly the same size, the caller passes what the kernel's own clocks
    /// found.
    pub(crate) fn fills_window(&self, clocks_say_window: bool) -> Option<bool> {
        let (outstanding, window) = (self.outstanding?, self.window?);
        let margin = self.window_margin(window);
        if outstanding + margin < window {
            return Some(false);
        }
        let cwnd = self.sample.congestion_window();
        Some(
            cwnd.is_none_or(|cwnd| {
                cwnd >= window || (clocks_say_window && cwnd + margin >= window)
            }),
        )
    }

    /// Returns true if a full send buffer left nothing to send though the windows had room; `None`
    /// if its use is not known. Only the course of the whole stream shows that it is full: a
    /// sleeping writer lets it run down by a third.
    pub(crate) fn starved_by_buffer(&self) -> Option<bool> {
        let (not_sent, sndbuf) = (self.not_sent?, self.sndbuf?);
        let little = sndbuf.scale_by(MAX_UNSENT_SHARE);
        Some(not_sent <= little.min(SEGMENT_TRAIN) || (not_sent <= little && self.has_room()?))
    }

    /// Returns true if the writer left the send buffer largely empty; or, where that is never full
    /// (`buffer_is_full`), both windows, with little to send at the moment.
    pub(crate) fn writer_behind(&self, buffer_is_full: bool) -> Option<bool> {
        let nothing_to_send = self
            .sample
            .tcp
            .app_limited
            .or_else(|| self.has_nothing_to_send())?;
        let left_empty = nothing_to_send
            && self.queued? < self.sndbuf?.scale_by(LOW_BUFFER_SHARE)
            && !self.waits_for_window();
        let little_to_send = self
            .not_sent
            .is_some_and(|not_sent| not_sent * 2 <= SEGMENT_TRAIN);
        Some(left_empty || (!buffer_is_full && little_to_send && self.has_room() == Some(true)))
    }

    /// Returns true if data is unsent that no window lets out: `app_limited` is of the data that was
    /// acknowledged last, and a round trip old.
    fn waits_for_window(&self) -> bool {
        let segment = self.sample.tcp.snd_mss.unwrap_or_default();
        let is_closed = self.window.is_some_and(|window| window < segment);
        self.not_sent.is_some_and(|not_sent| not_sent > segment)
            && (is_closed || self.has_room() == Some(false))
    }

    /// Before Linux 4.9 the kernel does not say so itself: less than a segment unsent, with room
    /// for more.
    fn has_nothing_to_send(&self) -> Option<bool> {
        Some(self.not_sent? <= self.sample.tcp.snd_mss.unwrap_or_default() && self.has_room()?)
    }

    /// Returns true if the congestion window or the pace held data back, and not the receiver;
    /// `None` if neither is known.
    pub(crate) fn held_by_path(&self, clocks_say_window: bool) -> Option<bool> {
        let full_pipe = self
            .sample
            .pipe_bytes()
            .zip(self.cwnd)
            .map(|(pipe, cwnd)| pipe >= cwnd.scale_by(FULL_CONGESTION_WINDOW_SHARE));
        let waiting = self
            .not_sent
            .map(|not_sent| not_sent > self.unsent_by_chance());
        let held = match (full_pipe, waiting) {
            (None, None) => return None,
            (full_pipe, waiting) => full_pipe.unwrap_or(false) || waiting.unwrap_or(false),
        };
        Some(held && self.is_busy() && !self.fills_window(clocks_say_window).unwrap_or(false))
    }

    /// Returns the bytes that may be unsent for a moment though nothing holds them back.
    fn unsent_by_chance(&self) -> ByteCount {
        self.sndbuf.map_or(SEGMENT_TRAIN, |sndbuf| {
            sndbuf.scale_by(MAX_UNSENT_SHARE).min(SEGMENT_TRAIN)
        })
    }

    /// Returns true if both windows would have allowed more in flight; `None` if they are not
    /// known.
    pub(crate) fn has_room(&self) -> Option<bool> {
        let window = match (self.cwnd, self.window) {
            (Some(cwnd), Some(window)) => cwnd.min(window),
            (one, other) => one.or(other)?,
        };
        Some(self.outstanding? < window.scale_by(CLEARLY_LOWER_SHARE))
    }

    /// Returns the bytes by which a window that limits may appear unused: the kernel waits to send
    /// whole trains of segments.
    fn window_margin(&self, window: ByteCount) -> ByteCount {
        let segments = self.sample.tcp.snd_mss.unwrap_or_default() * WINDOW_MARGIN_SEGMENTS;
        let margin = segments
            .max(SEGMENT_TRAIN)
            .max(window.scale_by(WINDOW_MARGIN_SHARE));
        margin.min(window.scale_by(MAX_WINDOW_MARGIN_SHARE))
    }
}

/// The window that a host advertises itself: its kernel does not clamp `tcpi_rcv_wnd` to what the
/// header can carry (seen: 1 795 520 where the peer read 65 535).
pub(crate) fn own_window(tcp: &TcpInfo) -> Option<ByteCount> {
    // A shift that is not reported is the largest.
    let scale = (tcp.window_scaling != Some(false)).then(|| tcp.rcv_wscale.unwrap_or(u8::MAX));
    Some(tcp.rcv_wnd?.min(kernel::largest_window(scale)))
}

/// Bytes that a stream has received: what the kernel counted, or else the program.
pub(crate) fn received_bytes(sample: &Sample) -> ByteCount {
    sample.tcp.bytes_received.unwrap_or(sample.bytes)
}

/// The send buffer as the settings give it: read back where it is fixed, `tcp_wmem` where the
/// kernel tunes it.
fn sndbuf_by_settings(stream: u16, evidence: &Evidence) -> Option<ByteCount> {
    match evidence.request.send_buffer() {
        Buffer::Automatic => evidence
            .sender
            .as_ref()
            .map(|settings| settings.tcp_wmem.max),
        Buffer::Request(_) | Buffer::Window(_) => {
            let socket = evidence
                .sender_sockets
                .iter()
                .find(|socket| socket.stream == stream)?;
            Some(socket.sndbuf)
        }
    }
}
