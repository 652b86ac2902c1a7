//! Reports of a relay about a connection that it has carried.

use std::net::SocketAddr;

use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TcpInfo;

/// A connection that a relay carried from a client to a target, and that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelayedConnection {
    /// Address and port of the client; at the far relay of a pair, of the near relay.
    pub client: SocketAddr,
    /// The target, as HOST:PORT.
    pub target: String,
    /// Payload that came from the client.
    pub from_client: ByteCount,
    /// Payload that came from the target.
    pub from_target: ByteCount,
    /// Time since both sides were connected.
    pub duration: Span,
    /// The end of the connection.
    pub ending: RelayEnding,
    /// Bytes at most that were acknowledged to one end and that the other end has not acknowledged; zero where both
    /// ends closed.
    pub undelivered: ByteCount,
    /// The bytes of the blocks between the relays, if they compress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<RelayCompression>,
    /// The stretch between the client and this relay.
    pub client_stretch: RelayStretch,
    /// The stretch between this relay and the target, or the other relay.
    pub target_stretch: RelayStretch,
}

/// The blocks of a connection between two relays that compress, without the bytes of TLS, TCP and IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayCompression {
    /// Bytes that carried the payload of the client.
    pub from_client: ByteCount,
    /// Bytes that carried the payload of the target.
    pub from_target: ByteCount,
    /// Payload of both directions over the duration.
    pub effective_rate: BitRate,
    /// Bytes of both directions over the duration.
    pub wire_rate: BitRate,
}

/// The end of a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RelayEnding {
    /// Both ends closed, and everything was passed on.
    Closed,
    /// The client reset the connection, or was not reachable any more.
    ClientReset,
    /// The target or the other relay reset the connection, or was not reachable any more.
    TargetReset,
    /// The other relay does not permit the target.
    Forbidden,
    /// The other relay could not connect to the target.
    Unreachable,
    /// The other relay sent bytes that are none of TLS, or that cannot be decompressed within the size of a block.
    Malformed,
    /// The relay stopped before the ends had closed.
    Stopped,
}

/// One of the two TCP connections that a relay joins, as `TCP_INFO` of this host describes what it sent there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelayStretch {
    /// Smoothed round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    /// Segments that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<SegCount>,
    /// Time during which data was on its way.
    pub busy: Span,
    /// Time during which the receiver's window was full.
    pub receive_window_limited: Span,
    /// Time during which this host's send buffer was full.
    pub send_buffer_limited: Span,
    /// The limit of what was sent here.
    pub limit: RelayLimit,
}

/// The limit of what a relay sent over one stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RelayLimit {
    /// For more than half of the time there was nothing to send: the limit is elsewhere.
    Idle,
    /// For more than half of the busy time the receiver's window was full.
    ReceiveWindow,
    /// For more than half of the busy time the send buffer was full.
    SendBuffer,
    /// The congestion window: the path of this stretch.
    CongestionWindow,
}

impl RelayStretch {
    /// Returns the figures of a stretch from the kernel's, after a connection of `duration`.
    pub fn of(info: &TcpInfo, duration: Span) -> Self {
        let span = |of: Option<Span>| of.unwrap_or_default();
        let (busy, window, buffer) = (span(info.busy), span(info.rwnd_limited), span(info.sndbuf_limited));
        let limit = match () {
            () if busy * 2 < duration || busy == Span::ZERO => RelayLimit::Idle,
            () if window * 2 > busy => RelayLimit::ReceiveWindow,
            () if buffer * 2 > busy => RelayLimit::SendBuffer,
            () => RelayLimit::CongestionWindow,
        };
        Self {
            rtt: info.rtt,
            retransmitted: info.total_retrans,
            busy,
            receive_window_limited: window,
            send_buffer_limited: buffer,
            limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_limited_by_what_took_most_of_its_busy_time() {
        let limit = |busy, window, buffer| {
            let span = |millis| Some(Span::from_millis(millis));
            let info = TcpInfo {
                busy: span(busy),
                rwnd_limited: span(window),
                sndbuf_limited: span(buffer),
                ..TcpInfo::default()
            };
            RelayStretch::of(&info, Span::from_millis(1000)).limit
        };
        assert_eq!(limit(400, 400, 0), RelayLimit::Idle);
        assert_eq!(limit(900, 500, 100), RelayLimit::ReceiveWindow);
        assert_eq!(limit(900, 100, 500), RelayLimit::SendBuffer);
        assert_eq!(limit(900, 100, 100), RelayLimit::CongestionWindow);
        assert_eq!(RelayStretch::of(&TcpInfo::default(), Span::ZERO).limit, RelayLimit::Idle);
    }
}
