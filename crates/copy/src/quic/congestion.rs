//! The congestion control of a QUIC connection: the CUBIC of the library, until the one who watches
//! the connection says that the path loses packets without a queue; from then on the model of
//! [`BbrModel`].

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

use super::bbr::BbrModel;
use crate::shared::{SharedFlag, SharedNumber};

/// Shared by the congestion control and the one who watches it.
#[derive(Debug, Default)]
pub(super) struct PathSignals {
    /// The path loses packets without a queue.
    is_lossy: SharedFlag,
    /// Nanoseconds of the shortest round trip; zero before the first.
    min_rtt: SharedNumber,
}

impl PathSignals {
    /// Asks for the model that loss does not slow down.
    pub(super) fn set_lossy(&self) {
        self.is_lossy.raise_flag();
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.is_lossy.is_raised()
    }

    /// Returns the shortest round-trip time so far; zero before the first.
    pub(super) fn min_rtt(&self) -> Duration {
        Duration::from_nanos(self.min_rtt.current_value())
    }
}

/// Makes the congestion control of a connection.
pub(super) struct CongestionFactory(pub Arc<PathSignals>);

impl ControllerFactory for CongestionFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::new(CubicConfig::default()).build(now, current_mtu);
        Box::new(AdaptiveController {
            cubic,
            bbr: None,
            mtu: current_mtu,
            signals: Arc::clone(&self.0),
        })
    }
}

struct AdaptiveController {
    cubic: Box<dyn Controller>,
    bbr: Option<BbrModel>,
    mtu: u16,
    signals: Arc<PathSignals>,
}

impl Controller for AdaptiveController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.signals.min_rtt.set_value(rtt.min().as_nanos() as u64);
        match &mut self.bbr {
            Some(bbr) => bbr.on_ack(now, sent, bytes, app_limited),
            None if self.signals.is_lossy() => {
                self.bbr = Some(BbrModel::new(now, self.cubic.window(), self.mtu, rtt.min()));
            }
            None => self.cubic.on_ack(now, sent, bytes, app_limited, rtt),
        }
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.cubic
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        match &mut self.bbr {
            Some(bbr) if is_persistent_congestion => bbr.begin_anew(now),
            Some(_) => {}
            None => self
                .cubic
                .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes),
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.cubic.on_mtu_update(new_mtu);
        if let Some(bbr) = &mut self.bbr {
            bbr.set_mtu(new_mtu);
        }
    }

    fn window(&self) -> u64 {
        self.bbr
            .as_ref()
            .map_or_else(|| self.cubic.window(), BbrModel::window_bytes)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let (cubic, bbr) = (self.cubic.clone_box(), self.bbr.clone());
        Box::new(Self {
            cubic,
            bbr,
            mtu: self.mtu,
            signals: Arc::clone(&self.signals),
        })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
