//! What is said of a limit that the receiving end sees.

use std::collections::BTreeMap;

use fullpipe_model::window;
use fullpipe_record::{
    CapacityVerdict, CongestionWindowVerdict, CpuVerdict, LegalVerdict, Limit, LossVerdict,
    MtuVerdict, PacingVerdict, ReceiveWindowVerdict, SendBufferVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, median};

use crate::finding::Finding;
use crate::limits::application_window::credit::ProgramCredit;
use crate::limits::capacity::allowance::FallenRate;
use crate::limits::capacity::half_duplex;
use crate::limits::loss::receiver_host;
use crate::limits::{LimitFacts, application_window, receive_window};
use crate::signals::arrivals::{ReceiverView, counter_growth};
use crate::signals::syn_quotes;
use crate::text;

impl ReceiverView<'_> {
    pub(crate) fn find_ceilings(&self) -> BTreeMap<Limit, BitRate> {
        let of_window = self
            .usual_window()
            .zip(self.rtt)
            .map(|(size, rtt)| window::rate_of_window(size, rtt));
        let all = [
            (Limit::ReceiveWindow, of_window),
            (
                Limit::ApplicationWindow,
                application_window::window_ceiling(self.evidence, self.rtt),
            ),
            (Limit::Capacity, self.stated_capacity()),
        ];
        all.into_iter()
            .filter_map(|(kind, rate)| Some((kind, rate?)))
            .collect()
    }

    pub(crate) fn explain_finding(&self, finding: &Finding) -> String {
        let (rate, rtt) = (self.rate, self.rtt.unwrap_or_default());
        let window = self.usual_window().unwrap_or_default();
        let comes_evenly = finding.other == Some(SendBufferVerdict::TcpWmemMax.into());
        match finding.verdict {
            LegalVerdict::ReceiverApplication(_) => format!(
                "The program here reads too slowly: data waits in its receive buffer for {} of the time, and only \
                 {rate} arrives.",
                finding.share
            ),
            LegalVerdict::ReceiveWindow(_) if self.moves_nothing() => format!(
                "Next to nothing arrives, though this end allows {window} and the sender has data: it takes the \
                 window for less than a segment, as where a device on the way removes or changes its scale."
            ),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten) => format!(
                "Each round trip of {rtt} brings {} and then nothing, though more came at first, nothing is lost and \
                 this end allows {window}: the sender takes the window for less, as where a device on the way changes \
                 its scale.",
                rate.bytes_in(rtt)
            ),
            LegalVerdict::ReceiveWindow(verdict) => {
                let reason = receive_window::window_reason(
                    verdict,
                    &syn_quotes::device_place(self.evidence),
                );
                format!(
                    "This end, which receives, allows at most {window} in flight ({reason}), and each round trip of \
                     {rtt} brings as much: {rate}."
                )
            }
            LegalVerdict::ApplicationWindow(verdict) => {
                application_window::ApplicationWindowFacts::from_evidence(
                    verdict,
                    self.evidence,
                    rate,
                    self.rtt,
                    ProgramCredit::from_receiver(self),
                )
                .sentence()
            }
            LegalVerdict::Capacity(_)
            | LegalVerdict::Loss(_)
            | LegalVerdict::CongestionWindow(_)
            | LegalVerdict::Mtu(_) => self.sentence_about_path(finding),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) => {
                format!(
                    "The sender was asked for a rate and offered no more: {rate} arrives, and nothing holds it back."
                )
            }
            LegalVerdict::Pacing(_) => {
                format!(
                    "The sender was asked for a maximum pace, and {rate} arrives: it reaches that."
                )
            }
            LegalVerdict::Cpu(_) => format!(
                "This end, which receives, lacks processor time for {} of the time, and only {rate} arrives.",
                finding.share
            ),
            LegalVerdict::SendBuffer(_) => format!(
                "Each round trip of {rtt} brings the same, {}, and then a pause, though this end would take more: a \
                 buffer or window of the sender holds no more.",
                self.rtt.map(|rtt| rate.bytes_in(rtt)).unwrap_or_default()
            ),
            LegalVerdict::SenderApplication(_) if comes_evenly => format!(
                "{rate} arrives evenly, this end could take more, and nothing is lost: the sender has no more to send, \
                 or its buffer holds no more."
            ),
            LegalVerdict::SenderApplication(_)
                if finding.other == Some(CpuVerdict::StolenOfSender.into()) =>
            {
                format!(
                    "The sender is silent for {} of the time, longer than any window explains: its program has nothing to \
                 send, or gets no processor time.",
                    finding.share
                )
            }
            LegalVerdict::SenderApplication(_) => format!(
                "The sender pauses for {} of the time, which a round trip of {rtt} does not explain: its program has \
                 nothing to send, unless round trips take longer under load.",
                finding.share
            ),
            LegalVerdict::Unknown(_) => format!(
                "{rate} arrives, this end could take more, and nothing is lost: only the sender knows what holds it \
                 back."
            ),
        }
    }

    fn sentence_about_path(&self, finding: &Finding) -> String {
        let (rate, rtt) = (self.rate, self.rtt.unwrap_or_default());
        match finding.verdict {
            LegalVerdict::Loss(LossVerdict::ReceiverHost) => {
                receiver_host::sentence_here(&self.evidence.receiver_machine, rate)
            }
            LegalVerdict::Capacity(verdict @ CapacityVerdict::HalfDuplexOfReceiver) => {
                half_duplex::sentence(verdict, self.evidence, rate)
            }
            LegalVerdict::Capacity(CapacityVerdict::Allowance) => {
                FallenRate::from_arrivals(self).map_or_else(String::new, |fallen| fallen.sentence())
            }
            LegalVerdict::Capacity(_) if finding.other == Some(PacingVerdict::Qdisc.into()) => {
                format!(
                    "{rate} arrives evenly, and a queue stands before it: the pipe is full, or a queue of the sending host \
                 that is held to a rate."
                )
            }
            LegalVerdict::Capacity(_) if finding.is_one_of_several => format!(
                "{rate} arrives, and round trips seem to take {rtt}, longer than those of the idle path: the pipe is \
                 full, or the sender pauses."
            ),
            LegalVerdict::Capacity(CapacityVerdict::Shared) => format!(
                "The pipe is full, but not with this transfer alone: {rate} arrives here, and others have the rest."
            ),
            LegalVerdict::Capacity(_) => {
                format!(
                    "The pipe is full: {rate} of data arrives, and more would only lengthen the queue."
                )
            }
            LegalVerdict::Loss(LossVerdict::Random) if finding.is_one_of_several => format!(
                "Data arrives out of order again and again: packets are lost or overtake each other on the path, and \
                 {rate} arrives. Only the sender knows how many were lost."
            ),
            LegalVerdict::Loss(LossVerdict::Random) => format!(
                "Packets are lost again and again, at high rates and at low ones, as by chance, and {rate} arrives. \
                 Only the sender knows how many were lost."
            ),
            LegalVerdict::Loss(LossVerdict::Policer) => format!(
                "Packets are lost again and again, though the path carries faster bursts: a device discards what \
                 exceeds a rate, and {rate} arrives."
            ),
            LegalVerdict::Loss(LossVerdict::ShallowQueue) => format!(
                "Packets are lost again and again, always at the same rate of arrival: a queue on the path or of the \
                 sending host is too short, and {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering) => format!(
                "The sender still recovers from an earlier loss: a round trip of {rtt} brings less than before it, and \
                 {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::EarlyExit) => format!(
                "Each round trip of {rtt} brings a little more than the one before, and nothing is lost: the sender \
                 left slow start early, and adds slowly; {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(_) => format!(
                "The transfer was over before it had speeded up: a sender starts slowly and doubles each round trip \
                 ({rtt})."
            ),
            LegalVerdict::Mtu(MtuVerdict::MssClamped) => format!(
                "Segments hold only {}, though this end would take larger ones: their headers take a part of what the \
                 path carries, of which {rate} is data.",
                text::size_text(self.mss())
            ),
            _ => "No packet of the data arrives, though the connection is open and small packets \
                                     pass: full ones vanish on the path, or the sender sends none."
                .to_owned(),
        }
    }

    /// Returns true if next to nothing arrives in the judged part.
    fn moves_nothing(&self) -> bool {
        self.mss()
            .zip(self.rtt)
            .is_none_or(|(mss, rtt)| self.rate.bytes_in(rtt) * 2 < mss)
    }

    pub(crate) fn shown_figures(&self) -> BTreeMap<String, String> {
        let out_of_order = counter_growth(&self.flows, |tcp| tcp.out_of_order_in)
            .zip(counter_growth(&self.flows, |tcp| tcp.data_segs_in));
        let unread = self
            .snapshots()
            .filter_map(|snapshot| Some(snapshot.memory?.rmem_alloc));
        let unread = median(unread.collect());
        let buffers = self
            .snapshots()
            .filter_map(|snapshot| Some(snapshot.memory?.rcvbuf));
        let buffer = buffers.max();
        let idle = self
            .evidence
            .idle_rtt
            .map_or_else(String::new, |idle| format!(", idle {idle}"));
        let snapshots: usize = self.flows.iter().map(Vec::len).sum();
        [
            ("rate", Some(self.rate.to_string())),
            ("round trip", self.rtt.map(|rtt| format!("{rtt}{idle}"))),
            (
                "round trip with the sender's pauses",
                self.estimate
                    .filter(|_| self.pauses.is_some())
                    .map(|rtt| rtt.to_string()),
            ),
            (
                "own window",
                self.usual_window().map(|window| window.to_string()),
            ),
            (
                "a round trip brings",
                self.rtt.map(|rtt| self.rate.bytes_in(rtt).to_string()),
            ),
            (
                "receive buffer",
                unread
                    .zip(buffer)
                    .map(|(unread, buffer)| format!("{unread} of {buffer}")),
            ),
            (
                "out of order",
                out_of_order.map(|(late, all)| format!("{late} of {all} segments")),
            ),
            (
                "samples",
                Some(text::of_streams(snapshots, self.flows.len())),
            ),
        ]
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
    }
}
