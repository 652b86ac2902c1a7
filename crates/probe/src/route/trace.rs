//! The routers on the way to a target and the path MTU, from probes with a TTL of one hop, two hops
//! and so on, all sent without waiting, and from the ICMP errors that answer them.
//!
//! trippy-core does not fit: on Linux it always needs raw sockets, it finds no MTU, and it brings
//! some forty crates. The kernel passes each socket the ICMP errors about its own packets
//! (`IP_RECVERR`), which needs no privilege.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_record::{RouteMethod, RouteMtu, RouteReport};
use fullpipe_units::ByteCount;
use tracing::{debug, info};

use super::MAX_HOPS;
use super::route_state::RouteState;
use super::socket::{ProbeReply, ProbeSocket};
use crate::destination::Destination;
use crate::error::ProbeError;

/// Probes to each hop: a Linux router sends one address no more than six ICMP errors in a row.
const PROBES: u16 = 5;

/// Time between two probes, in which a probe on a short path has often been answered.
const PACE: Duration = Duration::from_millis(3);

/// Time between two probes over UDP: the target's kernel limits the rate of its "port unreachable"
/// errors.
const DATAGRAM_PACE: Duration = Duration::from_millis(20);

/// Time from one probe of a hop to the next.
const WAVE: Duration = Duration::from_millis(100);

/// Timeout of a probe while no probe has been answered.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum timeout of a probe.
const MIN_TIMEOUT: Duration = Duration::from_millis(300);

/// Maximum duration of a trace.
const MAX_DURATION: Duration = Duration::from_secs(5);

/// Bytes of the largest IP packet.
const MAX_PACKET: ByteCount = ByteCount::new(65_535);

/// Maximum number of packet sizes that are tried.
const MAX_SIZES: usize = 10;

/// Attempts with one packet size before it counts as not answered.
const TRIES: usize = 2;

/// Maximum time between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the routers on the way to the first address of `destination` and the path MTU, within
/// five seconds. An interrupt ends the trace; the report then holds what was found so far.
///
/// # Errors
/// Fails if the name has no address, or this host cannot send to it.
pub fn trace_route(
    destination: &Destination,
    interrupt: &AtomicBool,
) -> Result<RouteReport, ProbeError> {
    let addresses = destination.resolve_host()?;
    let target = addresses.first().ok_or(ProbeError::Interrupted)?.ip();
    info!(%target, "tracing the route");
    let socket = ProbeSocket::open(target, &destination.local)
        .map_err(ProbeError::from_io("open a socket for the route"))?;
    let mut tracer = RouteTracer {
        started: Instant::now(),
        route: RouteState::new(target),
        socket,
        interrupt,
    };
    tracer
        .find_hops()
        .map_err(ProbeError::from_io("send along the route"))?;
    let mtu = tracer.find_mtu();
    let route = tracer.route.to_report(tracer.socket.method(), mtu);
    debug!(?route, "traced the route");
    Ok(route)
}

/// MTUs of common links, in bytes (RFC 1191, section 7).
const PLATEAUS: [u64; 11] = [
    65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68,
];

/// Returns the size to try after `size`, which is too large for a link that reports `fits` as its
/// MTU; no link has less than `min`. Old routers report none, and a host with
/// `net.ipv4.ip_no_pmtu_disc` does not read it: then the next of the common sizes is tried (RFC
/// 1191, section 5).
fn next_size(size: ByteCount, fits: ByteCount, min: ByteCount) -> ByteCount {
    if fits > ByteCount::ZERO {
        return fits.max(min);
    }
    PLATEAUS
        .into_iter()
        .map(ByteCount::new)
        .find(|common| *common < size)
        .unwrap_or(min)
        .max(min)
}

struct RouteTracer<'t> {
    started: Instant,
    route: RouteState,
    socket: ProbeSocket,
    interrupt: &'t AtomicBool,
}

/// The outcome of a packet of one size.
enum SizeOutcome {
    Answered,
    TooLarge {
        fits: ByteCount,
        reported_by: Option<String>,
    },
    Silence,
}

