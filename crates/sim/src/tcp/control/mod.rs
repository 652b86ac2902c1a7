//! Congestion controls, each in the integer arithmetic of its kernel module.

mod bbr;
mod cubic;

use std::fmt;
use std::str::FromStr;

pub(crate) use bbr::{Bbr, BbrSituation, RecoveryPhase};
pub(crate) use cubic::Cubic;

use crate::tcp::window::CongestionWindow;

/// The congestion controls that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681, as `tcp_cong.c` has it.
    Reno,
    /// `tcp_cubic.c`, with HyStart.
    Cubic,
    /// `tcp_bbr.c`: version 1.
    Bbr,
}

impl CongestionControl {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// The kernel's name.
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel_name())
    }
}

impl FromStr for CongestionControl {
    type Err = String;

    /// Reads the kernel's name. Fails if it is of a control that is not modelled.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|control| control.kernel_name() == name);
        found.ok_or_else(|| {
            format!("congestion control \"{name}\" is not modelled: reno, cubic and bbr are")
        })
    }
}

/// A congestion control with its state.
#[derive(Debug, Clone)]
pub(crate) enum ControlState {
    Reno,
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

impl ControlState {
    pub(crate) const fn as_bbr(&self) -> Option<&Bbr> {
        match self {
            Self::Bbr(bbr) => Some(bbr),
            Self::Reno | Self::Cubic(_) => None,
        }
    }

    pub(crate) const fn is_bbr(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// Returns the slow start threshold after a loss (`ssthresh`).
    pub(crate) fn on_loss(&mut self, window: &CongestionWindow) -> u64 {
        match self {
            Self::Reno => (window.cwnd >> 1).max(2),
            Self::Cubic(cubic) => cubic.on_loss(window.cwnd),
            Self::Bbr(bbr) => {
                bbr.save_window(window.cwnd);
                window.ssthresh
            }
        }
    }

    /// Grows the window where `acked` segments were delivered and it was in use (`cong_avoid`).
    pub(crate) fn grow_window(&mut self, window: &mut CongestionWindow, acked: u64, ticks: u64) {
        if !window.is_limiting() {
            return;
        }
        let mut acked = acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        let per_segment = match self {
            Self::Cubic(cubic) => cubic.acks_per_segment(window.cwnd, acked, ticks),
            Self::Reno | Self::Bbr(_) => window.cwnd,
        };
        window.grow_additively(per_segment, acked);
    }
}
