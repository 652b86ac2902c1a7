//! What is wrong with a verdict or a count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The kinds of findings, each with its name on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingKind {
    /// A black hole, though a full-sized segment was acknowledged.
    BlackHoleDisproved,
    /// The limit's own ceiling is below the rate.
    CeilingBelowRate,
    /// The limit's own ceiling is far above the rate.
    CeilingAboveRate,
    /// Most of the time passed in waits for a retransmission, and the verdict is another.
    TimeoutsIgnored,
    /// The window was closed for most of the time, and the verdict is another.
    ClosedWindowIgnored,
    /// The sender had nothing to send for most of the time, and the verdict is another.
    IdleIgnored,
    /// A loss, though no packet was lost.
    LossWithoutLoss,
    /// The verdict is on options of a SYN that the capture lacks.
    UnseenOptions,
    /// The account of the verdict gives most of the time to something else.
    OwnAccount,
    /// More confidence than the number of packets permits.
    TooSure,
    /// The program panicked.
    Panic,
    /// Another reader finds connections in a file that is not read here, or without a word.
    NotRead,
    /// Another reader counts other connections.
    Connections,
    /// Another reader counts other bytes.
    Bytes,
    /// Another reader counts other retransmissions.
    Retransmissions,
    /// Another reader counts other zero windows.
    ZeroWindows,
}

impl FindingKind {
    /// Returns the name on the screen.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BlackHoleDisproved => "black-hole-disproved",
            Self::CeilingBelowRate => "ceiling-below-rate",
            Self::CeilingAboveRate => "ceiling-above-rate",
            Self::TimeoutsIgnored => "timeouts-ignored",
            Self::ClosedWindowIgnored => "closed-window-ignored",
            Self::IdleIgnored => "idle-ignored",
            Self::LossWithoutLoss => "loss-without-loss",
            Self::UnseenOptions => "unseen-options",
            Self::OwnAccount => "own-account",
            Self::TooSure => "too-sure",
            Self::Panic => "panic",
            Self::NotRead => "not-read",
            Self::Connections => "connections",
            Self::Bytes => "bytes",
            Self::Retransmissions => "retransmissions",
            Self::ZeroWindows => "zero-windows",
        }
    }
}

/// A finding of one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) kind: FindingKind,
    /// Path of the capture.
    pub(crate) file: String,
    /// The connection, the verdict and the figures, in a line.
    pub(crate) detail: String,
}

impl Finding {
    /// Returns the finding in a line.
    pub(crate) fn line(&self) -> String {
        format!("{:<22} {}: {}\n", self.kind.name(), self.file, self.detail)
    }
}

/// Returns the number of findings and of files of each kind, in a line each.
pub(crate) fn summary_text(findings: &[Finding]) -> String {
    let mut by_kind: BTreeMap<FindingKind, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for finding in findings {
        let (count, files) = by_kind.entry(finding.kind).or_default();
        *count += 1;
        files.insert(&finding.file);
    }
    let mut text = String::new();
    for (kind, (count, files)) in by_kind {
        let _ = writeln!(
            text,
            "{:<22} {count:>6} in {} files",
            kind.name(),
            files.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_by_kind_and_by_file() {
        let of_file = |file: &str| Finding {
            kind: FindingKind::TooSure,
            file: file.to_owned(),
            detail: "four packets".to_owned(),
        };
        let summary = summary_text(&[of_file("a"), of_file("a"), of_file("b")]);
        assert_eq!(summary, format!("{:<22}      3 in 2 files\n", "too-sure"));
        assert!(of_file("a").line().ends_with("a: four packets\n"));
    }
}
