//! Verdicts that one view of a transfer cannot distinguish.

use fullpipe_record::{
    ApplicationWindowVerdict, Basis, Candidate, CapacityVerdict, CongestionWindowVerdict, CpuVerdict, LegalVerdict,
    LossVerdict, MtuVerdict, PacingVerdict, ReceiveWindowVerdict, ReceiverApplicationVerdict, SendBufferVerdict,
    SenderApplicationVerdict,
};

use crate::finding::Finding;

/// A set of verdicts, one of which is right, and what would show which.
struct CandidateSet {
    view: Basis,
    /// At most three.
    verdicts: &'static [LegalVerdict],
    would_distinguish: &'static str,
}

/// Every set. A finding of [`Finding::one_of_several`] is in one of its view.
const TABLE: [CandidateSet; 37] = [
    CandidateSet {
        view: Basis::Receiver,
        verdicts: &[
            LegalVerdict::Loss(LossVerdict::Random),
            LegalVerdict::Loss(LossVerdict::Policer),
            LegalVerdict::Loss(LossVerdict::ShallowQueue),
        ],
        would_distinguish: "the sender's congestion window before each loss, and how much was lost at once",
    },
    CandidateSet {
        view: Basis::Receiver,
        verdicts: &[
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::SendBuffer(SendBufferVerdict::SoSndbuf),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "what waits in the sender's buffer (ss -tnm)",
    },
    CandidateSet {
        view: Basis::Receiver,
        verdicts: &[
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::Capacity(CapacityVerdict::Shared),
            LegalVerdict::Capacity(CapacityVerdict::Link),
        ],
        would_distinguish: "round-trip times next to the transfer (ping), or a capture at the sender",
    },
    CandidateSet {
        view: Basis::Receiver,
        verdicts: &[
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
        ],
        would_distinguish: "round-trip times next to the transfer (ping), or a capture at the sender",
    },
    CandidateSet {
        view: Basis::Receiver,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        would_distinguish: "tcp_window_scaling at the sender, or the SYN as it left one end and reached the other",
    },
    CandidateSet {
        view: Basis::Sender,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        would_distinguish: "tcp_window_scaling at the receiver, or the SYN as it left one end and reached the other",
    },
    CandidateSet {
        view: Basis::Sender,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
        ],
        would_distinguish: "tcp_rmem at the receiver, and whether its program sets SO_RCVBUF",
    },
    CandidateSet {
        view: Basis::Sender,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
        ],
        would_distinguish: "the window scale as it left the receiver and as it came, and whether its program sets \
                            SO_RCVBUF",
    },
    CandidateSet {
        view: Basis::Sender,
        verdicts: &[
            LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::SlowReader),
            LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::Storage),
            LegalVerdict::Cpu(CpuVerdict::StolenOfReceiver),
        ],
        would_distinguish: "what the receiving program waits for, and the processor time that it gets",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        would_distinguish: "the SYN as it left one end and reached the other: a capture of the other end",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
            LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::SlowReader),
        ],
        would_distinguish: "tcp_rmem at the receiver, whether its program sets SO_RCVBUF, and what it leaves unread",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
        ],
        would_distinguish: "tcp_rmem at the receiver, and whether its program sets SO_RCVBUF",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::SlowReader),
            LegalVerdict::ReceiverApplication(ReceiverApplicationVerdict::Storage),
            LegalVerdict::Cpu(CpuVerdict::StolenOfReceiver),
        ],
        would_distinguish: "what the receiving program waits for, and the processor time that it gets",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::Cpu(CpuVerdict::StolenOfSender),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
        ],
        would_distinguish: "what the sending program waits for, the processor time that it gets, and the drops of the \
                            queue of its device",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SendBuffer(SendBufferVerdict::SoSndbuf),
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
        ],
        would_distinguish: "tcp_wmem at the sender, whether its program sets SO_SNDBUF, and the drops of its device's \
                            queue (tc -s qdisc)",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ApplicationWindow(ApplicationWindowVerdict::SshChannelOfReceiver),
            LegalVerdict::SendBuffer(SendBufferVerdict::SoSndbuf),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "which programs these are, and what waits in the sender's buffer (ss -tnm)",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
        ],
        would_distinguish: "the queueing discipline of the sender's device and its drops, and what its program does",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[LegalVerdict::Mtu(MtuVerdict::MssClamped), LegalVerdict::Capacity(CapacityVerdict::Link)],
        would_distinguish: "the MTU of both hosts' devices, or the SYN as it left one end and reached the other",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::EarlyExit),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
            LegalVerdict::Cpu(CpuVerdict::StolenOfSender),
        ],
        would_distinguish: "the drops of the queue of the sender's device, ssthresh (ss -ti), and its processor time",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "a capture at the sender, which shows the windows that reach it",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
        ],
        would_distinguish: "a capture at the sender, and what waits in its buffer (ss -tnm)",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
        ],
        would_distinguish: "what waits in the sender's buffer (ss -tnm), and the queueing discipline of its device \
                            with its drops (tc -s qdisc)",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "a capture at the sender, which shows the windows that reach it, and what waits in its \
                            buffer (ss -tnm)",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "a capture at the sender, which shows the scale that reaches it",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "a capture with the handshake, from both ends",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
        ],
        would_distinguish: "a capture with the handshake, which shows the scale of the windows",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
        ],
        would_distinguish: "a capture with the handshake, which shows the scale of the windows",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Pacing(PacingVerdict::MaxPacingRate),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "the queueing discipline of the sender's device, whether its program sets a pace, and what \
                            it waits for",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Capacity(CapacityVerdict::Link),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
            LegalVerdict::Loss(LossVerdict::Policer),
        ],
        would_distinguish: "a capture at the sender",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Loss(LossVerdict::Random),
            LegalVerdict::Capacity(CapacityVerdict::Shared),
            LegalVerdict::Capacity(CapacityVerdict::Link),
        ],
        would_distinguish: "round-trip times under load: a capture at the sender, or one with timestamps",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
            LegalVerdict::Pacing(PacingVerdict::CongestionControl),
        ],
        would_distinguish: "a capture at the sender",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[LegalVerdict::Capacity(CapacityVerdict::Shared), LegalVerdict::Pacing(PacingVerdict::Qdisc)],
        would_distinguish: "a capture at the sender",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Loss(LossVerdict::ShallowQueue),
            LegalVerdict::Loss(LossVerdict::Policer),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
        ],
        would_distinguish: "a capture at the sender",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Loss(LossVerdict::Policer),
            LegalVerdict::Loss(LossVerdict::ShallowQueue),
            LegalVerdict::Capacity(CapacityVerdict::HostQueue),
        ],
        would_distinguish: "a capture at the sender",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
            LegalVerdict::Cpu(CpuVerdict::StolenOfSender),
        ],
        would_distinguish: "what the sending program waits for, and the processor time that it gets",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited),
            LegalVerdict::Pacing(PacingVerdict::MaxPacingRate),
            LegalVerdict::Pacing(PacingVerdict::Qdisc),
        ],
        would_distinguish: "whether the sender's program sets a pace, and the queueing discipline of its device",
    },
    CandidateSet {
        view: Basis::Capture,
        verdicts: &[
            LegalVerdict::Mtu(MtuVerdict::BlackHole),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle),
        ],
        would_distinguish: "a capture at the other end",
    },
];

