use fullpipe_record::{Edit, LossPattern, Segmentation};

use crate::framing;
use crate::kernel::{self, ReceiveBuffer};
use crate::loss::{self, CongestionControl};
use crate::prelude::*;
use crate::ramp::INITIAL_WINDOW;
use crate::{LikelyFactor, short, window};

/// The values that the two ends of a connection agree on, from the path, their settings and the
/// load.
pub(crate) struct ConnectionTerms<'a> {
    pub(crate) path: &'a Path,
    pub(crate) sender: &'a HostSettings,
    pub(crate) receiver: &'a HostSettings,
    pub(crate) request: &'a Request,
    /// The formula used; the name asked for may be of none.
    pub(crate) control: CongestionControl,
    pub(crate) mss: ByteCount,
    /// IP and TCP before each payload.
    pub(crate) headers: ByteCount,
    /// Propagation, and the time that two full segments and their acknowledgement take to be put on
    /// the line: a receiver acknowledges every second segment (RFC 5681 §4.2), so a window opens by
    /// two. Measured on Linux 6.18 at 100 Mbit/s over 10 ms: 10.29 ms, of which this explains
    /// 10.26.
    pub(crate) rtt: Span,
    /// The `SO_RCVBUF` request of the receiver, where there is one.
    pub(crate) rcvbuf: Option<ByteCount>,
    /// The `SO_SNDBUF` request of the sender, where there is one.
    pub(crate) sndbuf: Option<ByteCount>,
    pub(crate) receive: ReceiveBuffer,
    pub(crate) send: ByteCount,
}

impl<'a> ConnectionTerms<'a> {
    /// Returns true if the load ends within this ramp.
    pub(crate) fn ends_in_ramp(&self, ramp: &Ramp) -> bool {
        match self.request.bytes {
            Some(bytes) => bytes < ramp.bytes,
            None => self.request.omit + self.request.duration < ramp.duration,
        }
    }

    pub(crate) fn new(
        path: &'a Path,
        sender: &'a HostSettings,
        receiver: &'a HostSettings,
        request: &'a Request,
    ) -> Self {
        let timestamps = sender.timestamps && receiver.timestamps;
        let headers = framing::tcp_headers(path.forward.ip, timestamps);
        let mss = framing::segment_payload(
            path.forward.known_mtu(),
            path.forward.ip,
            timestamps,
            request.mss.into_iter().chain(path.clamped_mss()).min(),
        );
        let [sndbuf, rcvbuf] = [request.send_buffer(), request.receive_buffer()]
            .map(|buffer| kernel::socket_request(receiver, buffer, mss));
        Self {
            path,
            sender,
            receiver,
            request,
            control: CongestionControl::from_name(request.congestion_at(sender))
                .unwrap_or(CongestionControl::Reno),
            mss,
            headers,
            rtt: loaded_rtt(path, mss, headers),
            rcvbuf,
            sndbuf,
            receive: receive_buffer([sender, receiver], path, rcvbuf).with_packets(receiver, mss),
            send: kernel::send_buffer(sender, sndbuf),
        }
    }

    /// The congestion control by the name that was asked for.
    pub(crate) fn control_name(&self) -> &str {
        self.request.congestion_at(self.sender)
    }

    /// Returns the share of packets that the congestion control takes for lost at random: a run of
    /// losses that is short beside the window counts as one, to which Reno and CUBIC answer once
    /// (loss events, RFC 5348 §5.2). BBR counts all.
    pub(crate) fn loss_events(&self) -> Option<Ratio> {
        let forward = &self.path.forward;
        let mean = forward.loss?;
        let runs = forward
            .effects
            .losses
            .as_ref()
            .and_then(LossPattern::loss_runs);
        let events = runs.filter(|(events, length)| {
            let window = self.window_under(*events).unwrap_or_default();
            self.control != CongestionControl::Bbr
                && length * SHORT_RUNS <= window.as_f64() / self.mss.as_f64()
        });
        Some(events.map_or(mean, |(events, _)| events))
    }

    /// The mean window of each stream under `loss` at random, where it has one.
    pub(crate) fn window_under(&self, loss: Ratio) -> Option<ByteCount> {
        self.control.window_at_random(loss, self.rtt, self.mss)
    }

