//! One load through a pair of relays that split its path.

use crate::improvement::{LOSS_TOLERANT, can_tolerate_loss};
use crate::predict::predict;
use crate::prelude::*;
use crate::unqueued::LOSSY;

/// Round-trip time between a relay and its host where the user states none: that of two machines in
/// one building.
pub const USUAL_RELAY_RTT: Span = Span::from_millis(1);

/// Returns the prediction for `request` over the `stretches` from a sender to the near relay, from
/// there to the far one, and from there to a receiver, each of which has a TCP connection of its
/// own: that of the stretch that carries least, with the ramp of the middle one, which is the
/// longest.
///
/// `ends` are sender and receiver. Both relays have the settings `relay`, choose no buffers, and
/// leave the congestion control to their kernel, but for BBR where the middle stretch loses packets
/// and their kernel has it.
pub fn predict_with_relays(
    stretches: &[Path; 3],
    [sender, receiver]: [&HostSettings; 2],
    relay: &HostSettings,
    request: &Request,
) -> Prediction {
    let [near, middle, far] = stretches;
    let congestion = congestion_between_relays(middle.forward.loss, relay);
    let own = Request {
        buffer: Buffer::Automatic,
        congestion,
        ..request.clone()
    };
    let middle = predict(middle, relay, relay, &own);
    let ramp = middle.ramp;
    let outer = [
        predict(near, sender, relay, request),
        predict(far, relay, receiver, request),
    ];
    let slowest = outer.into_iter().fold(middle, |slowest, other| {
        if other.kernel_model < slowest.kernel_model {
            other
        } else {
            slowest
        }
    });
    Prediction { ramp, ..slowest }
}

/// Returns the congestion control that relays with the settings `relay` change to on a stretch that
/// loses this share of its packets without a queue; `None` if they leave it to their kernel.
pub fn congestion_between_relays(loss: Option<Ratio>, relay: &HostSettings) -> Option<String> {
    let loses = loss.is_some_and(|loss| loss.get() >= LOSSY);
    (loses && can_tolerate_loss(relay)).then(|| LOSS_TOLERANT.to_owned())
}

#[cfg(test)]
mod tests {
    use fullpipe_record::Limit;
    use fullpipe_units::{BitRate, ByteCount};

    use super::*;
    use crate::test_fixture::ethernet_path;

    fn window(bytes: u64) -> Request {
        Request {
            buffer: Buffer::Window(ByteCount::new(bytes)),
            ..Request::default()
        }
    }

    #[test]
    fn small_windows_of_the_ends_limit_only_their_short_stretches() {
        let lan = ethernet_path(BitRate::from_mbps(1000), Span::from_micros(200));
        let wan = ethernet_path(BitRate::from_mbps(100), Span::from_millis(173));
        let stretches = [lan.clone(), wan.clone(), lan];
        let host = HostSettings::of_linux_6_18();
        let direct = predict(&wan, &host, &host, &window(65_536)).kernel_model;
        assert!(direct < BitRate::from_mbps(4));
        let relayed = predict_with_relays(&stretches, [&host, &host], &host, &window(65_536));
        assert_eq!(relayed.limit, Limit::Capacity);
        assert_eq!(
            relayed.kernel_model,
            predict(&wan, &host, &host, &Request::default()).kernel_model
        );
        // A window of one segment does not even fill the short ones.
        let tiny = predict_with_relays(&stretches, [&host, &host], &host, &window(1_448));
        assert_eq!(tiny.limit, Limit::ReceiveWindow);
        assert_eq!(tiny.ramp, relayed.ramp);
    }

    #[test]
    fn loss_of_the_long_stretch_limits_relays_without_bbr() {
        let lan = ethernet_path(BitRate::from_mbps(1000), Span::from_micros(200));
        let mut wan = ethernet_path(BitRate::from_mbps(100), Span::from_millis(173));
        wan.forward.loss = Some(Ratio::new(1e-3));
        let stretches = [lan.clone(), wan, lan];
        let host = HostSettings::of_linux_6_18();
        let with_bbr = predict_with_relays(&stretches, [&host, &host], &host, &window(65_536));
        assert!(
            with_bbr.kernel_model > BitRate::from_mbps(80),
            "{with_bbr:?}"
        );
        let relay = HostSettings {
            available_congestion_controls: vec!["cubic".to_owned()],
            ..host.clone()
        };
        let without = predict_with_relays(&stretches, [&host, &host], &relay, &window(65_536));
        assert_eq!(without.limit, Limit::Loss);
    }
}
