//! Connections that count as one user, leave no queue, or give way to all others: the kernel paces
//! them, at the rate that follows from its figures.

use std::net::TcpStream;
use std::time::Instant;

use fullpipe_record::{CongestionState, TcpInfo};
use fullpipe_sys::{set_pacing_rate, tcp_info};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};
use socket2::SockRef;

use crate::bounds::CopyBounds;
use crate::rate::{CoupledRate, DelayBound, ScavengerControl, StreamsSample, unsmoothed_rtt};

/// Payload of a segment where the kernel does not say.
const USUAL_MSS: ByteCount = ByteCount::new(1448);

/// Congestion controls that send what the pace permits, unless packets are lost. BBR would follow
/// its own probes.
const BY_LOSS: [&str; 2] = [CUBIC, "reno"];

pub(crate) const CUBIC: &str = "cubic";

const BBR: &str = "bbr";

/// A rate that bounds no connection.
const UNBOUNDED: BitRate = BitRate::from_bps(u64::MAX);

/// Paces connections, which count as one.
pub(crate) struct ConnectionPacer<'s> {
    sockets: &'s [TcpStream],
    rtt: Span,
    governor: Option<RateGovernor>,
    began: Instant,
    last: Vec<TcpInfo>,
}

/// The one who decides the rate of all connections together.
enum RateGovernor {
    Scavenger(ScavengerControl),
    Coupling(CoupledRate),
    DelayBound(DelayBound),
}

impl<'s> ConnectionPacer<'s> {
    /// Returns a pacer of connections over a path of this round-trip time, which give way to all
    /// others if they scavenge. All begin under CUBIC if the host permits it, as BBR leaves little
    /// to others where queues are short. Those that keep BBR and do not scavenge are left alone.
    pub(crate) fn new(sockets: &'s [TcpStream], rtt: Span, bounds: &CopyBounds) -> Self {
        let scavenge = bounds.scavenge;
        let permitted = if scavenge || bounds.no_bbr {
            &BY_LOSS[..]
        } else {
            &BY_LOSS[..1]
        };
        for socket in sockets.iter().filter(|socket| !is_by_loss(socket)) {
            use_first(socket, permitted);
        }
        let last = socket_infos(sockets);
        let mss = segment_size(&last);
        let governor = match sockets {
            _ if scavenge => Some(RateGovernor::Scavenger(ScavengerControl::new(rtt, mss))),
            [first, _, ..] if is_by_loss(first) => {
                Some(RateGovernor::Coupling(CoupledRate::new(rtt)))
            }
            _ => None,
        };
        Self {
            sockets,
            rtt,
            governor,
            began: Instant::now(),
            last,
        }
    }

    /// Samples the connections and sets their pace: equal parts for all that have something on its
    /// way.
    pub(crate) fn update_pace(&mut self) {
        let infos = socket_infos(self.sockets);
        let at = Time::from_nanos(self.began.elapsed().as_nanos() as u64);
        let sample = streams_sample(&self.last, &infos);
        let (rate, window) = match &mut self.governor {
            Some(RateGovernor::Scavenger(scavenger)) => (
                Some(scavenger.add_sample(at, &sample)),
                scavenger.reachable_window(),
            ),
            Some(RateGovernor::Coupling(coupling)) => (coupling.add_sample(at, &sample), None),
            Some(RateGovernor::DelayBound(bound)) => (bound.add_sample(at, &sample), None),
            None => (None, None),
        };
        let parts = infos.iter().filter(|info| has_data(info)).count().max(1) as u64;
        // One that carries everything has the window of one by itself.
        let rate = if parts == 1 && self.is_coupled() {
            rate.map(|_| UNBOUNDED)
        } else {
            rate
        };
        let (pace, window) = (
            rate.map(|rate| BitRate::from_bps(rate.bps() / parts)),
            window.map(|all| all.get() / parts),
        );
        for (socket, info) in self.sockets.iter().zip(&infos) {
            // A connection that has ended needs no pace.
            let _ = pace.map(|pace| set_pacing_rate(socket, pace));
            if window.is_some_and(|window| cannot_grow_to(info, window)) {
                forget_losses(socket);
            }
        }
        self.last = infos;
    }

    /// Returns true if the connections are bounded as one.
    pub(crate) const fn is_coupled(&self) -> bool {
        matches!(self.governor, Some(RateGovernor::Coupling(_)))
    }

    /// Returns the part of the time up to now for which the connections gave way to others, if they
    /// do.
    pub(crate) fn gave_way(&self) -> Option<Ratio> {
        match &self.governor {
            Some(RateGovernor::Scavenger(scavenger)) => Some(scavenger.gave_way()),
            _ => None,
        }
    }

    /// Bounds the connections by delay from now on: their path loses packets without a queue.
    pub(crate) fn bound_by_delay(&mut self) {
        let rtt = self
            .last
            .iter()
            .filter_map(|info| info.min_rtt)
            .min()
            .unwrap_or(self.rtt);
        self.governor = Some(RateGovernor::DelayBound(DelayBound::new(rtt)));
        for socket in self.sockets {
            // A connection that has ended needs no pace.
            let _ = set_pacing_rate(socket, UNBOUNDED);
        }
    }
}