impl RouteTracer<'_> {
    /// Sends [`PROBES`] probes to each hop, from the first to the nearest one that ends the route.
    fn find_hops(&mut self) -> io::Result<()> {
        for wave in 0..PROBES {
            let started = Instant::now();
            for hop in 1..=MAX_HOPS {
                if hop > self.route.last_hop().unwrap_or(MAX_HOPS) || self.is_over() {
                    break;
                }
                let sent = self.send_probe(Some(hop), self.socket.min_probe());
                // A later send may fail with an ICMP error that an earlier probe caused.
                if wave == 0 && hop == 1 {
                    sent?;
                }
                self.receive_until(Instant::now() + self.probe_gap(), |_| false);
            }
            self.receive_until(started + WAVE, |_| false);
        }
        let last = Instant::now();
        while !self.route.is_complete() && last.elapsed() < self.reply_timeout() && !self.is_over()
        {
            self.receive_until(last + self.reply_timeout(), RouteState::is_complete);
        }
        Ok(())
    }

    /// Returns the path MTU: sends the largest packet there is, then each size that an ICMP error
    /// reports as fitting.
    fn find_mtu(&mut self) -> Option<RouteMtu> {
        let (mut size, mut reported_by) = (MAX_PACKET, None);
        for _ in 0..MAX_SIZES {
            let answered = match self.probe_size(size) {
                SizeOutcome::Answered => true,
                SizeOutcome::TooLarge {
                    fits,
                    reported_by: by,
                } if fits < size => {
                    size = next_size(size, fits, self.socket.min_mtu());
                    reported_by = by;
                    continue;
                }
                // A target that does not answer small packets does not answer large ones either.
                _ if self.is_over() || !(self.route.is_reached() || reported_by.is_some()) => {
                    return None;
                }
                _ => false,
            };
            return Some(RouteMtu {
                size,
                answered,
                reported_by,
            });
        }
        None
    }

    fn probe_size(&mut self, size: ByteCount) -> SizeOutcome {
        for _ in 0..TRIES {
            let number = self.route.next_number();
            // A packet that is too large for this host's own device is reported in the error queue,
            // as if by a router.
            let _ = self.send_probe(None, size);
            let (sent, timeout) = (Instant::now(), self.reply_timeout());
            self.receive_until(sent + timeout, |route| route.probe_reply(number).is_some());
            match self.route.probe_reply(number) {
                Some((ProbeReply::TooLarge(fits), by)) => {
                    return SizeOutcome::TooLarge {
                        fits,
                        reported_by: by.map(|by| by.to_string()),
                    };
                }
                Some((ProbeReply::Reached, _)) => return SizeOutcome::Answered,
                _ if self.is_over() => break,
                _ => {}
            }
        }
        SizeOutcome::Silence
    }

    /// Sends a probe of `size` bytes with a TTL of `hop`, or with one for the whole way.
    fn send_probe(&mut self, hop: Option<u8>, size: ByteCount) -> io::Result<()> {
        let number = self.route.next_number();
        self.route.record_sent(hop, Instant::now());
        let sent = self.socket.send_probe(number, hop, size);
        self.receive_replies();
        if sent.is_err() {
            self.route.record_unsent(number);
        }
        sent
    }

    /// Receives replies until `deadline` or until `enough` returns true.
    fn receive_until(&mut self, deadline: Instant, enough: impl Fn(&RouteState) -> bool) {
        let deadline = deadline.min(self.started + MAX_DURATION);
        while !enough(&self.route) && !self.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.socket.wait_for_reply(left.min(POLL_INTERVAL));
            self.receive_replies();
        }
    }

    fn receive_replies(&mut self) {
        let latest = self.route.next_number().wrapping_sub(1);
        for received in self.socket.receive_replies() {
            // Only errors of this host itself have no number: they are about the latest probe,
            // which it did not send.
            self.route.record_reply(
                received.number.unwrap_or(latest),
                received.by,
                received.reply,
                Instant::now(),
            );
        }
    }

    fn is_over(&self) -> bool {
        self.started.elapsed() >= MAX_DURATION || self.interrupt.load(Ordering::Relaxed)
    }

    fn reply_timeout(&self) -> Duration {
        self.route
            .max_reply_time()
            .map_or(TIMEOUT, |slowest| (slowest * 2).clamp(MIN_TIMEOUT, TIMEOUT))
    }

    fn probe_gap(&self) -> Duration {
        if self.socket.method() == RouteMethod::Udp {
            DATAGRAM_PACE
        } else {
            PACE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_does_not_report_its_mtu_has_a_common_one() {
        let next = |size, fits, min| {
            next_size(
                ByteCount::new(size),
                ByteCount::new(fits),
                ByteCount::new(min),
            )
            .get()
        };
        assert_eq!(
            [
                next(1_500, 1_400, 68),
                next(1_500, 0, 68),
                next(1_492, 0, 68),
                next(68, 0, 68)
            ],
            [1_400, 1_492, 1_006, 68]
        );
        assert_eq!(
            [
                next(1_500, 40, 68),
                next(1_500, 1_000, 1_280),
                next(1_400, 0, 1_280)
            ],
            [68, 1_280, 1_280]
        );
    }
}