/// Returns the verdicts that `view` cannot distinguish from `found`, itself first, and what would show which is right;
/// none where the evidence decides.
pub(crate) fn candidates(view: Basis, found: &Finding) -> (Vec<Candidate>, Option<String>) {
    let sets = || TABLE.iter().filter(|set| set.view == view && found.is_one_of_several);
    let has_other = |set: &&CandidateSet| found.other.is_none_or(|other| set.verdicts.contains(&other));
    let own = sets().find(|set| set.verdicts.first() == Some(&found.verdict) && has_other(set));
    let Some(set) = own.or_else(|| sets().find(|set| set.verdicts.contains(&found.verdict))) else {
        return (Vec::new(), None);
    };
    let others = set.verdicts.iter().copied().filter(|verdict| *verdict != found.verdict);
    let all = std::iter::once(found.verdict).chain(others).map(Candidate::from).collect();
    (all, Some(set.would_distinguish.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Ratio;

    #[test]
    fn no_set_has_more_than_three_and_a_finding_has_one_of_a_view() {
        for (index, set) in TABLE.iter().enumerate() {
            assert!((2..=3).contains(&set.verdicts.len()));
            for other in TABLE[index + 1..].iter().filter(|other| other.view == set.view) {
                let differs = other.verdicts.iter().any(|verdict| !set.verdicts.contains(verdict));
                assert!(differs || other.verdicts[0] != set.verdicts[0], "nothing chooses one of two sets of a view");
                // Of these views the rules choose the set by its first verdict and another one.
                let by_another = matches!(set.view, Basis::Capture | Basis::Receiver);
                assert!(by_another || other.verdicts[0] != set.verdicts[0], "the first verdict alone chooses");
            }
        }
    }

    #[test]
    fn a_finding_that_is_sure_has_no_candidates_and_another_is_the_first() {
        let sure = Finding::new(LossVerdict::Policer, Ratio::ONE);
        assert!(candidates(Basis::Receiver, &sure).0.is_empty());
        let unsure = sure.one_of_several();
        assert!(candidates(Basis::BothEnds, &unsure).0.is_empty(), "the view decides");
        let (all, would_distinguish) = candidates(Basis::Receiver, &unsure);
        assert_eq!((all.len(), all[0]), (3, Candidate::from(LegalVerdict::from(LossVerdict::Policer))));
        assert!(would_distinguish.is_some());
    }
}
