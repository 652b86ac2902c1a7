//! Verdicts that one view of a transfer cannot distinguish.

use fullpipe_record::{
    ApplicationWindowVerdict, Basis, Candidate, CapacityVerdict, CongestionWindowVerdict,
    CpuVerdict, LegalVerdict, LossVerdict, MtuVerdict, PacingVerdict, ReceiveWindowVerdict,
    ReceiverApplicationVerdict, SendBufferVerdict, SenderApplicationVerdict,
};

use LegalVerdict::{
    ApplicationWindow, Capacity, CongestionWindow, Cpu, Loss, Mtu, Pacing, ReceiveWindow,
    ReceiverApplication, SendBuffer, SenderApplication,
};

use crate::finding::LimitFinding;

/// A set of verdicts, one of which is right, and what would show which.
struct CandidateSet {
    /// At most four.
    verdicts: &'static [LegalVerdict],
    would_distinguish: &'static str,
}

const fn set(verdicts: &'static [LegalVerdict], would_distinguish: &'static str) -> CandidateSet {
    CandidateSet {
        verdicts,
        would_distinguish,
    }
}

/// Returns every set of a view, for a finding that names another verdict of its set or for one that
/// does not. A finding of [`LimitFinding::one_of_several`] is in one of its view.
fn sets_of(view: Basis, names_other: bool) -> impl Iterator<Item = &'static CandidateSet> {
    let (of_sending_end, own): (&[CandidateSet], &[CandidateSet]) = match view {
        Basis::BothEnds => (&OF_SENDING_END, &[]),
        Basis::Sender => (&OF_SENDING_END, &OF_SENDER),
        Basis::Receiver => (&[], &OF_RECEIVER),
        Basis::Capture => (&[], &OF_CAPTURE),
    };
    of_sending_end
        .iter()
        .filter(move |_| names_other)
        .chain(own)
}

/// What the figures of the sending end leave open, with those of the receiving end or without.
const OF_SENDING_END: [CandidateSet; 8] = [
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::Recovering),
            Loss(LossVerdict::ShallowQueue),
            Loss(LossVerdict::Policer),
        ],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a queue",
    ),
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::Recovering),
            Loss(LossVerdict::Random),
            Loss(LossVerdict::ShallowQueue),
        ],
        "a longer transfer (-t 60): whether losses come again, and at which window",
    ),
    set(
        &[Loss(LossVerdict::Policer), Loss(LossVerdict::ShallowQueue)],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a queue",
    ),
    set(
        &[
            Capacity(CapacityVerdict::Allowance),
            Capacity(CapacityVerdict::Shared),
        ],
        "a second transfer after a rest, which has the higher rate again, and the counters of the device (ethtool -S)",
    ),
    set(
        &[
            Capacity(CapacityVerdict::PerFlowLimit),
            Capacity(CapacityVerdict::Shared),
        ],
        "transfers of one connection and of twice as many: whether each keeps its rate",
    ),
    set(
        &[
            Capacity(CapacityVerdict::PerFlowLimit),
            Loss(LossVerdict::Policer),
        ],
        "transfers of one connection and of twice as many: whether each keeps its rate",
    ),
    set(
        &[
            Capacity(CapacityVerdict::Link),
            Capacity(CapacityVerdict::PerFlowLimit),
        ],
        "a transfer of several connections (-P 4): whether they carry more together",
    ),
    set(
        &[
            Loss(LossVerdict::Policer),
            Capacity(CapacityVerdict::PerFlowLimit),
        ],
        "a transfer of several connections (-P 4): whether they carry more together",
    ),
];

