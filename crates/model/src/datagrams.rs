//! Datagrams at a given rate: nothing bounds them but that rate and the link, and what finds no
//! room is lost.

use fullpipe_record::Ceiling;

use crate::prelude::*;
use crate::window::UNBOUNDED;
use crate::{LikelyFactor, framing, window};

/// The payload of each datagram that `request` sends along `direction`: its block, or what one
/// packet holds.
pub fn datagram_payload(direction: &PathDirection, request: &Request) -> ByteCount {
    let fits = direction
        .inner_mtu()
        .saturating_sub(framing::udp_headers(direction.ip));
    if request.block == ByteCount::ZERO {
        fits
    } else {
        request.block
    }
}

/// Payload ÷ bytes on the wire, from 0 to 1. A datagram that fits no packet travels as fragments,
/// each with an IP header of its own and, but for the last, a multiple of 8 bytes (RFC 791, section
/// 2.3).
pub fn payload_share(direction: &PathDirection, request: &Request) -> Ratio {
    const FRAGMENT_UNIT: u64 = 8;
    let payload = datagram_payload(direction, request);
    let whole =
        payload + framing::udp_headers(direction.ip).saturating_sub(direction.ip.header_bytes());
    let room = direction
        .inner_mtu()
        .saturating_sub(direction.ip.header_bytes());
    let packets = if whole <= room {
        1
    } else {
        whole
            .get()
            .div_ceil((room.get() / FRAGMENT_UNIT * FRAGMENT_UNIT).max(FRAGMENT_UNIT))
    };
    let around = (direction.ip.header_bytes() + direction.packet_overhead()) * packets;
    Ratio::from_quotient(payload.as_f64(), (whole + around).as_f64())
}

/// The rate that all streams of `request` offer; [`UNBOUNDED`] where they send as fast as they can.
pub fn offered_rate(request: &Request) -> BitRate {
    request
        .rate
        .map_or(UNBOUNDED, |rate| rate.scale_by(f64::from(request.streams)))
}

/// Returns the arrivals to expect of the datagrams of `request`: the offered rate, up to the
/// link's, less those lost at random. `textbook` counts a link by its own rate; `kernel_model` has
/// the headers of these datagrams.
pub(crate) fn predict_datagrams(path: &Path, request: &Request) -> Prediction {
    let forward = &path.forward;
    let efficiency = payload_share(forward, request);
    let arriving = 1.0 - forward.loss.unwrap_or(Ratio::ZERO).get().min(1.0);
    let offered = offered_rate(request);
    let mut ceilings = vec![datagram_ceiling(
        Limit::SenderApplication,
        offered,
        offered.scale_by(arriving),
        format!("{offered} offered"),
    )];
    ceilings.extend(forward.rate.map(|rate| {
        let payload = rate.scale_by(efficiency.get() * arriving);
        let formula = format!("{rate} × {efficiency}");
        datagram_ceiling(Limit::Capacity, rate, payload, formula)
    }));
    ceilings.sort_by_key(|ceiling| ceiling.kernel_model);
    Prediction {
        bdp: forward.rate.map(|rate| window::bdp(rate, path.rtt())),
        window_needed: None,
        efficiency,
        mss: datagram_payload(forward, request),
        limit: ceilings
            .first()
            .map_or(Limit::Unknown, |lowest| lowest.kind),
        textbook: least_rate(&ceilings, |ceiling| ceiling.textbook),
        kernel_model: least_rate(&ceilings, |ceiling| ceiling.kernel_model),
        low: least_rate(&ceilings, |ceiling| ceiling.low),
        high: least_rate(&ceilings, |ceiling| ceiling.high),
        ramp: Ramp {
            rounds: 0,
            duration: Span::ZERO,
            bytes: ByteCount::ZERO,
        },
        notes: Vec::new(),
        ceilings,
    }
}

fn least_rate(ceilings: &[Ceiling], rate: fn(&Ceiling) -> BitRate) -> BitRate {
    ceilings.iter().map(rate).min().unwrap_or(UNBOUNDED)
}

fn datagram_ceiling(
    kind: Limit,
    textbook: BitRate,
    kernel_model: BitRate,
    formula: String,
) -> Ceiling {
    let likely = LikelyFactor::by_rule();
    Ceiling {
        kind,
        textbook,
        kernel_model,
        low: kernel_model.scale_by(likely.low.get()),
        high: kernel_model.scale_by(likely.high.get()).min(textbook),
        window: None,
        formula,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{predict, test_fixture};
    use fullpipe_record::{Framing, Transport};

    fn elsen() -> Path {
        let mut path = test_fixture::ethernet_path(BitRate::from_mbps(100), Span::from_millis(173));
        path.forward.framing = Framing::Ip;
        path
    }

    fn datagrams(mbps: u64, streams: u16) -> Request {
        let rate = Some(BitRate::from_mbps(mbps));
        Request {
            transport: Transport::Udp,
            rate,
            streams,
            block: ByteCount::new(1470),
            ..Request::default()
        }
    }

    fn of(path: &Path, request: &Request) -> Prediction {
        let host = test_fixture::default_settings("6.18.44");
        predict(path, &host, &host, request)
    }

    #[test]
    fn elsens_datagrams_fill_98_of_100() {
        let got = of(&elsen(), &datagrams(110, 1));
        assert_eq!(
            (got.textbook, got.limit),
            (BitRate::from_mbps(100), Limit::Capacity)
        );
        assert_eq!(got.kernel_model.to_string(), "98.13 Mbit/s");
        assert_eq!(
            got.ceilings.iter().map(|ceiling| ceiling.kind).next_back(),
            Some(Limit::SenderApplication)
        );
    }

    #[test]
    fn what_is_offered_below_the_link_arrives_whole() {
        let got = of(&elsen(), &datagrams(9, 10));
        assert_eq!(
            (got.kernel_model, got.textbook, got.limit),
            (
                got.textbook,
                BitRate::from_mbps(90),
                Limit::SenderApplication
            )
        );
        let mut lossy = elsen();
        lossy.forward.loss = Some(Ratio::new(0.1));
        assert_eq!(
            of(&lossy, &datagrams(9, 10)).kernel_model,
            BitRate::from_mbps(81)
        );
    }

    #[test]
    fn a_flood_over_an_unknown_link_is_bound_by_nothing() {
        let mut path = elsen();
        path.forward.rate = None;
        let flood = Request {
            rate: None,
            ..datagrams(1, 1)
        };
        assert_eq!(of(&path, &flood).kernel_model, UNBOUNDED);
        assert_eq!(
            of(&elsen(), &flood).kernel_model.to_string(),
            "98.13 Mbit/s"
        );
    }

    #[test]
    fn fragments_cost_a_header_each() {
        let link = test_fixture::ethernet_path(BitRate::from_mbps(100), Span::ZERO).forward;
        for (block, percent) in [
            (0, "95.7087"),
            (1472, "95.7087"),
            (1473, "92.2354"),
            (8192, "95.8353"),
            (1, "1.4925"),
        ] {
            let request = Request {
                block: ByteCount::new(block),
                ..datagrams(1, 1)
            };
            assert_eq!(
                format!("{:.4}", payload_share(&link, &request).as_percent()),
                percent,
                "{block}"
            );
        }
        let tiny = PathDirection {
            mtu: ByteCount::new(20),
            ..link
        };
        assert!(
            payload_share(&tiny, &datagrams(1, 1)).get() < 0.2,
            "no room at all is no division by zero"
        );
    }
}
