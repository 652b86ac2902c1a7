//! Connections that a relay has carried.

use fullpipe_record::{RelayEnding, RelayLimit, RelayStretch, RelayedConnection};
use fullpipe_units::{BitRate, ByteCount};

/// Returns the line of a relayed connection that has ended.
pub fn relayed(done: &RelayedConnection) -> String {
    let RelayedConnection { client, target, from_client, from_target, duration, .. } = done;
    let rate = BitRate::of(*from_client + *from_target, *duration);
    let ending = match done.ending {
        RelayEnding::Closed => "closed",
        RelayEnding::ClientReset => "reset by the client",
        RelayEnding::TargetReset => "reset by the target",
        RelayEnding::Forbidden => "reset: the far relay does not permit the target",
        RelayEnding::Unreachable => "reset: the far relay cannot reach the target",
        RelayEnding::Malformed => "reset: the other relay sent bytes that are not valid",
        RelayEnding::Stopped => "reset: this relay stopped",
    };
    let lost = match done.undelivered {
        ByteCount::ZERO => String::new(),
        bytes => format!(", up to {bytes} acknowledged and not delivered"),
    };
    let limits =
        format!("to the client {}, to the target {}", limit(&done.client_stretch), limit(&done.target_stretch));
    let wire = done.compression.map_or_else(String::new, |blocks| format!(", {} between the relays", blocks.wire_rate));
    let bytes = format!("{from_client} sent, {from_target} received in {duration} ({rate}{wire})");
    format!("{client} → {target}: {bytes}, {ending}{lost}; {limits}")
}

fn limit(stretch: &RelayStretch) -> String {
    let limit = match stretch.limit {
        RelayLimit::Idle => "mostly idle",
        RelayLimit::ReceiveWindow => "limited by the receiver's window",
        RelayLimit::SendBuffer => "limited by the send buffer",
        RelayLimit::CongestionWindow => "limited by the congestion window",
    };
    stretch.rtt.map_or_else(|| limit.to_owned(), |rtt| format!("{limit} (RTT {rtt})"))
}
