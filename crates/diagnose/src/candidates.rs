//! Verdicts that one view of a transfer cannot distinguish.

use crate::finding::Finding;
use LegalVerdict::{
    ApplicationWindow, Capacity, CongestionWindow, Cpu, Loss, Mtu, Pacing, ReceiveWindow,
    ReceiverApplication, SendBuffer, SenderApplication,
};
use fullpipe_record::{
    ApplicationWindowVerdict::{Other, SshChannelOfReceiver},
    Basis, Buffer, Candidate,
    CapacityVerdict::{Allowance, HostQueue, Link, PerFlowLimit, Shared},
    CongestionWindowVerdict::{EarlyExit, RampUp, Recovering, Reordering},
    CpuVerdict::{StolenOfReceiver, StolenOfSender},
    LegalVerdict,
    LossVerdict::{Policer, Random, ShallowQueue},
    MtuVerdict::BlackHole,
    PacingVerdict::{MaxPacingRate, Qdisc},
    ReceiveWindowVerdict::{
        MemoryPressure, NoWindowScaling, SoRcvbuf, TcpRmemMax, WindowClamped, WindowScaleRewritten,
        WindowScaleStripped,
    },
    ReceiverApplicationVerdict::{self, SlowReader},
    Request,
    SendBufferVerdict::{SoSndbuf, TcpWmemMax},
    SenderApplicationVerdict::{self, Idle, RateLimited},
};

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
/// does not. A finding of [`Finding::one_of_several`] is in one of its view.
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
const OF_SENDING_END: [CandidateSet; 10] = [
    set(
        &[
            ReceiveWindow(TcpRmemMax),
            ReceiveWindow(SoRcvbuf),
            ReceiveWindow(WindowScaleRewritten),
            ReceiverApplication(SlowReader),
        ],
        "what the receiver has unread (ss -tnm), and whether its program sets SO_RCVBUF",
    ),
    set(
        &[
            CongestionWindow(Recovering),
            Loss(ShallowQueue),
            Loss(Policer),
        ],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a queue",
    ),
    set(
        &[
            CongestionWindow(Recovering),
            Loss(Random),
            Loss(ShallowQueue),
        ],
        "a longer transfer (-t 60): whether losses come again, and at which window",
    ),
    set(
        &[Loss(Policer), Loss(ShallowQueue)],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a queue",
    ),
    set(
        &[Capacity(Allowance), Capacity(Shared)],
        "a second transfer after a rest, which has the higher rate again, and the counters of the device (ethtool -S)",
    ),
    set(
        &[Capacity(Allowance), Loss(Policer)],
        "a second transfer after a rest, which has the higher rate again for as many bytes",
    ),
    set(
        &[Capacity(PerFlowLimit), Capacity(Shared)],
        "transfers of one connection and of twice as many: whether each keeps its rate",
    ),
    set(
        &[Capacity(PerFlowLimit), Loss(Policer)],
        "transfers of one connection and of twice as many: whether each keeps its rate",
    ),
    set(
        &[Capacity(Link), Capacity(PerFlowLimit)],
        "a transfer of several connections (-P 4): whether they carry more together",
    ),
    set(
        &[Loss(Policer), Capacity(PerFlowLimit)],
        "a transfer of several connections (-P 4): whether they carry more together",
    ),
];

const OF_RECEIVER: [CandidateSet; 16] = [
    set(
        &[CongestionWindow(EarlyExit), SendBuffer(TcpWmemMax)],
        "the sender's congestion window, and what waits in its buffer (ss -tnmi)",
    ),
    set(
        &[
            ApplicationWindow(Other),
            SendBuffer(TcpWmemMax),
            SenderApplication(Idle),
        ],
        "what waits in the sender's buffer (ss -tnm), and the same transfer by another protocol",
    ),
    set(
        &[Loss(Random), Loss(Policer), Loss(ShallowQueue)],
        "the sender's congestion window before each loss, and how much was lost at once",
    ),
    set(
        &[Loss(Random), CongestionWindow(Reordering), Loss(Policer)],
        "what the sender sent again, and what of it had arrived already (DSACK)",
    ),
    set(
        &[
            SendBuffer(TcpWmemMax),
            SendBuffer(SoSndbuf),
            SenderApplication(Idle),
        ],
        "what waits in the sender's buffer (ss -tnm)",
    ),
    set(
        &[SenderApplication(Idle), Capacity(Shared), Capacity(Link)],
        "round-trip times next to the transfer (ping), or a capture at the sender",
    ),
    set(
        &[
            SenderApplication(Idle),
            ReceiveWindow(SoRcvbuf),
            ReceiveWindow(TcpRmemMax),
        ],
        "round-trip times next to the transfer (ping), or a capture at the sender",
    ),
    set(
        &[
            ReceiveWindow(NoWindowScaling),
            ReceiveWindow(WindowScaleStripped),
        ],
        "tcp_window_scaling at the sender, or the SYN as it left one end and reached the other",
    ),
    set(
        &[
            SendBuffer(TcpWmemMax),
            Pacing(Qdisc),
            ReceiveWindow(WindowClamped),
        ],
        "the queueing discipline of the sender's device (tc -s qdisc), and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[Capacity(Link), Pacing(Qdisc), Capacity(Shared)],
        "the rate of the path, and the queueing discipline of the sender's device (tc -s qdisc)",
    ),
    set(
        &[
            Pacing(Qdisc),
            SenderApplication(RateLimited),
            SendBuffer(TcpWmemMax),
        ],
        "the queueing discipline of the sender's device (tc -s qdisc), whether its program sets a pace or a rate",
    ),
    set(
        &[Loss(ShallowQueue), Capacity(HostQueue), Loss(Policer)],
        "the drops of the queue of the sender's device (tc -s qdisc), and its congestion window before each loss",
    ),
    set(
        &[
            SenderApplication(Idle),
            SenderApplication(RateLimited),
            SendBuffer(TcpWmemMax),
        ],
        "what the sending program waits for, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            SenderApplication(Idle),
            Cpu(StolenOfSender),
            SenderApplication(SenderApplicationVerdict::Storage),
        ],
        "what the sending program waits for, and the processor time that it gets",
    ),
    set(
        &[
            ReceiveWindow(WindowScaleStripped),
            ReceiveWindow(WindowScaleRewritten),
            SenderApplication(Idle),
        ],
        "the SYN as it left one end and reached the other: a capture of the other end",
    ),
    set(
        &[Capacity(Allowance), Loss(Policer)],
        "a second transfer after a rest, which has the higher rate again for as many bytes",
    ),
];

