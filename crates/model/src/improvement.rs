//! The change that removes a limit on the rate, as calculations, verdicts and the advice for a host
//! all choose it.

use fullpipe_record::Change;

use crate::kernel;
use crate::loss::CongestionControl;
use crate::prelude::*;

/// Name of the congestion control that does not reduce its rate at each loss.
pub const LOSS_TOLERANT: &str = "bbr";

/// The setting that limits the size of a window or of a socket buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowConstraint {
    /// The program sets a fixed socket buffer or window.
    FixedBuffer,
    /// Window scaling is off at one of the hosts.
    NoScaling,
    /// The receiver does not tune its receive buffer (`tcp_moderate_rcvbuf` is 0).
    NoAutotuning,
    /// The third value of `tcp_rmem` at the receiver is too small.
    ReceiveMaximum,
    /// The third value of `tcp_wmem` at the sender is too small.
    SendMaximum,
}

impl WindowConstraint {
    /// Returns the setting that causes `limit`; `None` if `limit` is neither the receive window nor
    /// the send buffer.
    pub fn from_limit(
        limit: Limit,
        buffer_is_fixed: bool,
        sender: &HostSettings,
        receiver: &HostSettings,
    ) -> Option<Self> {
        let are_scaled = sender.window_scaling && receiver.window_scaling;
        match limit {
            Limit::SendBuffer | Limit::ReceiveWindow if buffer_is_fixed => Some(Self::FixedBuffer),
            Limit::SendBuffer => Some(Self::SendMaximum),
            Limit::ReceiveWindow if !are_scaled => Some(Self::NoScaling),
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

    /// Returns the third value of `tcp_rmem` or `tcp_wmem` that allows `window` in flight, with
    /// room to repair losses; `None` if this constraint is neither of these values.
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

    /// Returns the reason for the size that [`Self::maximum_for`] gives, as a clause; `None` where
    /// it gives none.
    pub fn reason_for_maximum(
        self,
        window: ByteCount,
        control: CongestionControl,
        receiver: &HostSettings,
    ) -> Option<String> {
        match self {
            Self::ReceiveMaximum => {
                let share = kernel::WindowShare::settled_share(receiver).as_ratio();
                Some(format!(
                    "2 × {window} on the way ÷ {share}, the share of the buffer that is window: the kernel tunes \
                     towards two windows"
                ))
            }
            Self::SendMaximum => {
                let (windows, name) = (control.send_windows(), control.display_name());
                Some(format!(
                    "{windows} × {window} on the way: under {name} the kernel lets the buffer grow to {windows} \
                     windows, to keep what is lost while it sends on"
                ))
            }
            Self::FixedBuffer | Self::NoScaling | Self::NoAutotuning => None,
        }
    }

    /// Returns the change that removes this constraint; `None` if the change needs a `maximum` and
    /// `maximum` is `None`.
    pub fn removing_change(self, maximum: Option<ByteCount>) -> Option<Change> {
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

/// Returns true if a host can use the congestion control that tolerates loss.
pub fn can_tolerate_loss(sender: &HostSettings) -> bool {
    sender
        .available_congestion_controls
        .iter()
        .any(|name| name == LOSS_TOLERANT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_window_is_small_for_the_first_of_its_reasons() {
        let host = HostSettings::of_linux_6_18();
        let fixed = HostSettings {
            moderate_rcvbuf: false,
            ..host.clone()
        };
        let unscaled = HostSettings {
            window_scaling: false,
            ..fixed.clone()
        };
        let of = |fixed, receiver| {
            WindowConstraint::from_limit(Limit::ReceiveWindow, fixed, &host, receiver)
        };
        assert_eq!(of(true, &unscaled), Some(WindowConstraint::FixedBuffer));
        assert_eq!(of(false, &unscaled), Some(WindowConstraint::NoScaling));
        assert_eq!(of(false, &fixed), Some(WindowConstraint::NoAutotuning));
        assert_eq!(of(false, &host), Some(WindowConstraint::ReceiveMaximum));
        assert_eq!(
            WindowConstraint::from_limit(Limit::Capacity, true, &host, &host),
            None
        );
    }

    #[test]
    fn a_maximum_takes_a_size_and_a_switch_takes_none() {
        let size = Some(ByteCount::from_mib(24));
        assert_eq!(
            WindowConstraint::SendMaximum.removing_change(size),
            Some(Change::TcpWmemMax(ByteCount::from_mib(24)))
        );
        assert_eq!(WindowConstraint::ReceiveMaximum.removing_change(None), None);
        assert_eq!(
            WindowConstraint::NoScaling.removing_change(None),
            Some(Change::WindowScaling(true))
        );
    }
}
