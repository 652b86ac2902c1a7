//! The limits that captures of a case show, against the one that was planted.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
use fullpipe_record::{At, Verdict};
use fullpipe_trace::ExplainedTransfers;
use fullpipe_units::BitRate;

use crate::statistics::{confusion, lower_bound};

/// A case of which there are captures.
#[derive(Debug)]
pub(crate) struct Captured<'c> {
    pub(crate) name: &'c str,
    /// Kind and cause that were planted.
    pub(crate) expected: &'c str,
    /// The capacity of the path, if it is stated.
    pub(crate) bandwidth: Option<BitRate>,
    /// The transfer in which the limit was planted.
    pub(crate) explained: ExplainedTransfers<'static>,
}

/// The captures that a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Sender,
    Receiver,
    /// On the way.
    Middle,
    BothEnds,
}

/// Every one, in the order of the score.
const ALL: [Taken; 4] = [
    Taken::Sender,
    Taken::Receiver,
    Taken::Middle,
    Taken::BothEnds,
];

/// The verdict on the captures of a case.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) taken: Taken,
    pub(crate) expected: String,
    pub(crate) name: String,
    pub(crate) verdict: Option<Verdict>,
    /// The place of one file by its packets.
    pub(crate) point: Option<At>,
    /// Address and port of the end that sent the data.
    pub(crate) sender: Option<String>,
}

impl Captured<'_> {
    /// Returns what `trace` makes of one file, or of two; `None` where one is not there or has no
    /// connection: the far host sees nothing of a transfer over the near one's loopback.
    pub(crate) fn seen(&self, taken: Taken, first: &Path, second: Option<&Path>) -> Option<Seen> {
        let never = AtomicBool::new(false);
        let known = KnownFacts {
            bandwidth: self.bandwidth,
            ..KnownFacts::default()
        };
        let report = judge_files(first, second, self.explained, &known, Interrupt(&never)).ok()?;
        if report.flows.is_empty()
            || report
                .other
                .as_ref()
                .is_some_and(|other| other.flows.is_empty())
        {
            return None;
        }
        let transfer = report.transfers.into_iter().next();
        let number = transfer
            .as_ref()
            .and_then(|transfer| transfer.flows.first().copied());
        let flow = report.flows.iter().find(|flow| Some(flow.number) == number);
        let sender = flow.map(|flow| flow.ends[flow.sender_index()].address.clone());
        let diagnosis = transfer.map(|transfer| transfer.diagnosis);
        let evidence = diagnosis
            .as_ref()
            .and_then(|diagnosis| diagnosis.evidence.as_ref());
        let point = evidence.and_then(|evidence| evidence.capture?.point);
        let (expected, name) = (self.expected.to_owned(), self.name.to_owned());
        Some(Seen {
            taken,
            expected,
            name,
            point,
            sender,
            verdict: diagnosis.map(|diagnosis| diagnosis.verdict),
        })
    }
}

impl Taken {
    /// Returns the place of one capture.
    fn point(self) -> Option<At> {
        match self {
            Self::Sender => Some(At::Sender),
            Self::Receiver => Some(At::Receiver),
            Self::Middle => Some(At::Path),
            Self::BothEnds => None,
        }
    }
}

impl Seen {
    pub(crate) fn said(&self) -> &str {
        self.verdict.as_ref().map_or("none", Verdict::name)
    }

    /// Returns whether the kind is right, or a candidate has it.
    pub(crate) fn is_right(&self) -> bool {
        self.verdict
            .as_ref()
            .is_some_and(|verdict| is_right(verdict, &self.expected))
    }

    /// It in a line.
    pub(crate) fn line(&self) -> String {
        let mark = if self.is_right() { "right" } else { "WRONG" };
        let place = match (self.taken.point(), self.point) {
            (None, _) => "",
            (taken, point) if taken == point => "",
            (_, Some(_)) => " (captured elsewhere)",
            (_, None) => " (place unknown)",
        };
        let many = self
            .verdict
            .as_ref()
            .map_or(0, |verdict| verdict.candidates.len());
        let others = if many > 0 {
            format!(" (one of {many})")
        } else {
            String::new()
        };
        let sentence = self
            .verdict
            .as_ref()
            .map_or("", |verdict| &verdict.sentence);
        format!(
            "  {mark} {:?} {}: {}{others}{place}: {sentence}\n",
            self.taken,
            self.name,
            self.said()
        )
    }
}

/// Returns whether a verdict has the kind of `expected`, or a candidate of it has.
pub(crate) fn is_right(verdict: &Verdict, expected: &str) -> bool {
    let mut candidates = verdict.candidates.iter();
    kind(verdict.name()) == kind(expected)
        || candidates.any(|candidate| candidate.kind.name() == kind(expected))
}

fn kind(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Returns what was seen, by the captures that were read.
pub(crate) fn by_place<'s>(seen: &[&'s Seen]) -> impl Iterator<Item = (Taken, Vec<&'s Seen>)> {
    let of_place = |taken: Taken| {
        (
            taken,
            seen.iter()
                .copied()
                .filter(|seen| seen.taken == taken)
                .collect::<Vec<_>>(),
        )
    };
    ALL.map(of_place)
        .into_iter()
        .filter(|(_, seen)| !seen.is_empty())
}

/// Share of right kinds by the captures that were read, in a line each.
pub(crate) fn short_score(seen: &[&Seen]) -> String {
    let of_place = |(taken, of_place): (Taken, Vec<&Seen>)| {
        let (right, all) = (
            of_place.iter().filter(|seen| seen.is_right()).count(),
            of_place.len(),
        );
        let [share, least] =
            [right as f64 / all as f64, lower_bound(right, all)].map(|share| share * 100.0);
        format!(
            "Captured at {taken:?}: {right} of {all} right in kind ({share:.0} %, at least {least:.0} %)\n"
        )
    };
    by_place(seen).map(of_place).collect()
}

/// Share of right kinds by the captures that were read, with the causes that were confused.
pub(crate) fn score(seen: &[&Seen]) -> String {
    let mut text = String::new();
    for (taken, of_place) in by_place(seen) {
        let right = of_place.iter().filter(|seen| seen.is_right()).count();
        let share = |count: usize| count as f64 / of_place.len() as f64 * 100.0;
        let placed = taken.point().map_or_else(String::new, |place| {
            let placed = of_place
                .iter()
                .filter(|seen| seen.point == Some(place))
                .count();
            let elsewhere = of_place
                .iter()
                .filter(|seen| seen.point.is_some_and(|point| point != place))
                .count();
            format!(
                "; place found in {:.0} %, wrong in {elsewhere}",
                share(placed)
            )
        });
        let _ = writeln!(
            text,
            "\nCaptured at {taken:?}: {right} of {} right in kind ({:.0} %, at least {:.0} %){placed}\n",
            of_place.len(),
            share(right),
            lower_bound(right, of_place.len()) * 100.0,
        );
        let said = |seen: &Seen| {
            if seen.is_right() {
                seen.expected.clone()
            } else {
                seen.said().to_owned()
            }
        };
        text += &confusion(
            of_place
                .iter()
                .map(|seen| (seen.expected.as_str(), said(seen))),
        );
    }
    text
}