const OF_SENDER: [CandidateSet; 8] = [
    set(
        &[Pacing(Qdisc), Pacing(MaxPacingRate)],
        "the queueing discipline of the sender's device (tc -s qdisc), and whether its program sets a pace",
    ),
    set(
        &[
            CongestionWindow(Recovering),
            Loss(Random),
            Loss(Policer),
            Loss(ShallowQueue),
        ],
        "listings each second for a minute (ss -tin), or a capture: whether losses come again, and how many at once",
    ),
    set(
        &[Loss(Random), Loss(Policer), Loss(ShallowQueue)],
        "listings each second for a minute (ss -tin), or a capture: how many are lost at once, and at which window",
    ),
    set(
        &[
            ReceiveWindow(NoWindowScaling),
            ReceiveWindow(WindowScaleStripped),
        ],
        "tcp_window_scaling at the receiver, or the SYN as it left one end and reached the other",
    ),
    set(
        &[ReceiveWindow(SoRcvbuf), ReceiveWindow(TcpRmemMax)],
        "tcp_rmem at the receiver, and whether its program sets SO_RCVBUF",
    ),
    set(
        &[
            ReceiveWindow(MemoryPressure),
            ReceiveWindow(WindowClamped),
            ReceiveWindow(SoRcvbuf),
        ],
        "the memory of TCP at the receiver (/proc/net/protocols, tcp_mem), and the window as it leaves that host",
    ),
    set(
        &[ReceiveWindow(WindowScaleRewritten), ReceiveWindow(SoRcvbuf)],
        "the window scale as it left the receiver and as it came, and whether its program sets SO_RCVBUF",
    ),
    set(
        &[
            ReceiverApplication(SlowReader),
            ReceiverApplication(ReceiverApplicationVerdict::Storage),
            Cpu(StolenOfReceiver),
        ],
        "what the receiving program waits for, and the processor time that it gets",
    ),
];

