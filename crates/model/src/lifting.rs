//! The choice of the change that lifts a ceiling: one for calculations, verdicts and hosts.

use fullpipe_record::{Buffer, Change, HostSettings, Limit};
use fullpipe_units::ByteCount;

use crate::kernel;
use crate::loss::CongestionControl;

/// The congestion control that does not slow down for each loss.
const LOSS_TOLERANT: &str = "bbr";

/// The setting that keeps a window or a buffer of the hosts small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowFault {
    /// The program fixed its buffer or its window.
    FixedBuffer,
    /// Window scaling is off at an end.
    NoScaling,
    /// The receiver does not tune its buffer.
    NoAutotuning,
    /// The maximum of `tcp_rmem` is too small.
    ReceiveMaximum,
    /// The maximum of `tcp_wmem` is too small.
    SendMaximum,
}

impl WindowFault {
    /// Returns the setting behind a ceiling; `None` where the ceiling is no window and no buffer of the hosts.
    pub fn behind(limit: Limit, buffer_is_fixed: bool, sender: &HostSettings, receiver: &HostSettings) -> Option<Self> {
        match limit {
            Limit::SendBuffer | Limit::ReceiveWindow if buffer_is_fixed => Some(Self::FixedBuffer),
            Limit::SendBuffer => Some(Self::SendMaximum),
            Limit::ReceiveWindow if !(sender.window_scaling && receiver.window_scaling) => Some(Self::NoScaling),
            Limit::ReceiveWindow if !receiver.moderate_rcvbuf => Some(Self::NoAutotuning),
            Limit::ReceiveWindow => Some(Self::ReceiveMaximum),
            Limit::ReceiverApplication
            | Limit::SenderApplication
            | Limit::ApplicationWindow
            | Limit::CongestionWindow
            | Limit::Capacity
            | Limit::Loss
            | Limit::Pacing
            | Limit::Cpu
            | Limit::Mtu
            | Limit::Unknown => None,
        }
    }

    /// Returns the maximum of the buffer that holds `window` in flight, with room to repair losses; `None` where no
    /// maximum is at fault.
    pub fn maximum_for(
        self,
        window: ByteCount,
        control: CongestionControl,
        receiver: &HostSettings,
    ) -> Option<ByteCount> {
        match self {
            Self::ReceiveMaximum => Some(kernel::tcp_rmem_max_for(receiver, window)),
            Self::SendMaximum => Some(kernel::tcp_wmem_max_for(control, window)),
            Self::FixedBuffer | Self::NoScaling | Self::NoAutotuning => None,
        }
    }

    /// Returns the change that ends the fault; `None` where that takes a `maximum` and there is none.
    pub fn change(self, maximum: Option<ByteCount>) -> Option<Change> {
        match self {
            Self::FixedBuffer => Some(Change::SocketBuffer(Buffer::Automatic)),
            Self::NoScaling => Some(Change::WindowScaling(true)),
            Self::NoAutotuning => Some(Change::ModerateRcvbuf(true)),
            Self::ReceiveMaximum => maximum.map(Change::TcpRmemMax),
            Self::SendMaximum => maximum.map(Change::TcpWmemMax),
        }
    }
}

/// Returns the change to a congestion control that tolerates loss.
pub fn tolerate_loss() -> Change {
    Change::CongestionControl(LOSS_TOLERANT.to_owned())
}

/// Returns whether a host can use the congestion control that tolerates loss.
pub fn can_tolerate_loss(sender: &HostSettings) -> bool {
    sender.available_congestion_controls.iter().any(|name| name == LOSS_TOLERANT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_window_is_small_for_the_first_of_its_reasons() {
        let host = HostSettings::of_linux_6_18();
        let fixed = HostSettings { moderate_rcvbuf: false, ..host.clone() };
        let unscaled = HostSettings { window_scaling: false, ..fixed.clone() };
        let of = |fixed, receiver| WindowFault::behind(Limit::ReceiveWindow, fixed, &host, receiver);
        assert_eq!(of(true, &unscaled), Some(WindowFault::FixedBuffer));
        assert_eq!(of(false, &unscaled), Some(WindowFault::NoScaling));
        assert_eq!(of(false, &fixed), Some(WindowFault::NoAutotuning));
        assert_eq!(of(false, &host), Some(WindowFault::ReceiveMaximum));
        assert_eq!(WindowFault::behind(Limit::Capacity, true, &host, &host), None);
    }

    #[test]
    fn a_maximum_takes_a_size_and_a_switch_takes_none() {
        let size = Some(ByteCount::from_mib(24));
        assert_eq!(WindowFault::SendMaximum.change(size), Some(Change::TcpWmemMax(ByteCount::from_mib(24))));
        assert_eq!(WindowFault::ReceiveMaximum.change(None), None);
        assert_eq!(WindowFault::NoScaling.change(None), Some(Change::WindowScaling(true)));
    }
}
