//! One load with cross traffic on the same path.

use fullpipe_record::Transport;

use crate::predict::predict;
use crate::prelude::*;
use crate::{datagrams, queue};

/// Returns the prediction for `request` over `path` while the loads `cross_traffic` run there too,
/// all from `sender` to `receiver`.
///
/// Datagrams do not give way: together they take what they offer, each a share as it offers, up to
/// the whole link, and leave TCP the rest ([`queue::unresponsive_shares`]). Streams of TCP share
/// that as max-min fairness has it: each what it would take alone, or an equal share where that is
/// less.
pub fn predict_with_cross_traffic(
    path: &Path,
    sender: &HostSettings,
    receiver: &HostSettings,
    request: &Request,
    cross_traffic: &[Request],
) -> Prediction {
    let shared = SharedLink {
        path,
        sender,
        receiver,
    };
    let share = match path.forward.rate {
        Some(link) if !cross_traffic.is_empty() => {
            shared.share_of_link(link, request, cross_traffic)
        }
        _ => path.forward.rate,
    };
    let mut rest = path.clone();
    rest.forward.rate = share;
    predict(&rest, sender, receiver, request)
}

/// Returns the part of `path` that the datagrams among the loads `cross_traffic` leave.
pub fn left_by_cross_traffic(path: &Path, cross_traffic: &[Request]) -> Path {
    let offered = BitRate::from_bps_f64(offered_datagrams(&path.forward, cross_traffic));
    let mut left = path.clone();
    left.forward.rate = path
        .forward
        .rate
        .map(|link| queue::unresponsive_shares(offered, link).left);
    left
}

/// Returns the sum of the rates that `loads` of datagrams offer on the wire of `direction`.
fn offered_datagrams(direction: &PathDirection, loads: &[Request]) -> f64 {
    loads_over(Transport::Udp, loads)
        .map(|load| offered_rate(direction, load))
        .sum()
}

fn loads_over(transport: Transport, loads: &[Request]) -> impl Iterator<Item = &Request> {
    loads.iter().filter(move |load| load.transport == transport)
}

/// Returns the rate of `load` on the wire of `direction` where it is of datagrams.
fn offered_rate(direction: &PathDirection, load: &Request) -> f64 {
    datagrams::offered_rate(load).as_f64() / datagrams::payload_share(direction, load).get()
}

/// A link that more than one load uses. Its rates are those on the wire.
struct SharedLink<'a> {
    path: &'a Path,
    sender: &'a HostSettings,
    receiver: &'a HostSettings,
}

impl SharedLink<'_> {
    /// Returns the rate of `link` that `cross_traffic` leaves to `request`.
    fn share_of_link(
        &self,
        link: BitRate,
        request: &Request,
        cross_traffic: &[Request],
    ) -> Option<BitRate> {
        Some(match request.transport {
            Transport::Udp => {
                let datagrams = offered_datagrams(&self.path.forward, cross_traffic);
                let own = offered_rate(&self.path.forward, request);
                link.scale_by(
                    (own / (own + datagrams).max(1.0)).max(1.0 - datagrams / link.as_f64()),
                )
            }
            Transport::Tcp => {
                let left = left_by_cross_traffic(self.path, cross_traffic)
                    .forward
                    .rate?;
                let taken: f64 = loads_over(Transport::Tcp, cross_traffic)
                    .map(|other| self.unshared_rate(other))
                    .sum();
                let others: f64 = loads_over(Transport::Tcp, cross_traffic)
                    .map(|other| f64::from(other.streams))
                    .sum();
                let own = f64::from(request.streams);
                let fair = own / (own + others).max(1.0);
                left.scale_by(fair.max(1.0 - taken / left.as_f64().max(1.0)))
            }
        })
    }

    /// Returns the rate of a `load` of TCP on the wire if it had the link to itself.
    fn unshared_rate(&self, load: &Request) -> f64 {
        let alone = predict(self.path, self.sender, self.receiver, load);
        alone.kernel_model.as_f64() / alone.efficiency.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use fullpipe_record::Buffer;
    use fullpipe_units::{ByteCount, Span};

    fn udp(mbps: u64, streams: u16) -> Request {
        let rate = Some(BitRate::from_mbps(mbps));
        Request {
            transport: Transport::Udp,
            rate,
            streams,
            block: ByteCount::new(1472),
            ..Request::default()
        }
    }

    fn tcp(kib: u64) -> Request {
        Request {
            buffer: Buffer::Window(ByteCount::from_kib(kib)),
            ..Request::default()
        }
    }

    fn of(request: &Request, cross_traffic: &[Request]) -> f64 {
        let path = test_fixture::ethernet_path(BitRate::from_mbps(100), Span::from_millis(100));
        let host = test_fixture::default_settings("6.18.44");
        predict_with_cross_traffic(&path, &host, &host, request, cross_traffic)
            .kernel_model
            .as_mbps()
    }

    #[test]
    fn datagrams_leave_tcp_the_rest() {
        assert!((of(&tcp(4096), &[udp(50, 1)]) - 0.94148 * (100.0 - 50.0 / 0.957_087)).abs() < 0.1);
        assert!(of(&tcp(4096), &[udp(29, 10)]) < 0.001);
        assert!(
            (of(&tcp(128), &[udp(20, 1)]) - of(&tcp(128), &[])).abs() < 0.2,
            "a small window does not notice"
        );
    }

    #[test]
    fn datagrams_share_a_full_link_as_they_offer() {
        let full = of(&udp(1000, 1), &[]);
        assert!((of(&udp(100, 1), &[udp(30, 10)]) - full / 4.0).abs() < 0.1);
        assert!((of(&udp(20, 1), &[udp(30, 1)]) - 20.0).abs() < 0.001);
        assert!(
            (of(&udp(20, 1), &[tcp(4096)]) - 20.0).abs() < 0.001,
            "TCP gives way"
        );
    }

    #[test]
    fn streams_of_tcp_share_fairly() {
        let whole = of(&tcp(4096), &[]);
        assert!((of(&tcp(4096), &[tcp(4096)]) - whole / 2.0).abs() < 0.5);
        assert!((of(&tcp(4096), &[tcp(128)]) - (whole - of(&tcp(128), &[]))).abs() < 0.5);
        let three = Request {
            streams: 3,
            ..tcp(4096)
        };
        assert!((of(&tcp(4096), &[three]) - whole / 4.0).abs() < 0.5);
    }
}
