//! The search for changes that raise the predicted rate of a transfer until a target is met.

use crate::improvement::{WindowConstraint, tolerate_loss};
use crate::kernel;
use crate::prelude::*;
use fullpipe_record::{Change, Improvement};

use super::case::{HostPair, PredictorCase, estimate_inputs};
use super::critical::{CriticalValue, least_sufficient};
use super::needs::MAX_STREAMS;
use super::sizing::{maximum_for, window_for};
use super::target::TransferTarget;

/// Returns changes of the inputs and the hosts that together raise the predicted rate, and the
/// estimate with all these changes.
///
/// Each change is chosen for the limit that is left after the earlier ones: of the changes known
/// against this limit, the first that raises the rate, even if another would raise the rate more.
/// The search ends when `target` is met or no known change raises the rate any more. A maximum of
/// `tcp_wmem` or `tcp_rmem` is raised to the value with which Linux allows the window that the
/// payload `rate` needs. The changes against loss are BBR, whose rate the model does not limit for
/// a loss of up to 10 %, and more streams.
///
/// Returns `None` if the target is met without a change, or if no known change raises the rate.
pub(crate) fn find_improvement(
    target: TransferTarget,
    rate: BitRate,
    inputs: &Inputs,
    hosts: &HostPair,
) -> Option<Improvement> {
    let mut state = ImprovementState {
        inputs: inputs.clone(),
        hosts: hosts.clone(),
    };
    // A buffer for a higher rate than the link's would gain nothing.
    let rate = PredictorCase::from_inputs(inputs)
        .payload_capacity(hosts)
        .map_or(rate, |capacity| rate.min(capacity));
    let mut changes = Vec::new();
    let mut current = estimate_inputs(inputs, hosts);
    while !target.is_met(&state.inputs, &state.hosts) {
        let Some((change, improved)) = state.first_improvement(target, rate, current) else {
            break;
        };
        state.apply_change(&change);
        changes.retain(|earlier| !replaces_setting(&change, earlier));
        changes.push(change);
        current = improved;
    }
    (!changes.is_empty()).then_some(Improvement {
        changes,
        after: current,
    })
}

/// The inputs and the hosts with the changes so far.
struct ImprovementState {
    inputs: Inputs,
    hosts: HostPair,
}

impl ImprovementState {
    /// Returns the first candidate that raises the kernel model's rate above that of `current`, the
    /// estimate for this state, and the estimate with the candidate; `None` if there is no such
    /// candidate.
    fn first_improvement(
        &self,
        target: TransferTarget,
        rate: BitRate,
        current: Estimate,
    ) -> Option<(Change, Estimate)> {
        self.candidate_changes(current.limit, target, rate)
            .into_iter()
            .find_map(|change| {
                let changed = self.with_change(&change);
                let improved = estimate_inputs(&changed.inputs, &changed.hosts);
                (improved.kernel_model > current.kernel_model).then_some((change, improved))
            })
    }

    /// Returns the changes to try, in this order: a larger fixed buffer, if the target is met with
    /// it; the change that removes the constraint behind `limit`; the changes against loss.
    fn candidate_changes(
        &self,
        limit: Limit,
        target: TransferTarget,
        rate: BitRate,
    ) -> Vec<Change> {
        let HostPair {
            sender, receiver, ..
        } = &self.hosts;
        let constraint =
            WindowConstraint::from_limit(limit, self.is_fixed(limit), sender, receiver)
                .filter(|constraint| self.is_removable(*constraint));
        let removing = constraint.and_then(|constraint| {
            constraint.removing_change(maximum_for(constraint, rate, &self.inputs, &self.hosts))
        });
        let larger = constraint
            .filter(|constraint| *constraint == WindowConstraint::FixedBuffer)
            .and_then(|_| {
                let larger = Change::SocketBuffer(self.larger_buffer(self.needed_window(rate)?));
                self.is_met_with(target, &larger).then_some(larger)
            });
        larger
            .into_iter()
            .chain(removing)
            .chain(self.changes_against_loss(target))
            .collect()
    }

    /// Returns BBR, and the number of streams that meets the target if there is one; nothing if the
    /// loss is unknown or zero. These changes are candidates for every limit, because losses lower
    /// the rate below another limit too.
    fn changes_against_loss(&self, target: TransferTarget) -> Vec<Change> {
        if self.inputs.loss.is_none_or(|loss| loss == Ratio::ZERO) {
            return Vec::new();
        }
        [tolerate_loss()]
            .into_iter()
            .chain(self.needed_streams(target).map(Change::Streams))
            .collect()
    }

