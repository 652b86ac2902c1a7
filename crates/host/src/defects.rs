//! Known defects of kernels that slow transfers down, by version.

use fullpipe_record::{At, KernelDefect, KernelVersion, Verdict};

/// A defect, the kernels that have it, and the limits that it is behind.
struct KnownDefect {
    since: KernelVersion,
    fixed: KernelVersion,
    effect: &'static str,
    source: &'static str,
    /// The end whose kernel it is.
    at: At,
    /// Names of the limits that it may be behind.
    limits: &'static [&'static str],
}

/// All that are known. Distributions may have fixed one earlier.
const DEFECTS: [KnownDefect; 3] = [
    KnownDefect {
        since: KernelVersion::new(6, 16),
        fixed: KernelVersion::new(6, 18),
        effect: "receive buffers that the kernel tunes grow too slowly, and the window holds the sender back meanwhile",
        source: "65c5287892e9, fixed by aa251c84636c",
        at: At::Receiver,
        limits: &[
            "receive-window/tcp-rmem-max",
            "receive-window/autotuning-stalled",
            "congestion-window/ramp-up",
        ],
    },
    KnownDefect {
        since: KernelVersion::new(6, 6),
        fixed: KernelVersion {
            major: 6,
            minor: 10,
            patch: 4,
        },
        effect: "a receive buffer that a program fixes (SO_RCVBUF) is advertised to a quarter, not to a half or more",
        source: "dfa2f0483360, fixed by 05f76b2d634e",
        at: At::Receiver,
        limits: &["receive-window/so-rcvbuf"],
    },
    KnownDefect {
        since: KernelVersion::new(5, 2),
        fixed: KernelVersion::new(5, 3),
        effect: "with a small send buffer (SO_SNDBUF), losses are not repaired before a timeout (TCPWqueueTooBig)",
        source: "f070ef2ac667, fixed by b617158dc096",
        at: At::Sender,
        limits: &[
            "send-buffer/so-sndbuf",
            "loss/random",
            "congestion-window/recovering",
        ],
    },
];

impl KnownDefect {
    /// Returns the report of the defect, if `kernel` has it.
    fn report_in(&self, kernel: KernelVersion) -> Option<KernelDefect> {
        let is_in = (self.since..self.fixed).contains(&kernel);
        is_in.then(|| KernelDefect {
            kernel,
            at: self.at,
            effect: self.effect.to_owned(),
            fixed: self.fixed,
            source: self.source.to_owned(),
        })
    }
}

/// Returns the known defects of a kernel.
pub(crate) fn known_defects(kernel: KernelVersion) -> Vec<KernelDefect> {
    DEFECTS
        .iter()
        .filter_map(|defect| defect.report_in(kernel))
        .collect()
}

/// Returns the known defects that may be behind a limit, of the kernels of the sender and of the
/// receiver where those are known.
pub fn defects_behind(verdict: &Verdict, kernels: [Option<KernelVersion>; 2]) -> Vec<KernelDefect> {
    let name = verdict.name();
    DEFECTS
        .iter()
        .filter(|defect| defect.limits.contains(&name))
        .filter_map(|defect| defect.report_in(kernels[usize::from(defect.at == At::Receiver)]?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::LegalVerdict;

    #[test]
    fn a_defect_is_known_between_the_version_that_brought_it_and_the_one_that_fixed_it() {
        let count = |major, minor, patch| {
            known_defects(KernelVersion {
                major,
                minor,
                patch,
            })
            .len()
        };
        assert_eq!(
            [
                count(5, 15, 0),
                count(6, 12, 0),
                count(6, 18, 0),
                count(7, 0, 0)
            ],
            [0; 4]
        );
        assert_eq!(
            [count(6, 6, 30), count(6, 10, 3), count(6, 10, 4)],
            [1, 1, 0]
        );
        assert_eq!(
            known_defects(KernelVersion::new(6, 17))[0].fixed,
            KernelVersion::new(6, 18)
        );
    }

    #[test]
    fn each_limit_of_a_defect_has_a_page() {
        let names = DEFECTS.iter().flat_map(|defect| defect.limits);
        assert!(
            names
                .into_iter()
                .all(|name| LegalVerdict::from_name(name).is_some())
        );
    }
}