const OF_RECEIVER: [CandidateSet; 15] = [
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::EarlyExit),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
        ],
        "the sender's congestion window, and what waits in its buffer (ss -tnmi)",
    ),
    set(
        &[
            ApplicationWindow(ApplicationWindowVerdict::Other),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "what waits in the sender's buffer (ss -tnm), and the same transfer by another protocol",
    ),
    set(
        &[
            Loss(LossVerdict::Random),
            Loss(LossVerdict::Policer),
            Loss(LossVerdict::ShallowQueue),
        ],
        "the sender's congestion window before each loss, and how much was lost at once",
    ),
    set(
        &[
            Loss(LossVerdict::Random),
            CongestionWindow(CongestionWindowVerdict::Reordering),
            Loss(LossVerdict::Policer),
        ],
        "what the sender sent again, and what of it had arrived already (DSACK)",
    ),
    set(
        &[
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            SendBuffer(SendBufferVerdict::SoSndbuf),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "what waits in the sender's buffer (ss -tnm)",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            Capacity(CapacityVerdict::Shared),
            Capacity(CapacityVerdict::Link),
        ],
        "round-trip times next to the transfer (ping), or a capture at the sender",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
        ],
        "round-trip times next to the transfer (ping), or a capture at the sender",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        "tcp_window_scaling at the sender, or the SYN as it left one end and reached the other",
    ),
    set(
        &[
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            Pacing(PacingVerdict::Qdisc),
            ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
        ],
        "the queueing discipline of the sender's device (tc -s qdisc), and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            Capacity(CapacityVerdict::Link),
            Pacing(PacingVerdict::Qdisc),
            Capacity(CapacityVerdict::Shared),
        ],
        "the rate of the path, and the queueing discipline of the sender's device (tc -s qdisc)",
    ),
    set(
        &[
            Pacing(PacingVerdict::Qdisc),
            SenderApplication(SenderApplicationVerdict::RateLimited),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
        ],
        "the queueing discipline of the sender's device (tc -s qdisc), whether its program sets a pace or a rate",
    ),
    set(
        &[
            Loss(LossVerdict::ShallowQueue),
            Capacity(CapacityVerdict::HostQueue),
            Loss(LossVerdict::Policer),
        ],
        "the drops of the queue of the sender's device (tc -s qdisc), and its congestion window before each loss",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            SenderApplication(SenderApplicationVerdict::RateLimited),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
        ],
        "what the sending program waits for, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            Cpu(CpuVerdict::StolenOfSender),
            SenderApplication(SenderApplicationVerdict::Storage),
        ],
        "what the sending program waits for, and the processor time that it gets",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "the SYN as it left one end and reached the other: a capture of the other end",
    ),
];

const OF_SENDER: [CandidateSet; 5] = [
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        "tcp_window_scaling at the receiver, or the SYN as it left one end and reached the other",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
        ],
        "tcp_rmem at the receiver, and whether its program sets SO_RCVBUF",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::MemoryPressure),
            ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
            ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
        ],
        "the memory of TCP at the receiver (/proc/net/protocols, tcp_mem), and the window as it leaves that host",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
        ],
        "the window scale as it left the receiver and as it came, and whether its program sets SO_RCVBUF",
    ),
    set(
        &[
            ReceiverApplication(ReceiverApplicationVerdict::SlowReader),
            ReceiverApplication(ReceiverApplicationVerdict::Storage),
            Cpu(CpuVerdict::StolenOfReceiver),
        ],
        "what the receiving program waits for, and the processor time that it gets",
    ),
];

