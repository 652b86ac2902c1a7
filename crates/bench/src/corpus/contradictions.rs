//! Verdicts that the packets of their own transfer contradict.

use std::net::SocketAddr;

use fullpipe_record::{CaptureReport, CapturedTransfer, FlowReport, Limit, Verdict};
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use serde::Deserialize;
use serde_json::Value;

use super::witness::{WitnessedConnection, WitnessedEnd, WitnessedTime, Witnesses, ordered_pair};

/// Fewer packets with data permit no more than [`CONFIDENCE_OF_FEW`].
pub(crate) const FEW_PACKETS: u64 = 10;
const CONFIDENCE_OF_FEW: f64 = 0.5;

/// A ceiling of so much of the rate is below it: the rate is a mean over a time that is known to a
/// round trip.
const BELOW_RATE: f64 = 0.8;
/// A ceiling of so many times the rate is no limit of it.
const ABOVE_RATE: f64 = 10.0;

/// Share of the time that contradicts every verdict on something else.
const MOST_OF_TIME: f64 = 0.5;

/// Least time of which a share means something.
const MIN_TIME: Span = Span::from_millis(500);

/// A verdict that its own transfer contradicts: the kind, and the figures.
pub(crate) type Contradiction = (&'static str, String);

/// Returns every verdict of a report that is contradicted, with its connection and the figures.
pub(crate) fn find_contradictions(
    report: &CaptureReport,
    witnesses: &Witnesses,
) -> Vec<Contradiction> {
    let mut found = Vec::new();
    for transfer in &report.transfers {
        let Some(judged) = JudgedTransfer::find(transfer, report, witnesses) else {
            continue;
        };
        let contradictions = judged.contradictions();
        found.extend(
            contradictions
                .into_iter()
                .map(|(kind, why)| (kind, format!("{} {why}", judged.heading()))),
        );
    }
    found
}

/// Returns true if a verdict on so many packets with data claims more than they permit.
pub(crate) fn is_too_sure(verdict: &Verdict, data_packets: u64) -> bool {
    data_packets < FEW_PACKETS
        && verdict.kind != Limit::Unknown
        && verdict.confidence.get() > CONFIDENCE_OF_FEW
}

/// A verdict next to the packets of its transfer.
struct JudgedTransfer<'t> {
    verdict: &'t Verdict,
    first: &'t FlowReport,
    /// The sending ends, and the receiving end of each.
    ends: Vec<[&'t WitnessedEnd; 2]>,
    rtt: Span,
}

impl<'t> JudgedTransfer<'t> {
    /// Returns a transfer with its packets; `None` where another connection of the file has the
    /// same addresses.
    fn find(
        transfer: &'t CapturedTransfer,
        report: &'t CaptureReport,
        witnesses: &'t Witnesses,
    ) -> Option<Self> {
        let flows = report
            .flows
            .iter()
            .filter(|flow| transfer.flows.contains(&flow.number));
        let flows: Vec<&FlowReport> = flows.collect();
        let first = *flows
            .iter()
            .find(|flow| Some(&flow.number) == transfer.flows.first())?;
        // In a transfer over several connections all data goes the way of the first one's.
        let (mut ends, mut rtt) = (Vec::new(), known_rtt(first));
        for flow in flows {
            let (connection, sender) = witness_of(flow, report, witnesses)?;
            rtt = rtt.or(connection.handshake);
            ends.push([&connection.ends[sender], &connection.ends[1 - sender]]);
        }
        Some(Self {
            verdict: &transfer.diagnosis.verdict,
            first,
            ends,
            rtt: rtt.unwrap_or(Span::ZERO),
        })
    }

    fn heading(&self) -> String {
        let [first, second] = &self.first.ends;
        let (number, name, sure) = (
            self.first.number,
            self.verdict.name(),
            self.verdict.confidence,
        );
        format!(
            "{number} {} {} {name} {sure}:",
            first.address, second.address
        )
    }

    fn data_packets(&self) -> u64 {
        self.ends
            .iter()
            .map(|[sender, _]| sender.data_packets)
            .sum()
    }

    /// Returns the time from the first packet with data to the last.
    fn data_time(&self) -> Span {
        let first = self
            .ends
            .iter()
            .filter_map(|[sender, _]| sender.first_data)
            .min();
        let last: Option<Time> = self
            .ends
            .iter()
            .filter_map(|[sender, _]| sender.last_data)
            .max();
        first
            .zip(last)
            .map_or(Span::ZERO, |(first, last)| last.duration_since(first))
    }

    fn rate(&self) -> BitRate {
        let bytes: u64 = self
            .ends
            .iter()
            .map(|[sender, _]| sender.sequence_bytes())
            .sum();
        BitRate::from_bytes_in(ByteCount::new(bytes), self.data_time() + self.rtt)
    }

    fn contradictions(&self) -> Vec<Contradiction> {
        let found = [
            self.disproved_black_hole(),
            self.wrong_ceiling(),
            self.ignored_time(),
            self.loss_of_nothing(),
            self.unseen_options(),
            self.own_account(),
            self.too_sure(),
        ];
        found.into_iter().flatten().collect()
    }

    fn disproved_black_hole(&self) -> Option<Contradiction> {
        let full = self.ends.iter().find(|[sender, _]| {
            sender.largest_acknowledged > 0 && sender.largest_acknowledged == sender.largest
        });
        let [sender, _] = full.filter(|_| self.verdict.name() == "mtu/black-hole")?;
        let why = format!(
            "the largest segment, of {} B, was acknowledged",
            sender.largest
        );
        Some(("black-hole-disproved", why))
    }

    /// Returns the finding where the limit's own ceiling cannot be that of the rate.
    fn wrong_ceiling(&self) -> Option<Contradiction> {
        let (ceiling, rate) = (*self.verdict.ceilings.get(&self.verdict.kind)?, self.rate());
        let packets = self.data_packets();
        let why = format!("a ceiling of {ceiling}, and {rate} in {packets} packets with data");
        match ceiling.relative_to(rate) {
            ratio if ratio < BELOW_RATE => Some(("ceiling-below-rate", why)),
            ratio if ratio > ABOVE_RATE => Some(("ceiling-above-rate", why)),
            _ => None,
        }
    }

    /// Returns the finding where the packets show something else for most of the time, in a
    /// transfer over one connection.
    fn ignored_time(&self) -> Option<Contradiction> {
        let [[sender, _]] = self.ends[..] else {
            return None;
        };
        let whole = sender.data_time();
        let WitnessedTime {
            timeouts,
            closed_window,
            idle,
        } = sender.time;
        let uses = [
            ("timeouts-ignored", timeouts, &[Limit::Loss, Limit::Mtu][..]),
            ("closed-window-ignored", closed_window, &RECEIVER_SIDE),
            (
                "idle-ignored",
                idle,
                &[
                    Limit::SenderApplication,
                    Limit::ApplicationWindow,
                    Limit::Cpu,
                ],
            ),
        ];
        let (kind, time, _) = uses.into_iter().find(|(_, time, allowed)| {
            let share = time.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
            whole >= MIN_TIME && share > MOST_OF_TIME && !self.names_one_of(allowed)
        })?;
        Some((kind, format!("{time} of {whole}")))
    }

    /// Returns true if the verdict or one of its candidates is of one of these kinds, or it claims
    /// nothing.
    fn names_one_of(&self, kinds: &[Limit]) -> bool {
        let verdict = self.verdict;
        let is_candidate = verdict
            .candidates
            .iter()
            .any(|candidate| kinds.contains(&candidate.kind));
        verdict.kind == Limit::Unknown || kinds.contains(&verdict.kind) || is_candidate
    }

    fn loss_of_nothing(&self) -> Option<Contradiction> {
        let shows_loss = self.ends.iter().any(|[sender, _]| sender.shows_loss);
        let is_loss = self.verdict.kind == Limit::Loss && !shows_loss;
        let why = "no gap, no repetition, no duplicate acknowledgement and no SACK".to_owned();
        is_loss.then_some(("loss-without-loss", why))
    }

    /// Returns the finding where a missing offer of scales is the cause, and no whole SYN without
    /// one was captured.
    fn unseen_options(&self) -> Option<Contradiction> {
        const OF_SCALE: [&str; 2] = [
            "receive-window/no-window-scaling",
            "receive-window/window-scale-stripped",
        ];
        let mut syns = self.ends.iter().flatten().filter_map(|end| end.syn);
        let is_seen = syns.any(|syn| syn.is_whole && !syn.offers_scale);
        let why = "no whole SYN without a scale is in the capture".to_owned();
        (OF_SCALE.contains(&self.verdict.name()) && !is_seen).then_some(("unseen-options", why))
    }

    /// Returns the finding if the verdict's own account of time contradicts it: the limit holds for
    /// less than a tenth of the time, or more than half of it went into something else.
    fn own_account(&self) -> Option<Contradiction> {
        const LEAST_SHARE: f64 = 0.1;
        if self.verdict.kind == Limit::Unknown {
            return None;
        }
        if self.verdict.share.get() < LEAST_SHARE {
            return Some((
                "own-account",
                format!("holds for {} of the time", self.verdict.share),
            ));
        }
        let (used_for, share) = main_use_of_time(serde_json::to_value(self.verdict).ok()?)?;
        let (_, kinds) = KINDS_BY_USE.iter().find(|(name, _)| *name == used_for)?;
        let is_contradicted = share > MOST_OF_TIME && !self.names_one_of(kinds);
        let why = format!("{:.0} % of its account is {used_for}", share * 100.0);
        is_contradicted.then_some(("own-account", why))
    }

    fn too_sure(&self) -> Option<Contradiction> {
        let packets = self.data_packets();
        let why = format!("{packets} packets with data");
        is_too_sure(self.verdict, packets).then_some(("too-sure", why))
    }
}

/// The limits that a use of time shows, by its name in the account of a verdict.
const KINDS_BY_USE: [(&str, &[Limit]); 6] = [
    ("retransmission-timeout", &[Limit::Loss, Limit::Mtu]),
    ("window-closed", &RECEIVER_SIDE),
    (
        "nothing-to-send",
        &[
            Limit::SenderApplication,
            Limit::ApplicationWindow,
            Limit::Cpu,
        ],
    ),
    (
        "send-buffer",
        &[Limit::SendBuffer, Limit::ApplicationWindow],
    ),
    (
        "pacing",
        &[Limit::Pacing, Limit::Capacity, Limit::SenderApplication],
    ),
    (
        "path-queue",
        &[Limit::Capacity, Limit::Loss, Limit::CongestionWindow],
    ),
];

/// Returns the largest use of time of the account in the JSON of a verdict, whose names only grow,
/// and its share; `None` without an account.
fn main_use_of_time(verdict: Value) -> Option<(String, f64)> {
    #[derive(Deserialize)]
    struct Account {
        where_time_went: Vec<TimeUse>,
    }
    #[derive(Deserialize)]
    struct TimeUse {
        used_for: String,
        share: f64,
    }
    let account: Account = serde_json::from_value(verdict).ok()?;
    let uses = account
        .where_time_went
        .into_iter()
        .filter(|one| one.used_for != "after-transfer");
    let main = uses.max_by(|one, other| one.share.total_cmp(&other.share))?;
    Some((main.used_for, main.share))
}

/// Limits whose sign is a window that closes.
const RECEIVER_SIDE: [Limit; 4] = [
    Limit::ReceiverApplication,
    Limit::ReceiveWindow,
    Limit::Cpu,
    Limit::ApplicationWindow,
];

/// Returns the least round trip that the packets of a connection show, of both directions together.
fn known_rtt(flow: &FlowReport) -> Option<Span> {
    let least = flow
        .ends
        .iter()
        .filter_map(|end| end.rtt.map(|rtt| rtt.least));
    least.reduce(|first, second| first + second)
}

/// Returns the packets of a connection and the index of its sender among their ends; `None` where
/// another connection has the same addresses.
fn witness_of<'w>(
    flow: &FlowReport,
    report: &CaptureReport,
    witnesses: &'w Witnesses,
) -> Option<(&'w WitnessedConnection, usize)> {
    let addresses = parsed_addresses(flow)?;
    let same = |other: &&FlowReport| {
        let [first, second] = addresses;
        parsed_addresses(other)
            .is_some_and(|other| other == [first, second] || other == [second, first])
    };
    if report.flows.iter().filter(same).count() > 1 {
        return None;
    }
    let (pair, first) = ordered_pair(addresses[0], addresses[1]);
    let sender = if flow.sender_index() == 0 {
        first
    } else {
        1 - first
    };
    Some((witnesses.get(&pair)?, sender))
}

