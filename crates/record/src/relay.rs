//! Reports of a relay about a connection that it has carried.

use std::net::SocketAddr;

use crate::TcpInfo;
use crate::prelude::*;

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
    /// Bytes at most that were acknowledged to one end and that the other end has not acknowledged;
    /// zero where both ends closed.
    pub undelivered: ByteCount,
    /// The bytes of the blocks between the relays, if they compress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<RelayCompression>,
    /// The stretch between the client and this relay.
    pub client_stretch: RelayStretch,
    /// The stretch between this relay and the target, or the other relay.
    pub target_stretch: RelayStretch,
}

/// The blocks of a connection between two relays that compress, without the bytes of TLS, TCP and
/// IP.
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

/// The two ends of a connection that a relay begins to carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayJoined {
    /// Address and port of the client; at the far relay of a pair, of the near relay.
    pub client: SocketAddr,
    /// The target, as HOST:PORT.
    pub target: String,
}

/// The part of a relayed connection since its last report, or since its begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelayProgress {
    /// Address and port of the client; at the far relay of a pair, of the near relay.
    pub client: SocketAddr,
    /// The target, as HOST:PORT.
    pub target: String,
    /// Time since both sides were connected.
    pub duration: Span,
    /// Length of this part.
    pub interval: Span,
    /// Payload that came from the client in this part.
    pub from_client: ByteCount,
    /// Payload that came from the target in this part.
    pub from_target: ByteCount,
    /// Rate of the payload from the client.
    pub client_rate: BitRate,
    /// Rate of the payload from the target.
    pub target_rate: BitRate,
    /// The stretch between the client and this relay, in this part.
    pub client_stretch: RelayStretch,
    /// The stretch between this relay and the target, or the other relay, in this part.
    pub target_stretch: RelayStretch,
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
    /// The other relay could not connect to the target, or did not answer.
    Unreachable,
    /// The other relay sent bytes that are none of TLS, or that cannot be decompressed within the
    /// size of a block.
    Malformed,
    /// The relay stopped before the ends had closed.
    Stopped,
    /// An end did not take what waited for it in the relay's kernel, and the client had too much
    /// there.
    NotTaken,
}

/// One of the two TCP connections that a relay joins, as `TCP_INFO` of this host describes what it
/// sent there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelayStretch {
    /// Smoothed round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    /// Retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<SegCount>,
    /// Share of packets that were lost without a queue, if that is so. This host has used BBR
    /// since, if its kernel permits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Ratio>,
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
    /// Returns the figures of a stretch from the kernel's, after a connection of `duration`; the
    /// share that was `lost` without a queue is known or not.
    pub fn from_tcp_info(info: &TcpInfo, lost: Option<Ratio>, duration: Span) -> Self {
        let figures = Self {
            rtt: info.rtt,
            retransmitted: info.total_retrans,
            lost,
            busy: info.busy.unwrap_or_default(),
            receive_window_limited: info.rwnd_limited.unwrap_or_default(),
            send_buffer_limited: info.sndbuf_limited.unwrap_or_default(),
            limit: RelayLimit::Idle,
        };
        figures.with_limit(duration)
    }

    /// Returns the figures of the `interval` since `before`.
    #[must_use]
    pub fn figures_since(&self, before: &Self, interval: Span) -> Self {
        let span = |of: fn(&Self) -> Span| of(self).saturating_sub(of(before));
        let [now, then] =
            [self, before].map(|stretch| stretch.retransmitted.map_or(0, SegCount::get));
        let figures = Self {
            rtt: self.rtt,
            retransmitted: self
                .retransmitted
                .map(|_| SegCount::new(now.saturating_sub(then))),
            lost: self.lost,
            busy: span(|stretch| stretch.busy),
            receive_window_limited: span(|stretch| stretch.receive_window_limited),
            send_buffer_limited: span(|stretch| stretch.send_buffer_limited),
            limit: RelayLimit::Idle,
        };
        figures.with_limit(interval)
    }

    /// Sets the limit in a time of `duration`.
    fn with_limit(mut self, duration: Span) -> Self {
        let busy = self.busy;
        self.limit = match () {
            () if busy * 2 < duration || busy == Span::ZERO => RelayLimit::Idle,
            () if self.receive_window_limited * 2 > busy => RelayLimit::ReceiveWindow,
            () if self.send_buffer_limited * 2 > busy => RelayLimit::SendBuffer,
            () => RelayLimit::CongestionWindow,
        };
        self
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
            RelayStretch::from_tcp_info(&info, None, Span::from_millis(1000)).limit
        };
        assert_eq!(limit(400, 400, 0), RelayLimit::Idle);
        assert_eq!(limit(900, 500, 100), RelayLimit::ReceiveWindow);
        assert_eq!(limit(900, 100, 500), RelayLimit::SendBuffer);
        assert_eq!(limit(900, 100, 100), RelayLimit::CongestionWindow);
        assert_eq!(
            RelayStretch::from_tcp_info(&TcpInfo::default(), None, Span::ZERO).limit,
            RelayLimit::Idle
        );
    }

    #[test]
    fn the_limit_since_a_report_is_not_that_of_the_whole() {
        let stretch = |busy, window, again| {
            let info = TcpInfo {
                busy: Some(Span::from_millis(busy)),
                rwnd_limited: Some(Span::from_millis(window)),
                total_retrans: Some(SegCount::new(again)),
                ..TcpInfo::default()
            };
            RelayStretch::from_tcp_info(&info, None, Span::from_millis(busy))
        };
        let (before, now) = (stretch(9000, 8000, 4), stretch(10_000, 8100, 7));
        assert_eq!(now.limit, RelayLimit::ReceiveWindow);
        let since = now.figures_since(&before, Span::from_secs(1));
        assert_eq!(
            (since.limit, since.retransmitted),
            (RelayLimit::CongestionWindow, Some(SegCount::new(3)))
        );
        assert_eq!(
            (since.busy, since.receive_window_limited),
            (Span::from_secs(1), Span::from_millis(100))
        );
        assert_eq!(
            now.figures_since(&now, Span::from_secs(1)).limit,
            RelayLimit::Idle
        );
    }
}