    /// Returns the window that each stream needs for the payload `rate` of all streams, but at
    /// least the stream's share of the BDP that the report shows, which counts headers too; `None`
    /// if the prediction does not yield a window.
    fn needed_window(&self, rate: BitRate) -> Option<ByteCount> {
        let prediction = PredictorCase::from_inputs(&self.inputs).prediction(&self.hosts);
        let bdp_of_stream = prediction.bdp_of_each(self.inputs.streams.unwrap_or(1));
        window_for(rate, &prediction)
            .map(|needed| bdp_of_stream.map_or(needed, |bdp| needed.max(bdp)))
    }

    /// Returns the smallest number of streams that meets the target; `None` if one stream meets the
    /// target, or if [`MAX_STREAMS`] streams miss the target.
    fn needed_streams(&self, target: TransferTarget) -> Option<u16> {
        let least = least_sufficient(1, MAX_STREAMS.into(), |streams| {
            self.is_met_with(target, &Change::Streams(streams as u16))
        });
        match least {
            CriticalValue::At(streams) => Some(streams as u16),
            CriticalValue::Never | CriticalValue::Always => None,
        }
    }

    /// Returns true if the target is met in this state with `change`.
    fn is_met_with(&self, target: TransferTarget, change: &Change) -> bool {
        let changed = self.with_change(change);
        target.is_met(&changed.inputs, &changed.hosts)
    }

    /// Returns a copy of this state with `change`.
    fn with_change(&self, change: &Change) -> Self {
        let mut changed = Self {
            inputs: self.inputs.clone(),
            hosts: self.hosts.clone(),
        };
        changed.apply_change(change);
        changed
    }

    /// Makes `change`; a change that is never a candidate has no effect.
    fn apply_change(&mut self, change: &Change) {
        match change {
            Change::SocketBuffer(Buffer::Automatic) => {
                self.leave_buffers();
            }
            Change::SocketBuffer(Buffer::Window(window)) => self.inputs.window = Some(*window),
            Change::SocketBuffer(Buffer::Request(request)) => {
                self.leave_buffers();
                self.inputs.buffer = Some(*request);
            }
            Change::CongestionControl(name) => self.inputs.congestion = Some(name.clone()),
            Change::Streams(streams) => self.inputs.streams = Some(*streams),
            Change::TcpWmemMax(_) => self.hosts.sender = change.applied_to(&self.hosts.sender),
            Change::TcpRmemMax(_) | Change::ModerateRcvbuf(_) => {
                self.hosts.receiver = change.applied_to(&self.hosts.receiver);
            }
            Change::WindowScaling(_) => {
                self.hosts.sender = change.applied_to(&self.hosts.sender);
                self.hosts.receiver = change.applied_to(&self.hosts.receiver);
            }
            // These changes are never candidates.
            Change::Sysctl { .. }
            | Change::Rate(_)
            | Change::MaxPacingRate(_)
            | Change::RouteMetric { .. }
            | Change::Qdisc { .. }
            | Change::QueueLength { .. }
            | Change::Offload { .. }
            | Change::Mtu { .. } => {}
        }
    }

    /// Leaves the buffers of both ends to their kernels.
    fn leave_buffers(&mut self) {
        let inputs = &mut self.inputs;
        (inputs.window, inputs.buffer) = (None, None);
        (inputs.stated.sndbuf, inputs.stated.rcvbuf) = (None, None);
    }

    /// Returns true if the inputs fix the window or the socket buffer behind `limit`.
    fn is_fixed(&self, limit: Limit) -> bool {
        let own = match limit {
            Limit::SendBuffer => self.inputs.stated.sndbuf,
            _ => self.inputs.stated.rcvbuf,
        };
        own.or(self.inputs.window).or(self.inputs.buffer).is_some()
    }

    /// Returns true if a setting that is known here removes the constraint: of a system that is not
    /// Linux none is.
    fn is_removable(&self, constraint: WindowConstraint) -> bool {
        let HostPair { sender, receiver } = &self.hosts;
        match constraint {
            WindowConstraint::FixedBuffer => true,
            WindowConstraint::SendMaximum => sender.system.is_none(),
            WindowConstraint::ReceiveMaximum | WindowConstraint::NoAutotuning => {
                receiver.system.is_none()
            }
            WindowConstraint::NoScaling => sender.system.is_none() && receiver.system.is_none(),
        }
    }