    /// The share of the time that the congestion control uses: all of it but BBR's probes for the
    /// round-trip time. The first comes 10 s after the least round-trip time was last seen, so in a
    /// transfer of 12 s sometimes (both were measured).
    pub(crate) fn sending_share(&self) -> Ratio {
        let lasts = self
            .request
            .bytes
            .map_or(self.request.omit + self.request.duration, |_| Span::MAX);
        let probed = Ratio::from_quotient(
            lasts.saturating_sub(loss::PROBE_RTT_EVERY).as_secs_f64(),
            lasts.as_secs_f64(),
        );
        match self.control {
            CongestionControl::Bbr => {
                let spent = 1.0 - loss::bbr::sending_share(self.rtt).get();
                Ratio::new(1.0 - spent * probed.get())
            }
            _ => Ratio::ONE,
        }
    }

    /// Returns the share of the rate of a receive window that is used: all but BBR's probes and the
    /// waits for whole trains.
    pub(crate) fn share_of_window_used(&self, window: ByteCount) -> f64 {
        self.sending_share().get() * self.kept_by_trains(window)
    }

    /// Returns a window of the receiver as the sender understands it: middleboxes lower its field
    /// and rewrite its scale.
    pub(crate) fn arriving_window(&self, window: ByteCount) -> ByteCount {
        let edits = &self.path.reverse.effects;
        let scale = self.receive.window_shift().unwrap_or_default();
        let rewritten = edits.edits.iter().find_map(|edit| match edit {
            Edit::RewriteWindowScale(shift) => Some(*shift),
            _ => None,
        });
        let seen = rewritten.filter(|_| scale > 0).unwrap_or(scale);
        if seen == scale && edits.window_clamp().is_none() {
            return window;
        }
        let most = edits.window_clamp().unwrap_or(kernel::largest_window(None));
        let field = ByteCount::new(window.get() >> scale).min(most);
        ByteCount::new(field.get() << seen)
    }

    /// Bytes that each stream keeps in flight where nothing but the receive window limits it.
    pub(crate) fn allowed_in_flight(&self) -> ByteCount {
        let window = self.arriving_window(self.receive.in_flight(self.mss));
        kernel::filled_window(
            self.path.segmentation,
            self.control,
            window,
            self.mss,
            self.rtt,
        )
    }

    /// The payload in each stream's send buffer ÷ the buffer: all of it where the sender is not
    /// Linux.
    pub(crate) fn send_fill(&self) -> LikelyFactor {
        if self.sender.system.is_some() {
            return LikelyFactor::by_rule();
        }
        kernel::mean_fill(
            self.request.writer,
            self.path.segmentation,
            self.mss,
            self.send,
            self.rtt,
        )
    }

    /// Returns the share, after waiting for a whole train, of the rate that `window` gives each
    /// stream, from 0 to 1.
    ///
    /// TCP sends in trains of what its pacing rate gives in a millisecond, and waits for
    /// acknowledgements until it may send one (`tcp_tso_should_defer`). While it waits, the link
    /// does: three quarters of the train's time on the line. Measured on Linux 6.18 with CUBIC and
    /// Reno at 100 Mbit/s: 0.25 to 0.45 ms over 5 ms, 0.43 to 0.84 ms over 20 ms, for windows of
    /// 0.5 and 0.7 BDPs.
    pub(crate) fn kept_by_trains(&self, window: ByteCount) -> f64 {
        let Some(capacity) = self.payload_capacity() else {
            return 1.0;
        };
        let longest = Ratio::from_quotient(
            self.waits_for_trains().as_secs_f64(),
            self.rtt.as_secs_f64(),
        )
        .get();
        let without = window::rate_of_window(window, self.rtt).relative_to(capacity);
        // Of the share of the link that is left, so that kept = 1 ÷ (1 + longest · without · kept).
        let kept = 2.0 / (1.0 + (1.0 + 4.0 * longest * without).sqrt());
        kept.max(1.0 / (1.0 + longest))
    }

    /// At a full link. TCP gives up waiting when a part of the round trip is over: taken as a
    /// sixth, which is not measured.
    fn waits_for_trains(&self) -> Span {
        match self.path.segmentation {
            Segmentation::Trains => Span::from_micros(768).min(self.rtt / 6),
            Segmentation::Exact => Span::ZERO,
        }
    }

    /// Time between an answer and the next request.
    pub(crate) fn pause(&self) -> Span {
        self.request.stated_load().pause.unwrap_or_default()
    }

