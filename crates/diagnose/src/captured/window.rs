//! Windows that hold a captured transfer back: of the receiver, and as devices on the way leave
//! them.

use fullpipe_record::{
    At, Limit, ReceiveWindowVerdict, ReceiverApplicationVerdict, SendBufferVerdict, WindowEdit,
};
use fullpipe_units::{ByteCount, Ratio, median};

use crate::figures::share_of_votes;
use crate::finding::LimitFinding;
use crate::limits::{capacity, receive_window, receiver_application};
use crate::signals::CaptureView;
use crate::thresholds::{
    CLOCKED_BY_WINDOW, CLOCKED_SHARE, FEW_SEGMENTS, FULL_PACKETS_SHARE, MIN_CUT_PACKETS,
    MIN_LIMIT_SHARE, MIN_PROBES, MIN_USE_OF_FALLEN_WINDOW,
};

impl CaptureView<'_> {
    /// Finds a sender to which the receiver's offer to scale windows did not come: each of its
    /// packets holds as much as the field of the window in the header, which both SYNs scale here.
    /// The first may hold less, as what a program writes before the rest.
    pub(crate) fn unscaled_at_sender(&self) -> Option<LimitFinding> {
        let whole = &self.figures.flows.first()?.whole;
        let (first, tcp) = (&whole.first()?.tcp, &whole.last()?.tcp);
        let shift = tcp
            .snd_wscale
            .filter(|shift| *shift > 0 && tcp.window_scaling == Some(true))?;
        let field = ByteCount::new(tcp.snd_wnd?.get() >> shift);
        let bytes = tcp.bytes_sent?.saturating_sub(first.bytes_sent?);
        let packets = tcp
            .data_segs_out?
            .get()
            .saturating_sub(first.data_segs_out?.get());
        let packet = ByteCount::new(bytes.get() / packets.max(1));
        // Each is alone in flight. A window whose field is about a segment is full by chance.
        let is_alone = self.usual_most_in_flight()? <= field;
        let is_full = packet <= field && packet >= field.scale_by(FULL_PACKETS_SHARE) && is_alone;
        let found = !self.is_at_sender()
            && field < self.figures.mss?
            && packet > ByteCount::ZERO
            && is_full;
        found.then(|| LimitFinding::new(ReceiveWindowVerdict::WindowScaleStripped, Ratio::ONE))
    }

    /// Finds a program that leaves the receiver's window full, which holds data back from the begin.
    pub(crate) fn slow_reader(&self) -> Option<LimitFinding> {
        self.find_receive_window()
            .filter(|found| found.limit_kind() == Limit::ReceiverApplication)
    }

    /// Finds the receiver's window or program; or the full pipe, where the window holds more than
    /// fits it.
    pub(crate) fn find_receive_window(&self) -> Option<LimitFinding> {
        let found = receive_window::find_receive_window(self.figures)?;
        if found.limit_kind() != Limit::ReceiveWindow {
            return Some(found.as_verdict(found.verdict));
        }
        capacity::queue_behind_window(self.figures).or_else(|| Some(self.cause_of_window(found)))
    }

    /// Returns the cause of the window of `found`.
    fn cause_of_window(&self, found: LimitFinding) -> LimitFinding {
        if let Some(cause) = self.edited_window() {
            return found.as_verdict(cause);
        }
        if let Some(end) = self.end_without_scale() {
            return self.without_scale(end, &found);
        }
        if self.figures.evidence.receiver.is_some() {
            // Its settings show which of its limits this is.
            return found;
        }
        if self.has_window_fallen() {
            return found.as_verdict(ReceiverApplicationVerdict::SlowReader);
        }
        // The kernel lets a window grow for a program that reads what comes.
        let fixed = self.window_never_grew();
        let cause = if fixed {
            ReceiveWindowVerdict::SoRcvbuf
        } else {
            ReceiveWindowVerdict::TcpRmemMax
        };
        if self.lacks_handshake() {
            // It is full under one of fourteen scales, as about every second buffer is by chance.
            return found
                .as_verdict(cause)
                .add_alternative(SendBufferVerdict::TcpWmemMax);
        }
        found.as_verdict(cause)
    }

    /// Finds a window that is full, and falls and opens again and again: its program reads what fills
    /// it in portions. A link that is full never fills a window, and one of a fixed size stays open.
    pub(crate) fn swinging_window(&self) -> Option<LimitFinding> {
        let low = self.low_window_share()?;
        Some(LimitFinding::new(
            ReceiverApplicationVerdict::SlowReader,
            low,
        ))
    }

    /// Finds a window that has become small and is full at times: its program takes the data in its
    /// own time.
    pub(crate) fn fallen_window(&self) -> Option<LimitFinding> {
        let flow = self.figures.flows.first()?;
        let windows = flow.snapshots.iter().filter_map(|one| one.window);
        let usual = median(windows.collect())?;
        let is_full = self.usual_most_in_flight()? >= usual.scale_by(MIN_USE_OF_FALLEN_WINDOW);
        // Behind a hole data must wait, whatever the program does.
        let found = is_full
            && self.figures.part.is_some()
            && !self.lost_on_path()
            && receiver_application::window_fell(flow);
        found.then(|| LimitFinding::new(ReceiverApplicationVerdict::SlowReader, Ratio::ONE))
    }

    /// Finds a window of less than a segment: the sender waits until it is larger, or a timer fires
    /// (RFC 9293, 3.8.6.2.1), and has nothing in flight meanwhile.
    pub(crate) fn below_a_segment(&self) -> Option<LimitFinding> {
        let mss = self.figures.mss?;
        let windows = self.figures.snapshots().map(|snapshot| snapshot.window);
        let held =
            share_of_votes(windows.map(|window| Some(window? > ByteCount::ZERO && window? < mss)))?;
        let found = LimitFinding::new(ReceiveWindowVerdict::TcpRmemMax, held);
        (held.get() >= MIN_LIMIT_SHARE).then(|| self.cause_of_window(found))
    }

    /// Returns the work of a device on the receiver's windows between two captures.
    fn edited_window(&self) -> Option<ReceiveWindowVerdict> {
        match self.capture.window_edit? {
            WindowEdit::ScaleStripped => Some(ReceiveWindowVerdict::WindowScaleStripped),
            WindowEdit::ScaleRewritten => Some(ReceiveWindowVerdict::WindowScaleRewritten),
            WindowEdit::Lowered => Some(ReceiveWindowVerdict::WindowClamped),
            WindowEdit::Nothing => None,
        }
    }

    /// Returns the end whose SYN was the first without an offer to scale windows: the answer to one
    /// is without it, too.
    fn end_without_scale(&self) -> Option<At> {
        let sender = (At::Sender, self.capture.sender_offers_scale);
        let receiver = (At::Receiver, self.capture.receiver_offers_scale);
        let order = if self.opened_by(At::Sender) {
            [sender, receiver]
        } else {
            [receiver, sender]
        };
        order
            .into_iter()
            .find(|(_, offers)| *offers == Some(false))
            .map(|(end, _)| end)
    }

    fn opened_by(&self, end: At) -> bool {
        self.capture.sender_opened == (end == At::Sender)
    }

    /// Returns the cause of windows that are not scaled, where the SYN of `end` lacks the offer:
    /// that host, if it was captured there, or if no device may have taken it away.
    fn without_scale(&self, end: At, found: &LimitFinding) -> LimitFinding {
        let evidence = self.figures.evidence;
        let settings = if end == At::Sender {
            &evidence.sender
        } else {
            &evidence.receiver
        };
        let is_not_offered = found.as_verdict(ReceiveWindowVerdict::NoWindowScaling);
        if self.capture.point == Some(end) || self.capture.window_edit == Some(WindowEdit::Nothing)
        {
            return is_not_offered;
        }
        match settings.as_ref().map(|host| host.window_scaling) {
            Some(true) => found.as_verdict(ReceiveWindowVerdict::WindowScaleStripped),
            Some(false) => is_not_offered,
            // Its SYN came through as it was sent; what the answer lacks may have been asked for
            // in vain.
            None if self.opened_by(end) => is_not_offered,
            None => is_not_offered.one_of_several(),
        }
    }

    /// Finds a sender that asks for the window again and again, and sends nothing, though the
    /// receiver allows several segments: it takes the window for less than one, by another scale. A
    /// program that pauses asks as well, whether the other end is there.
    pub(crate) fn closed_on_the_way(&self) -> Option<LimitFinding> {
        let flow = self.figures.flows.first()?;
        let (first, last) = (flow.whole.first()?, flow.whole.last()?);
        let is_silent =
            flow.silent_for(|sample| sample.bytes) * 2 >= last.at.saturating_sub(first.at);
        // The window is not known either where no data followed an acknowledgement.
        let few = self.figures.mss? * FEW_SEGMENTS;
        let is_open = last.tcp.snd_wnd.is_none_or(|window| window >= few) && !self.is_at_sender();
        let may_be = self.lacks_handshake() || is_open;
        let found = may_be
            && self.capture.probes >= MIN_PROBES
            && is_silent
            && !self.exceeds_unscaled_window();
        let found = found
            .then(|| LimitFinding::new(ReceiveWindowVerdict::WindowScaleRewritten, Ratio::ONE))?;
        let stripped = ReceiveWindowVerdict::WindowScaleStripped;
        Some(if self.lacks_handshake() {
            found.add_alternative(stripped)
        } else {
            found.one_of_several()
        })
    }

    /// Returns true if more is usually in flight than the field of the window allows without its
    /// scale: the scale reached the sender.
    fn exceeds_unscaled_window(&self) -> bool {
        let most = self.usual_most_in_flight();
        most.is_some_and(|most| self.unscaled_window().is_some_and(|window| most > window))
    }

    /// Returns the last window as its field gives it, without the scale.
    fn unscaled_window(&self) -> Option<ByteCount> {
        let tcp = &self.figures.flows.first()?.whole.last()?.tcp;
        Some(ByteCount::new(tcp.snd_wnd?.get() >> tcp.snd_wscale?))
    }

    /// Finds a window that a device lowers behind this place: data follows acknowledgements, and in
    /// each round trip a packet is cut short where the window ends (`tcp_mss_split_point`). A
    /// buffer holds whole segments; a program that waits after each write looks alike.
    pub(crate) fn lowered_window(&self) -> Option<LimitFinding> {
        let may_be = !self.is_at_sender()
            && !self.trains_are_of_a_pace()
            && self
                .capture
                .clocked
                .is_none_or(|clocked| clocked.get() >= CLOCKED_SHARE)
            && self.drains_queue()
            && !self.ever_lost_on_path()
            && !self.waits_on_path()
            && !self.is_answered_in_each_round_trip();
        let cause = if self.capture.clocked.is_some() && self.cuts_packets()? {
            ReceiveWindowVerdict::WindowClamped
        } else if self.fills_misread_window()
            || (self.was_fuller() && self.follows_acknowledgements() && !self.has_flight_swings())
        {
            // The window of the handshake has no scale: what is sent into it no edit of the scale
            // makes smaller.
            ReceiveWindowVerdict::WindowScaleRewritten
        } else {
            return None;
        };
        may_be.then(|| LimitFinding::new(cause, Ratio::ONE).one_of_several())
    }

    /// Returns true if a packet in each round trip is cut short; `None` if the samples do not show
    /// it.
    pub(super) fn cuts_packets(&self) -> Option<bool> {
        let segments = self.figures.mean_size(|one| one.outstanding)?.as_f64()
            / self.figures.mss?.as_f64().max(1.0);
        Some(self.capture.partial.get() * segments >= MIN_CUT_PACKETS)
    }

    /// Returns true if always as much is in flight as the field of the window allows if it is
    /// shifted by less than the receiver means: to the whole segments that fit it, which are all
    /// that a sender sends into it if it waits for room for a full one (RFC 9293, 3.8.6.2.1). A
    /// buffer is as large by chance.
    fn fills_misread_window(&self) -> bool {
        let may_follow = self
            .capture
            .clocked
            .is_none_or(|clocked| clocked.get() >= CLOCKED_BY_WINDOW);
        self.is_level() && may_follow && self.fits_smaller_scale() == Some(true)
    }

    /// Returns true if as many segments are usually in flight as the window has by a smaller scale.
    fn fits_smaller_scale(&self) -> Option<bool> {
        let mss = self.figures.mss?.get();
        let tcp = &self.figures.flows.first()?.snapshots.last()?.sample.tcp;
        let shift = tcp.snd_wscale.filter(|shift| *shift < 64)?;
        let field = tcp.snd_wnd?.get() >> shift;
        let in_flight = self.usual_most_in_flight()?.get();
        Some(
            in_flight >= mss
                && (0..shift).any(|less| (field << less) / mss == in_flight.div_ceil(mss)),
        )
    }
}
