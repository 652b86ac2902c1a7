//! The figures of both ends, and the limit that they show.

use std::time::Duration;

use fullpipe_record::{CopyLimit, TcpInfo};
use fullpipe_units::{BitRate, Ratio, SegCount, Span, printable_line};
use serde::{Deserialize, Serialize};

use crate::quic::QuicConnection;

/// The part of the time from which a limit is named.
const HALF: f64 = 0.5;

/// Figures of one end, which the other gets as JSON. What an end does not know is zero or absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    /// Seconds that all connections together had data on its way.
    busy: f64,
    /// Connections that had, as many as had data all the time.
    used: f64,
    /// Seconds of them with a full window of the receiver.
    receive_window: f64,
    /// Seconds of them with a full send buffer.
    send_buffer: f64,
    /// Seconds that all connections together were verified and written.
    working: f64,
    pub retransmitted: u64,
    pub congestion_control: Option<String>,
    /// Part of the time for which a sender that gives way to other traffic did.
    pub gave_way: Option<Ratio>,
    /// The sender has changed over from TCP to QUIC.
    pub changed_to_quic: bool,
}

fn total_seconds(infos: &[TcpInfo], time: fn(&TcpInfo) -> Option<Span>) -> f64 {
    infos.iter().filter_map(time).map(Span::as_secs_f64).sum()
}

impl Figures {
    pub(crate) fn of_sender(
        infos: &[TcpInfo],
        congestion_control: Option<String>,
        gave_way: Option<Ratio>,
    ) -> Self {
        let busy = total_seconds(infos, |info| info.busy);
        let longest = infos.iter().filter_map(|info| info.busy).max();
        let longest = longest.unwrap_or_default().as_secs_f64();
        let again = infos.iter().filter_map(|info| info.total_retrans);
        Self {
            busy,
            used: busy / longest.max(f64::MIN_POSITIVE),
            receive_window: total_seconds(infos, |info| info.rwnd_limited),
            send_buffer: total_seconds(infos, |info| info.sndbuf_limited),
            working: 0.0,
            retransmitted: again.map(SegCount::get).sum(),
            congestion_control,
            gave_way,
            changed_to_quic: false,
        }
    }

    /// Adds those of a QUIC connection with so many streams, which carries the data, or has changed
    /// over to do so.
    pub(crate) fn with_quic(
        mut self,
        connection: &QuicConnection,
        streams: u16,
        changed_to_quic: bool,
    ) -> Self {
        let figures = connection.quic_figures();
        self.busy += figures.busy.as_secs_f64() * f64::from(streams);
        self.retransmitted += figures.lost;
        self.congestion_control = Some(connection.congestion_control().to_owned());
        Self {
            changed_to_quic,
            ..self
        }
    }

    pub(crate) fn of_receiver(working: f64) -> Self {
        Self {
            working,
            ..Self::default()
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the figures of the other end; those that cannot be read are not known.
    pub(crate) fn from_json(json: &[u8]) -> Self {
        let mut figures: Self = serde_json::from_slice(json).unwrap_or_default();
        figures.congestion_control = figures.congestion_control.map(|name| printable_line(&name));
        figures.gave_way = figures.gave_way.filter(|part| *part <= Ratio::ONE);
        figures
    }

    /// Returns the limit, from the figures of the sender and the receiver, after `duration` on so
    /// many connections.
    pub(crate) fn copy_limit(
        sender: &Self,
        receiver: &Self,
        streams: u16,
        duration: Duration,
    ) -> CopyLimit {
        // Some may have had no part in it.
        let used = if sender.used > 0.0 {
            sender.used.min(streams.into())
        } else {
            streams.into()
        };
        let whole = duration.as_secs_f64() * used;
        match () {
            () if sender.gave_way.is_some_and(|part| part.get() > HALF) => CopyLimit::OtherTraffic,
            () if receiver.working > HALF * whole => CopyLimit::Storage,
            () if sender.busy < HALF * whole => CopyLimit::Source,
            () if sender.receive_window > HALF * sender.busy => CopyLimit::ReceiveWindow,
            () if sender.send_buffer > HALF * sender.busy => CopyLimit::SendBuffer,
            () => CopyLimit::CongestionWindow,
        }
    }
}

/// Returns true if a rate is what the user permits, but for the rounding of chunks.
pub(crate) fn is_limited(rate: BitRate, limit: Option<BitRate>) -> bool {
    limit.is_some_and(|limit| rate.as_f64() > 0.85 * limit.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_took_most_of_the_time() {
        let limit = |busy, receive_window, send_buffer, working| {
            let sender = Figures {
                busy,
                receive_window,
                send_buffer,
                ..Figures::default()
            };
            Figures::copy_limit(
                &sender,
                &Figures::of_receiver(working),
                2,
                Duration::from_secs(10),
            )
        };
        assert_eq!(limit(5.0, 0.0, 0.0, 1.0), CopyLimit::Source);
        assert_eq!(limit(19.0, 15.0, 0.0, 18.0), CopyLimit::Storage);
        assert_eq!(limit(19.0, 15.0, 0.0, 2.0), CopyLimit::ReceiveWindow);
        assert_eq!(limit(19.0, 1.0, 15.0, 2.0), CopyLimit::SendBuffer);
        assert_eq!(limit(19.0, 1.0, 1.0, 2.0), CopyLimit::CongestionWindow);
        let sender = Figures {
            gave_way: Some(Ratio::new(0.6)),
            ..Figures::default()
        };
        let gave_way =
            Figures::copy_limit(&sender, &Figures::default(), 2, Duration::from_secs(10));
        assert_eq!(gave_way, CopyLimit::OtherTraffic);
    }

    #[test]
    fn figures_that_make_no_sense_are_not_known() {
        let figures = Figures {
            busy: 1.5,
            congestion_control: Some("bbr".to_owned()),
            ..Figures::default()
        };
        assert_eq!(Figures::from_json(&figures.to_json()), figures);
        assert_eq!(Figures::from_json(b"\"text\""), Figures::default());
        let hostile = Figures::from_json(br#"{"congestion_control":"\u001b[2J"}"#);
        assert!(!hostile.congestion_control.unwrap().contains('\x1b'));
    }
}
