//! The traffic of the device that carries the runs: theirs, and that of others.

use std::mem::replace;
use std::time::Instant;

use fullpipe_model::framing::tcp_headers;
use fullpipe_record::{DeviceCounts, IpVersion, SweepDevice, SweepTraffic};

use crate::prelude::*;

/// The device at the last reading of its counts.
#[derive(Debug, Default)]
pub(crate) struct DeviceReading {
    last: Option<(Instant, DeviceCounts)>,
}

/// A length of time, and the counts of the device over it.
type Passed = (Span, DeviceCounts);

impl DeviceReading {
    /// Takes the counts of `now`. Returns the counts since the last call; `None` if the device was
    /// not known then or is not now, or is another.
    pub(crate) fn counts_since_last(&mut self, now: Option<DeviceCounts>) -> Option<Passed> {
        let before = replace(&mut self.last, now.map(|counts| (Instant::now(), counts)));
        let ((since, earlier), (at, counts)) = (before?, self.last.as_ref()?);
        Some(((*at - since).into(), counts.counts_since(&earlier)?))
    }
}

/// Returns the device `during` a run with this `measurement`, and since the run `before` it.
/// `payload` is what the path carried in the direction of the data.
pub(crate) fn sweep_device(
    before: Option<&Passed>,
    during: Option<Passed>,
    measurement: &Measurement,
    payload: ByteCount,
) -> Option<SweepDevice> {
    let during = during?;
    let is_ipv6 = measurement
        .first_connection()
        .is_some_and(|[local, _]| local.ip().to_canonical().is_ipv6());
    let headers = tcp_headers(
        if is_ipv6 {
            IpVersion::V6
        } else {
            IpVersion::V4
        },
        true,
    );
    Some(SweepDevice {
        own: with_headers(payload, &during.1, measurement.request.direction, headers),
        name: during.1.name.clone(),
        speed: during.1.speed,
        before: before.map(sweep_traffic),
        during: sweep_traffic(&during),
    })
}

fn sweep_traffic((span, counts): &Passed) -> SweepTraffic {
    SweepTraffic {
        span: *span,
        sent: counts.sent,
        received: counts.received,
    }
}

/// Returns the bytes of a device for this `payload`, in packets as large as its MTU permits. A
/// driver that counts a train of segments as one packet counts its headers once, so there are not
/// more headers than packets.
fn with_headers(
    payload: ByteCount,
    device: &DeviceCounts,
    direction: Direction,
    headers: ByteCount,
) -> ByteCount {
    let segment = device.mtu.saturating_sub(headers).get().max(1);
    let packets = if direction == Direction::Download {
        device.received_packets
    } else {
        device.sent_packets
    };
    let packets = payload.get().div_ceil(segment).min(packets);
    payload + (headers + device.link_header) * packets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(packets: u64, bytes: u64) -> DeviceCounts {
        DeviceCounts {
            name: "eth0".to_owned(),
            mtu: ByteCount::new(1_500),
            link_header: ByteCount::new(14),
            sent_packets: packets,
            sent: ByteCount::new(bytes),
            ..DeviceCounts::default()
        }
    }

    #[test]
    fn counts_pass_from_one_reading_to_the_next_of_the_same_device() {
        let mut account = DeviceReading::default();
        assert_eq!(account.counts_since_last(Some(counts(10, 1_000))), None);
        let (_, more) = account.counts_since_last(Some(counts(25, 4_000))).unwrap();
        assert_eq!((more.sent_packets, more.sent), (15, ByteCount::new(3_000)));
        assert_eq!(
            account.counts_since_last(Some(counts(1, 100))),
            None,
            "it began anew"
        );
        let other = DeviceCounts {
            name: "eth1".to_owned(),
            ..counts(9, 900)
        };
        assert_eq!(account.counts_since_last(Some(other)), None);
        assert_eq!(account.counts_since_last(None), None);
        assert_eq!(account.counts_since_last(Some(counts(10, 1_000))), None);
    }

    #[test]
    fn a_run_has_a_header_for_each_packet_that_the_device_counts() {
        let payload = ByteCount::new(1_448_000);
        let headers = tcp_headers(IpVersion::V4, true);
        let of =
            |packets| with_headers(payload, &counts(packets, 0), Direction::Upload, headers).get();
        // Segments on the wire, with packets of others; and trains of 45.
        assert_eq!(of(1_000), 1_514_000);
        assert_eq!(of(9_000), 1_514_000);
        assert_eq!(of(23), 1_448_000 + 23 * 66);
        assert_eq!(
            with_headers(payload, &counts(1_000, 0), Direction::Download, headers),
            payload
        );
    }
}