/// Returns the addresses of both ends of a connection.
pub(crate) fn parsed_addresses(flow: &FlowReport) -> Option<[SocketAddr; 2]> {
    let [first, second] = flow.ends.each_ref().map(|end| end.address.parse().ok());
    Some([first?, second?])
}

#[cfg(test)]
mod tests {
    use super::super::witness::read_witnesses;
    use super::*;
    use crate::corpus::simulated_capture;
    use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
    use fullpipe_record::LegalVerdict;
    use fullpipe_trace::ExplainedTransfers;
    use fullpipe_units::Ratio;
    use std::sync::atomic::AtomicBool;

    /// Returns the findings on a clean transfer of a megabyte at 20 Mbit/s under another verdict.
    fn findings_on(change: impl FnOnce(&mut Verdict)) -> Vec<&'static str> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), simulated_capture()).unwrap();
        let never = AtomicBool::new(false);
        let known = KnownFacts::default();
        let judged = judge_files(
            file.path(),
            None,
            ExplainedTransfers::Largest(1),
            &known,
            Interrupt(&never),
        );
        let mut report = judged.unwrap();
        change(&mut report.transfers[0].diagnosis.verdict);
        let witnesses = read_witnesses(file.path()).unwrap();
        find_contradictions(&report, &witnesses)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    }

    fn name_verdict(verdict: &mut Verdict, name: &str) {
        let legal = LegalVerdict::from_name(name).unwrap();
        (verdict.kind, verdict.cause, verdict.at) =
            (legal.limit_kind(), legal.limit_cause(), legal.limit_place());
        verdict.share = Ratio::ONE;
        verdict.ceilings.clear();
        verdict.candidates.clear();
        verdict.where_time_went.clear();
    }

    #[test]
    fn a_verdict_that_the_packets_contradict_is_found() {
        let wrong = [
            ("mtu/black-hole", "black-hole-disproved"),
            ("loss/random", "loss-without-loss"),
            ("receive-window/no-window-scaling", "unseen-options"),
        ];
        for (name, kind) in wrong {
            assert_eq!(
                findings_on(|verdict| name_verdict(verdict, name)),
                [kind],
                "{name}"
            );
        }
        assert!(findings_on(|verdict| name_verdict(verdict, "capacity/link")).is_empty());
    }

    #[test]
    fn a_ceiling_must_be_that_of_the_rate() {
        let with_ceiling = |mbps: f64| {
            findings_on(|verdict| {
                name_verdict(verdict, "receive-window/so-rcvbuf");
                verdict
                    .ceilings
                    .insert(Limit::ReceiveWindow, BitRate::from_bps_f64(mbps * 1e6));
            })
        };
        assert_eq!(with_ceiling(5.0), ["ceiling-below-rate"]);
        assert!(with_ceiling(20.0).is_empty());
        assert_eq!(with_ceiling(500.0), ["ceiling-above-rate"]);
    }

    #[test]
    fn the_main_use_of_time_is_that_of_the_transfer() {
        let one = |used_for: &str, share: f64| serde_json::json!({"used_for": used_for, "share": share, "time": 0});
        let uses = [
            one("after-transfer", 9.0),
            one("pacing", 0.3),
            one("retransmission-timeout", 0.7),
        ];
        let verdict = serde_json::json!({"kind": "loss", "where_time_went": uses});
        assert_eq!(
            main_use_of_time(verdict),
            Some(("retransmission-timeout".to_owned(), 0.7))
        );
        assert_eq!(main_use_of_time(serde_json::json!({"kind": "loss"})), None);
    }

    #[test]
    fn few_packets_permit_half_of_the_confidence() {
        let judged_as = |name: &str, confidence: f64| {
            let mut found = None;
            findings_on(|verdict| {
                name_verdict(verdict, name);
                verdict.confidence = Ratio::new(confidence);
                found = Some([9, 10].map(|packets| is_too_sure(verdict, packets)));
            });
            found.unwrap()
        };
        assert_eq!(judged_as("capacity/link", 0.96), [true, false]);
        assert_eq!(judged_as("capacity/link", 0.5), [false, false]);
        assert_eq!(judged_as("unknown/evidence-missing", 0.96), [false, false]);
    }
}