    /// Returns a window if the inputs have a window, or else a `SO_RCVBUF` request, that is large
    /// enough for `window`.
    fn larger_buffer(&self, window: ByteCount) -> Buffer {
        if self.inputs.window.is_some() {
            // The model rounds a window down to whole segments, so that one segment more is needed.
            return Buffer::Window(window + self.mss());
        }
        Buffer::Request(kernel::request_for_window(
            &self.hosts.receiver,
            window,
            self.mss(),
        ))
    }

    /// Returns the payload of a full segment.
    fn mss(&self) -> ByteCount {
        PredictorCase::from_inputs(&self.inputs).mss(&self.hosts)
    }
}

/// Returns true if `later` sets the same setting as `earlier`, whatever the values: if both are the
/// same variant.
fn replaces_setting(later: &Change, earlier: &Change) -> bool {
    std::mem::discriminant(later) == std::mem::discriminant(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use fullpipe_units::Span;

    fn improved(inputs: &Inputs, hosts: &HostPair) -> Option<Improvement> {
        let target = TransferTarget::from_inputs(inputs).unwrap();
        find_improvement(
            target,
            target.needed_rate(inputs, hosts).unwrap(),
            inputs,
            hosts,
        )
    }

    fn path(mbps: u64, millis: u64) -> Inputs {
        let (bandwidth, rtt) = (BitRate::from_mbps(mbps), Span::from_millis(millis));
        Inputs {
            bandwidth: Some(bandwidth),
            rtt: Some(rtt),
            ..Inputs::default()
        }
    }

    #[test]
    fn a_larger_send_buffer_fills_a_gigabit() {
        let got = improved(&path(1000, 100), &test_fixture::default_hosts()).unwrap();
        assert_eq!(got.changes, [Change::TcpWmemMax(ByteCount::from_mib(24))]);
        assert_eq!(
            (got.after.limit, got.after.kernel_model.to_string().as_str()),
            (Limit::Capacity, "941.5 Mbit/s")
        );
    }

    #[test]
    fn ten_gigabits_need_both_buffers() {
        let got = improved(&path(10_000, 100), &test_fixture::default_hosts()).unwrap();
        let kinds: Vec<_> = got.changes.iter().map(std::mem::discriminant).collect();
        let both = [
            Change::TcpWmemMax(ByteCount::ZERO),
            Change::TcpRmemMax(ByteCount::ZERO),
        ];
        assert_eq!(kinds, both.each_ref().map(std::mem::discriminant));
        assert_eq!(got.after.limit, Limit::Capacity);
    }

    #[test]
    fn a_full_link_needs_no_change() {
        assert_eq!(
            improved(&path(100, 10), &test_fixture::default_hosts()),
            None
        );
    }

    #[test]
    fn a_fixed_window_is_enlarged_and_a_fixed_buffer_becomes_automatic() {
        let small = Inputs {
            window: Some(ByteCount::from_kib(64)),
            ..path(100, 173)
        };
        let got = improved(&small, &test_fixture::default_hosts()).unwrap();
        assert!(
            matches!(
                got.changes.as_slice(),
                [Change::SocketBuffer(Buffer::Window(_))]
            ),
            "{got:?}"
        );
        assert_eq!(got.after.limit, Limit::Capacity);
        // The kernel cuts requests to 4 MiB (`rmem_max`), which is too little for this path.
        let huge = Inputs {
            buffer: Some(ByteCount::from_kib(64)),
            ..path(1000, 173)
        };
        let got = improved(&huge, &test_fixture::default_hosts()).unwrap();
        assert_eq!(got.changes[0], Change::SocketBuffer(Buffer::Automatic));
        assert_eq!(got.after.limit, Limit::Capacity);
    }

    #[test]
    fn bbr_is_the_change_against_loss() {
        let lossy = Inputs {
            loss: Some(Ratio::new(1e-3)),
            ..path(100, 20)
        };
        let got = improved(&lossy, &test_fixture::default_hosts()).unwrap();
        assert_eq!(got.changes, [Change::CongestionControl("bbr".to_owned())]);
    }

    #[test]
    fn window_scaling_is_enabled_before_autotuning() {
        let mut hosts = test_fixture::default_hosts();
        hosts.receiver.window_scaling = false;
        hosts.receiver.moderate_rcvbuf = false;
        let got = improved(&path(100, 100), &hosts).unwrap();
        assert_eq!(
            got.changes,
            [Change::WindowScaling(true), Change::ModerateRcvbuf(true)]
        );
    }
}
