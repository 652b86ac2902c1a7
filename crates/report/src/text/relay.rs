//! Connections that a relay carries, or has carried.

use fullpipe_record::{RelayEnding, RelayLimit, RelayProgress, RelayStretch, RelayedConnection};

use super::prelude::*;

/// Returns the line of a relayed connection that has ended.
pub fn relay_line(done: &RelayedConnection) -> String {
    let RelayedConnection {
        client,
        target,
        from_client,
        from_target,
        duration,
        ..
    } = done;
    let rate = BitRate::from_bytes_in(*from_client + *from_target, *duration);
    let ending = match done.ending {
        RelayEnding::Closed => "closed",
        RelayEnding::ClientReset => "reset by the client",
        RelayEnding::TargetReset => "reset by the target",
        RelayEnding::Forbidden => "reset: the far relay does not permit the target",
        RelayEnding::Unreachable => "reset: the far relay cannot reach the target",
        RelayEnding::Malformed => "reset: the other relay sent bytes that are not valid",
        RelayEnding::Stopped => "reset: this relay stopped",
        RelayEnding::NotTaken => {
            "reset: too much that one end does not take waited in this host's kernel"
        }
    };
    let lost = match done.undelivered {
        ByteCount::ZERO => String::new(),
        bytes => format!(", up to {bytes} acknowledged and not delivered"),
    };
    let limits = stretch_limits(&done.client_stretch, &done.target_stretch);
    let wire = done
        .compression
        .map_text(|blocks| format!(", {} between the relays", blocks.wire_rate));
    let bytes = format!("{from_client} up, {from_target} down in {duration} ({rate}{wire})");
    format!("{client} → {target}: {bytes}, {ending}{lost}; {limits}")
}

/// Returns the line of a relayed connection that lasts.
pub fn relay_progress(progress: &RelayProgress) -> String {
    let RelayProgress {
        client,
        target,
        client_rate,
        target_rate,
        client_stretch,
        target_stretch,
        ..
    } = progress;
    let limits = stretch_limits(client_stretch, target_stretch);
    format!("{client} → {target}: {client_rate} up, {target_rate} down; {limits}")
}

/// Returns the limits of both stretches, without that of one that is mostly idle.
fn stretch_limits(client: &RelayStretch, target: &RelayStretch) -> String {
    let limited: Vec<String> = [("client", client), ("target", target)]
        .into_iter()
        .filter_map(|(name, stretch)| Some(format!("{name}: {}", stretch_limit(stretch)?)))
        .collect();
    if limited.is_empty() {
        "mostly idle".to_owned()
    } else {
        limited.join("; ")
    }
}

fn stretch_limit(stretch: &RelayStretch) -> Option<String> {
    let limit = match stretch.limit {
        RelayLimit::Idle => return None,
        RelayLimit::ReceiveWindow => "receive window",
        RelayLimit::SendBuffer => "send buffer",
        RelayLimit::CongestionWindow => "congestion window",
    };
    let rtt = stretch.rtt.map_text(|rtt| format!(", RTT {rtt}"));
    let lost = stretch
        .lost
        .map_text(|lost| format!(", {:.2} % lost", lost.as_percent()));
    Some(format!("{limit}{rtt}{lost}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::{Ratio, Span};

    #[test]
    fn a_connection_that_lasts_is_one_line_with_the_limit_of_each_stretch() {
        let second = Span::from_secs(1);
        let window = TcpInfo {
            busy: Some(second),
            rwnd_limited: Some(second),
            ..TcpInfo::default()
        };
        let line = relay_progress(&RelayProgress {
            client: ([192, 0, 2, 1], 4000).into(),
            target: "host:22".to_owned(),
            duration: second * 9,
            interval: second,
            from_client: ByteCount::new(12_500_000),
            from_target: ByteCount::ZERO,
            client_rate: BitRate::from_mbps(100),
            target_rate: BitRate::ZERO,
            client_stretch: RelayStretch::from_tcp_info(&TcpInfo::default(), None, second),
            target_stretch: RelayStretch::from_tcp_info(&window, Some(Ratio::new(1e-3)), second),
        });
        assert_eq!(
            line,
            "192.0.2.1:4000 → host:22: 100 Mbit/s up, 0 bit/s down; target: receive window, 0.10 % lost"
        );
    }
}