const OF_CAPTURE: [CandidateSet; 23] = [
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::NoWindowScaling),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
        ],
        "the SYN as it left one end and reached the other: a capture of the other end",
    ),
    set(
        &[
            ReceiverApplication(ReceiverApplicationVerdict::SlowReader),
            ReceiverApplication(ReceiverApplicationVerdict::Storage),
            Cpu(CpuVerdict::StolenOfReceiver),
        ],
        "what the receiving program waits for, and the processor time that it gets",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            Cpu(CpuVerdict::StolenOfSender),
            Capacity(CapacityVerdict::HostQueue),
        ],
        "what the sending program waits for, the processor time that it gets, and the drops of the queue of its device",
    ),
    set(
        &[
            ApplicationWindow(ApplicationWindowVerdict::SshChannelOfReceiver),
            SendBuffer(SendBufferVerdict::SoSndbuf),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "which programs these are, and what waits in the sender's buffer (ss -tnm)",
    ),
    set(
        &[
            Capacity(CapacityVerdict::HostQueue),
            SenderApplication(SenderApplicationVerdict::Idle),
            Pacing(PacingVerdict::Qdisc),
        ],
        "the queueing discipline of the sender's device and its drops, and what its program does",
    ),
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::EarlyExit),
            Capacity(CapacityVerdict::HostQueue),
            Cpu(CpuVerdict::StolenOfSender),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "the drops of the queue of the sender's device, ssthresh (ss -ti), and its processor time",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "a capture at the sender, which shows the windows that reach it",
    ),
    set(
        &[
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            SenderApplication(SenderApplicationVerdict::Idle),
            Pacing(PacingVerdict::Qdisc),
        ],
        "a capture at the sender, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            Pacing(PacingVerdict::Qdisc),
            Capacity(CapacityVerdict::HostQueue),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "what waits in the sender's buffer (ss -tnm), and the queueing discipline of its device \
         with its drops (tc -s qdisc)",
    ),
    set(
        &[
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            ReceiveWindow(ReceiveWindowVerdict::WindowClamped),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "a capture at the sender, which shows the windows that reach it, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "a capture at the sender, which shows the scale that reaches it",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten),
            ReceiveWindow(ReceiveWindowVerdict::WindowScaleStripped),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "a capture with the handshake, from both ends",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            Pacing(PacingVerdict::Qdisc),
        ],
        "a capture with the handshake, which shows the scale of the windows",
    ),
    set(
        &[
            ReceiveWindow(ReceiveWindowVerdict::SoRcvbuf),
            SendBuffer(SendBufferVerdict::TcpWmemMax),
            Pacing(PacingVerdict::Qdisc),
        ],
        "a capture with the handshake, which shows the scale of the windows",
    ),
    set(
        &[
            Capacity(CapacityVerdict::Link),
            Pacing(PacingVerdict::Qdisc),
            SenderApplication(SenderApplicationVerdict::RateLimited),
        ],
        "a capture at the sender",
    ),
    set(
        &[
            Loss(LossVerdict::Random),
            Capacity(CapacityVerdict::Shared),
            Capacity(CapacityVerdict::Link),
        ],
        "round-trip times under load: a capture at the sender, or one with timestamps",
    ),
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::Recovering),
            Loss(LossVerdict::Policer),
            Capacity(CapacityVerdict::HostQueue),
        ],
        "a longer transfer: whether losses come again, and the drops of the queue of the sender's device",
    ),
    set(
        &[
            Capacity(CapacityVerdict::Shared),
            Pacing(PacingVerdict::Qdisc),
            SenderApplication(SenderApplicationVerdict::RateLimited),
        ],
        "a capture at the sender",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::RateLimited),
            Pacing(PacingVerdict::MaxPacingRate),
            Pacing(PacingVerdict::Qdisc),
        ],
        "whether the sender's program sets a pace, and the queueing discipline of its device",
    ),
    set(
        &[
            Mtu(MtuVerdict::BlackHole),
            SenderApplication(SenderApplicationVerdict::Idle),
        ],
        "a capture at the other end",
    ),
    set(
        &[
            CongestionWindow(CongestionWindowVerdict::RampUp),
            Loss(LossVerdict::Random),
        ],
        "a capture at the sender, which shows what it repeats",
    ),
    set(
        &[Capacity(CapacityVerdict::Link), Loss(LossVerdict::Random)],
        "a capture at the sender, which shows what it repeats",
    ),
    set(
        &[
            SenderApplication(SenderApplicationVerdict::Idle),
            Capacity(CapacityVerdict::Shared),
            Capacity(CapacityVerdict::Link),
        ],
        "a capture at the sender, or round-trip times next to the transfer (ping)",
    ),
];

/// Returns true if `one` stands for `other` in a set: what the windows of programs look like does
/// not depend on their protocol.
fn is_same_in_set(one: LegalVerdict, other: LegalVerdict) -> bool {
    one == other || matches!((one, other), (ApplicationWindow(_), ApplicationWindow(_)))
}

/// Returns the verdicts that `view` cannot distinguish from `found`, itself first, and what would
/// show which is right; none where the evidence decides.
pub(crate) fn find_candidates(
    view: Basis,
    found: &LimitFinding,
) -> (Vec<Candidate>, Option<String>) {
    let sets = sets_of(view, found.other.is_some()).filter(|set| {
        let other = found.other;
        found.is_one_of_several && other.is_none_or(|other| set.verdicts.contains(&other))
    });
    let with_place = sets.filter_map(|set| {
        let mut verdicts = set.verdicts.iter();
        let place = verdicts.position(|verdict| is_same_in_set(*verdict, found.verdict))?;
        Some((set, place))
    });
    // A set that names the finding first is its own.
    let Some((set, _)) = with_place.min_by_key(|(_, place)| *place > 0) else {
        return (Vec::new(), None);
    };
    let others = set
        .verdicts
        .iter()
        .copied()
        .filter(|verdict| !is_same_in_set(*verdict, found.verdict));
    let all = std::iter::once(found.verdict)
        .chain(others)
        .map(Candidate::from)
        .collect();
    (all, Some(set.would_distinguish.to_owned()))
}

#[cfg(test)]
mod tests;