fn is_by_loss(socket: &TcpStream) -> bool {
    BY_LOSS.contains(&congestion_control(socket).as_str())
}

fn socket_infos(sockets: &[TcpStream]) -> Vec<TcpInfo> {
    sockets
        .iter()
        .map(|socket| tcp_info(socket).unwrap_or_default())
        .collect()
}

fn streams_sample(before: &[TcpInfo], infos: &[TcpInfo]) -> StreamsSample {
    let rtts = before.iter().zip(infos).filter_map(|(before, info)| {
        let acknowledgements = info.segs_in?.saturating_sub(before.segs_in?).get();
        unsmoothed_rtt(before.rtt?, info.rtt?, acknowledgements)
    });
    StreamsSample {
        acknowledged: infos.iter().filter_map(|info| info.bytes_acked).sum(),
        retransmitted: infos.iter().filter_map(|info| info.total_retrans).sum(),
        rtt: rtts.min(),
        mss: segment_size(infos),
    }
}

fn segment_size(infos: &[TcpInfo]) -> ByteCount {
    infos
        .iter()
        .find_map(|info| info.snd_mss)
        .unwrap_or(USUAL_MSS)
}

fn has_data(info: &TcpInfo) -> bool {
    info.unacked > Some(SegCount::ZERO) || info.not_sent > Some(ByteCount::ZERO)
}

/// Returns true if earlier losses let a connection grow to a window only slowly, by their threshold
/// of slow start.
fn cannot_grow_to(info: &TcpInfo, window: u64) -> bool {
    let mss = info.snd_mss.unwrap_or(USUAL_MSS);
    let threshold = info
        .ssthresh
        .map(|threshold| SegCount::of_size(threshold, mss).get());
    info.congestion_state == Some(CongestionState::Open)
        && threshold.is_some_and(|threshold| threshold < window)
}

/// Lets a connection begin anew with slow start, from the window that it has: others have loaded
/// the path, and its threshold is theirs. Only BBR forgets it as it begins (`bbr_init`), so the
/// connection has that for a moment, if the host permits it.
fn forget_losses(socket: &TcpStream) {
    let name = congestion_control(socket);
    if use_first(socket, &[BBR]) {
        use_first(socket, &[&name, BY_LOSS[0], BY_LOSS[1]]);
    }
}

/// Lets a connection use the first of these congestion controls that the host permits.
fn use_first(socket: &TcpStream, names: &[&str]) -> bool {
    names.iter().any(|name| {
        SockRef::from(socket)
            .set_tcp_congestion(name.as_bytes())
            .is_ok()
    })
}

fn congestion_control(socket: &TcpStream) -> String {
    let name = SockRef::from(socket).tcp_congestion().unwrap_or_default();
    String::from_utf8_lossy(&name)
        .trim_end_matches('\0')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::CopyAdaptation;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn connections_share_one_pace_which_follows_from_what_arrives() {
        let pairs: Vec<_> = (0..2).map(|_| connected()).collect();
        let sockets: Vec<TcpStream> = pairs
            .iter()
            .map(|(near, _)| near.try_clone().unwrap())
            .collect();
        let mut bounds = CopyBounds::new(Vec::new(), None);
        bounds.scavenge = true;
        let mut pacer = ConnectionPacer::new(&sockets, Span::from_millis(20), &bounds);
        pacer.update_pace();
        let pace = |socket: &TcpStream| tcp_info(socket).unwrap().max_pacing_rate.unwrap();
        let first = pace(&sockets[0]);
        assert_eq!(first, pace(&sockets[1]));
        thread::scope(|threads| {
            for (mut near, mut far) in pairs {
                threads.spawn(move || near.write_all(&vec![0; 1 << 20]).unwrap());
                threads.spawn(move || far.read_exact(&mut vec![0; 1 << 20]).unwrap());
            }
            for _ in 0..10 {
                thread::sleep(CopyAdaptation::INTERVAL.into());
                pacer.update_pace();
            }
        });
        assert!(
            pace(&sockets[0]) > first && pacer.gave_way().is_some(),
            "{first}"
        );
        pacer.bound_by_delay();
        assert!(pace(&sockets[0]) > BitRate::from_mbps(1_000_000));
        assert!(
            sockets
                .iter()
                .all(|socket| BY_LOSS.contains(&congestion_control(socket).as_str()))
        );
    }

    #[test]
    fn a_connection_that_forgets_losses_keeps_its_congestion_control() {
        let (near, _far) = connected();
        use_first(&near, &BY_LOSS);
        let before = congestion_control(&near);
        forget_losses(&near);
        assert_eq!(congestion_control(&near), before);
        assert_eq!(tcp_info(&near).unwrap().ssthresh, None);
    }
}