    /// Returns the time in which the window of the programs' protocol passes once: the round trip,
    /// what a request takes to be put on the line before its end can be answered, and the pause.
    pub(crate) fn program_round(&self) -> Option<Span> {
        let request = self.request.stated_load().app_window?.request;
        let capacity = self.payload_capacity().unwrap_or(window::UNBOUNDED);
        let first = self.window_after_idle(request).unwrap_or(request);
        let passes = if request > ByteCount::ZERO {
            short::transfer_time_from(first, request, self.rtt, capacity)
        } else {
            self.rtt
        };
        Some(passes + self.pause())
    }

    /// Returns the congestion window with which a request begins that follows a pause; `None` where
    /// it is that of the one before. Linux halves it for each timeout in which nothing was sent,
    /// down to that of a new connection, but not under BBR (RFC 5681 §4.1; `tcp_cwnd_restart`).
    fn window_after_idle(&self, request: ByteCount) -> Option<ByteCount> {
        let idle = (self.path.rtt() + self.pause()).as_nanos();
        let timeout = (self.path.rtt() + LEAST_TIMEOUT).as_nanos();
        let halvings = idle.saturating_sub(1) / timeout;
        let is_kept = halvings == 0 || self.control == CongestionControl::Bbr;
        let halved = ByteCount::new(request.get() >> halvings.min(63));
        (!is_kept).then(|| halved.max(INITIAL_WINDOW.of_size(self.mss)))
    }

    /// Payload ÷ bytes on the wire.
    pub(crate) fn payload_share(&self) -> Ratio {
        framing::payload_share(self.mss, self.headers, self.path.forward.packet_overhead())
    }

    /// Bandwidth × round-trip time.
    pub(crate) fn bdp(&self) -> Option<ByteCount> {
        Some(window::bdp(self.path.forward.rate?, self.path.rtt()))
    }

    /// Payload of a full bottleneck.
    pub(crate) fn payload_capacity(&self) -> Option<BitRate> {
        Some(self.path.forward.rate?.scale_by(self.payload_share().get()))
    }

    /// Payload that each stream must have in flight so that together they fill the bottleneck;
    /// twice that under BBR, whose probes for bandwidth need the room.
    pub(crate) fn window_needed(&self) -> Option<ByteCount> {
        let streams = u64::from(self.request.streams.max(1));
        let rtt = self.rtt + self.waits_for_trains() / streams;
        let each = ByteCount::new(
            window::bdp(self.payload_capacity()?, rtt)
                .get()
                .div_ceil(streams),
        );
        Some(if self.control == CongestionControl::Bbr {
            each * 2
        } else {
            each
        })
    }
}

/// Windows have at least so many times the packets of a run of losses that is answered once. Of
/// simulated runs of a twelfth of the window the rate was within 15 %; those of half a window end in
/// timeouts.
const SHORT_RUNS: f64 = 8.0;

/// `TCP_RTO_MIN`.
const LEAST_TIMEOUT: Span = Span::from_millis(200);

fn loaded_rtt(path: &Path, mss: ByteCount, headers: ByteCount) -> Span {
    let time_on_line =
        |rate: Option<BitRate>, bytes| rate.map_or(Span::ZERO, |rate| rate.time_for(bytes));
    let segments = framing::wire_bytes(mss, headers, path.forward.packet_overhead()) * 2;
    let acknowledgement =
        framing::wire_bytes(ByteCount::ZERO, headers, path.reverse.packet_overhead());
    path.rtt()
        + time_on_line(path.forward.rate, segments)
        + time_on_line(path.reverse.rate, acknowledgement)
}

/// Scaling works only where both ends offer it, and nothing on the path takes the offer away.
fn receive_buffer(
    [sender, receiver]: [&HostSettings; 2],
    path: &Path,
    fixed: Option<ByteCount>,
) -> ReceiveBuffer {
    let buffer = fixed.map_or_else(
        || ReceiveBuffer::autotuned_buffer(receiver),
        |request| ReceiveBuffer::fixed_buffer(receiver, request),
    );
    let is_stripped = path.edits().any(|edit| *edit == Edit::StripWindowScale);
    if sender.window_scaling && !is_stripped {
        buffer
    } else {
        buffer.without_scaling()
    }
}