const OF_CAPTURE: [CandidateSet; 24] = [
    set(
        &[
            ReceiveWindow(NoWindowScaling),
            ReceiveWindow(WindowScaleStripped),
        ],
        "the SYN as it left one end and reached the other: a capture of the other end",
    ),
    set(
        &[
            ReceiverApplication(SlowReader),
            ReceiverApplication(ReceiverApplicationVerdict::Storage),
            Cpu(StolenOfReceiver),
        ],
        "what the receiving program waits for, and the processor time that it gets",
    ),
    set(
        &[
            SenderApplication(Idle),
            Cpu(StolenOfSender),
            Capacity(HostQueue),
        ],
        "what the sending program waits for, the processor time that it gets, and the drops of the queue of its device",
    ),
    set(
        &[
            ApplicationWindow(SshChannelOfReceiver),
            SendBuffer(SoSndbuf),
            SenderApplication(Idle),
        ],
        "which programs these are, and what waits in the sender's buffer (ss -tnm)",
    ),
    set(
        &[Capacity(HostQueue), SenderApplication(Idle), Pacing(Qdisc)],
        "the queueing discipline of the sender's device and its drops, and what its program does",
    ),
    set(
        &[
            CongestionWindow(EarlyExit),
            Capacity(HostQueue),
            Cpu(StolenOfSender),
            SenderApplication(Idle),
        ],
        "the drops of the queue of the sender's device, ssthresh (ss -ti), and its processor time",
    ),
    set(
        &[
            ReceiveWindow(WindowClamped),
            ReceiveWindow(WindowScaleRewritten),
            SenderApplication(Idle),
        ],
        "a capture at the sender, which shows the windows that reach it",
    ),
    set(
        &[
            SendBuffer(TcpWmemMax),
            SenderApplication(Idle),
            Pacing(Qdisc),
        ],
        "a capture at the sender, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            SendBuffer(TcpWmemMax),
            Pacing(Qdisc),
            Capacity(HostQueue),
            SenderApplication(Idle),
        ],
        "what waits in the sender's buffer (ss -tnm), and the queueing discipline of its device \
         with its drops (tc -s qdisc)",
    ),
    set(
        &[
            SendBuffer(TcpWmemMax),
            ReceiveWindow(WindowClamped),
            SenderApplication(Idle),
        ],
        "a capture at the sender, which shows the windows that reach it, and what waits in its buffer (ss -tnm)",
    ),
    set(
        &[
            ReceiveWindow(WindowScaleRewritten),
            SendBuffer(TcpWmemMax),
            SenderApplication(Idle),
        ],
        "a capture at the sender, which shows the scale that reaches it",
    ),
    set(
        &[
            ReceiveWindow(WindowScaleRewritten),
            ReceiveWindow(WindowScaleStripped),
            SenderApplication(Idle),
        ],
        "a capture with the handshake, from both ends",
    ),
    set(
        &[
            ReceiveWindow(TcpRmemMax),
            SendBuffer(TcpWmemMax),
            Pacing(Qdisc),
        ],
        "a capture with the handshake, which shows the scale of the windows",
    ),
    set(
        &[
            ReceiveWindow(SoRcvbuf),
            SendBuffer(TcpWmemMax),
            Pacing(Qdisc),
        ],
        "a capture with the handshake, which shows the scale of the windows",
    ),
    set(
        &[
            Capacity(Link),
            Pacing(Qdisc),
            SenderApplication(RateLimited),
        ],
        "a capture at the sender",
    ),
    set(
        &[Loss(Random), Capacity(Shared), Capacity(Link)],
        "round-trip times under load: a capture at the sender, or one with timestamps",
    ),
    set(
        &[
            CongestionWindow(Recovering),
            Loss(Policer),
            Capacity(HostQueue),
        ],
        "a longer transfer: whether losses come again, and the drops of the queue of the sender's device",
    ),
    set(
        &[
            Capacity(Shared),
            Pacing(Qdisc),
            SenderApplication(RateLimited),
        ],
        "a capture at the sender",
    ),
    set(
        &[
            SenderApplication(RateLimited),
            Pacing(MaxPacingRate),
            Pacing(Qdisc),
        ],
        "whether the sender's program sets a pace, and the queueing discipline of its device",
    ),
    set(
        &[Mtu(BlackHole), SenderApplication(Idle)],
        "a capture at the other end",
    ),
    set(
        &[
            SenderApplication(Idle),
            SendBuffer(TcpWmemMax),
            Pacing(MaxPacingRate),
            Loss(Random),
        ],
        "a capture at the sender, which shows what it repeats",
    ),
    set(
        &[CongestionWindow(RampUp), Loss(Random)],
        "a capture at the sender, which shows what it repeats",
    ),
    set(
        &[Capacity(Link), Loss(Random)],
        "a capture at the sender, which shows what it repeats",
    ),
    set(
        &[SenderApplication(Idle), Capacity(Shared), Capacity(Link)],
        "a capture at the sender, or round-trip times next to the transfer (ping)",
    ),
];

/// Returns true if `one` stands for `other` in a set: what the windows of programs look like does
/// not depend on their protocol.
fn is_same_in_set(one: LegalVerdict, other: LegalVerdict) -> bool {
    one == other || matches!((one, other), (ApplicationWindow(_), ApplicationWindow(_)))
}

/// Returns true if the kernel may have tuned the buffer of a verdict: the `request` for it is known
/// otherwise.
fn may_be_tuned(verdict: LegalVerdict, request: &Request) -> bool {
    match verdict {
        ReceiveWindow(TcpRmemMax) => request.receive_buffer() == Buffer::Automatic,
        SendBuffer(TcpWmemMax) => request.send_buffer() == Buffer::Automatic,
        _ => true,
    }
}

/// Returns the verdicts that `view` cannot distinguish from `found`, itself first, and what would
/// show which is right; none where the evidence or the `request` decides.
pub(crate) fn find_candidates(
    view: Basis,
    found: &Finding,
    request: &Request,
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
    let others: Vec<LegalVerdict> = set
        .verdicts
        .iter()
        .copied()
        .filter(|verdict| {
            !is_same_in_set(*verdict, found.verdict) && may_be_tuned(*verdict, request)
        })
        .collect();
    if others.is_empty() {
        return (Vec::new(), None);
    }
    let all = std::iter::once(found.verdict)
        .chain(others)
        .map(Candidate::from)
        .collect();
    (all, Some(set.would_distinguish.to_owned()))
}

#[cfg(test)]
mod tests;
