//! The changes that lift the lowest ceiling, and the next, until the target is met or no known change helps.

use fullpipe_model::kernel;
use fullpipe_model::lifting::{WindowFault, tolerate_loss};
use fullpipe_model::loss::CongestionControl;
use fullpipe_record::{Buffer, Change, Estimate, Given, HostSettings, Lift, Limit};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::case::{Case, Hosts, estimate};
use crate::critical::{Critical, least};
use crate::needs::window_for;
use crate::setting::MAX_STREAMS;
use crate::target::Target;

/// The changes that lift what is lowest, one after the other as ceilings come to the fore, and what they come to.
///
/// None where the target is met as it is, or no change known here helps. A buffer gets the size that Linux tunes
/// towards for the window that `rate` needs; loss is met by BBR, which has no ceiling under it, or by more streams.
pub(crate) fn lift(target: Target, rate: BitRate, given: &Given, hosts: &Hosts) -> Option<Lift> {
    let mut state = State { given: given.clone(), hosts: hosts.clone() };
    // More than the link carries no buffer is worth.
    let rate = Case::of(given).payload_capacity(hosts).map_or(rate, |capacity| rate.min(capacity));
    let mut changes = Vec::new();
    let mut after = estimate(given, hosts);
    while !target.is_met(&state.given, &state.hosts) {
        let Some((change, better)) = state.best(target, rate, after) else { break };
        state.apply(&change);
        changes.retain(|earlier| !replaces(&change, earlier));
        changes.push(change);
        after = better;
    }
    (!changes.is_empty()).then_some(Lift { changes, after })
}

struct State {
    given: Given,
    hosts: Hosts,
}

impl State {
    /// The first change that meets the target or at least gives more than `before`.
    fn best(&self, target: Target, rate: BitRate, before: Estimate) -> Option<(Change, Estimate)> {
        let after = |change: &Change| {
            let state = self.with(change);
            estimate(&state.given, &state.hosts)
        };
        self.candidates(before.limit, target, rate).into_iter().find_map(|change| {
            let better = after(&change);
            (better.kernel_model > before.kernel_model).then_some((change, better))
        })
    }

    fn candidates(&self, limit: Limit, target: Target, rate: BitRate) -> Vec<Change> {
        let Hosts { sender, receiver, .. } = &self.hosts;
        let fault = WindowFault::behind(limit, self.is_fixed(), sender, receiver);
        let for_window = fault.and_then(|fault| {
            let window = self.window(rate);
            fault.change(window.and_then(|window| fault.maximum_for(window, self.control(), receiver)))
        });
        let larger = fault.filter(|fault| *fault == WindowFault::FixedBuffer).and_then(|_| {
            let larger = Change::SocketBuffer(self.larger(self.window(rate)?));
            self.meets_with(target, &larger).then_some(larger)
        });
        larger.into_iter().chain(for_window).chain(self.against_loss(target)).collect()
    }

    /// Loss cuts the peaks of what another ceiling leaves too.
    fn against_loss(&self, target: Target) -> Vec<Change> {
        if self.given.loss.is_none_or(|loss| loss == Ratio::ZERO) {
            return Vec::new();
        }
        [tolerate_loss()].into_iter().chain(self.streams(target).map(Change::Streams)).collect()
    }

    /// The window that each stream needs for `rate`, and no less than its part of the BDP, headers included, as the
    /// headline has it.
    fn window(&self, rate: BitRate) -> Option<ByteCount> {
        let prediction = Case::of(&self.given).prediction(&self.hosts);
        let streams = u64::from(self.given.streams.unwrap_or(1));
        let textbook = prediction.bdp.map(|bdp| ByteCount::new(bdp.get().div_ceil(streams)));
        window_for(rate, &prediction).map(|needed| textbook.map_or(needed, |textbook| needed.max(textbook)))
    }

    fn streams(&self, target: Target) -> Option<u16> {
        let enough = |streams| self.meets_with(target, &Change::Streams(streams as u16));
        match least(1, MAX_STREAMS.into(), enough) {
            Critical::At(streams) => Some(streams as u16),
            Critical::Never | Critical::Always => None,
        }
    }

    fn meets_with(&self, target: Target, change: &Change) -> bool {
        let state = self.with(change);
        target.is_met(&state.given, &state.hosts)
    }

    fn with(&self, change: &Change) -> Self {
        let mut state = Self { given: self.given.clone(), hosts: self.hosts.clone() };
        state.apply(change);
        state
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::SocketBuffer(Buffer::Automatic) => (self.given.window, self.given.buffer) = (None, None),
            Change::SocketBuffer(Buffer::Window(window)) => self.given.window = Some(*window),
            Change::SocketBuffer(Buffer::Request(request)) => self.given.buffer = Some(*request),
            Change::CongestionControl(name) => self.given.congestion = Some(name.clone()),
            Change::Streams(streams) => self.given.streams = Some(*streams),
            Change::TcpWmemMax(_) => self.hosts.sender = change.applied_to(&self.hosts.sender),
            Change::TcpRmemMax(_) | Change::ModerateRcvbuf(_) => {
                self.hosts.receiver = change.applied_to(&self.hosts.receiver);
            }
            Change::WindowScaling(_) => {
                self.hosts.sender = change.applied_to(&self.hosts.sender);
                self.hosts.receiver = change.applied_to(&self.hosts.receiver);
            }
            // None of these is a candidate.
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

    fn is_fixed(&self) -> bool {
        self.given.window.is_some() || self.given.buffer.is_some()
    }

    /// As it was asked for, but large enough.
    fn larger(&self, window: ByteCount) -> Buffer {
        if self.given.window.is_some() {
            // A window is whole segments, less than one of which is not to be missed.
            return Buffer::Window(window + self.mss());
        }
        Buffer::Request(kernel::request_for_window(&self.hosts.receiver, window, self.mss()))
    }

    fn mss(&self) -> ByteCount {
        Case::of(&self.given).mss(&self.hosts)
    }

    fn control(&self) -> CongestionControl {
        control(&self.given, &self.hosts.sender)
    }
}

/// The formula of the congestion control that will be used; the predictor's own choice where the name has none.
pub(crate) fn control(given: &Given, sender: &HostSettings) -> CongestionControl {
    let name = given.congestion.as_deref().unwrap_or(&sender.congestion_control);
    CongestionControl::named(name).unwrap_or(CongestionControl::Reno)
}

/// Returns whether `later` sets the same setting as `earlier`.
fn replaces(later: &Change, earlier: &Change) -> bool {
    std::mem::discriminant(later) == std::mem::discriminant(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use fullpipe_units::Span;

    fn lifted(given: &Given, hosts: &Hosts) -> Option<Lift> {
        let target = Target::of(given).unwrap();
        lift(target, target.rate(given, hosts).unwrap(), given, hosts)
    }

    fn path(mbps: u64, millis: u64) -> Given {
        let (bandwidth, rtt) = (BitRate::from_mbps(mbps), Span::from_millis(millis));
        Given { bandwidth: Some(bandwidth), rtt: Some(rtt), ..Given::default() }
    }

    #[test]
    fn a_larger_send_buffer_fills_a_gigabit() {
        let got = lifted(&path(1000, 100), &fixture::hosts()).unwrap();
        assert_eq!(got.changes, [Change::TcpWmemMax(ByteCount::from_mib(24))]);
        assert_eq!((got.after.limit, got.after.kernel_model.to_string().as_str()), (Limit::Capacity, "941.5 Mbit/s"));
    }

    #[test]
    fn ten_gigabits_take_both_buffers() {
        let got = lifted(&path(10_000, 100), &fixture::hosts()).unwrap();
        let kinds: Vec<_> = got.changes.iter().map(std::mem::discriminant).collect();
        let both = [Change::TcpWmemMax(ByteCount::ZERO), Change::TcpRmemMax(ByteCount::ZERO)];
        assert_eq!(kinds, both.each_ref().map(std::mem::discriminant));
        assert_eq!(got.after.limit, Limit::Capacity);
    }

    #[test]
    fn a_full_pipe_needs_no_lift() {
        assert_eq!(lifted(&path(100, 10), &fixture::hosts()), None);
    }

    #[test]
    fn a_window_is_made_larger_or_left_to_the_kernel() {
        let small = Given { window: Some(ByteCount::from_kib(64)), ..path(100, 173) };
        let got = lifted(&small, &fixture::hosts()).unwrap();
        assert!(matches!(got.changes.as_slice(), [Change::SocketBuffer(Buffer::Window(_))]), "{got:?}");
        assert_eq!(got.after.limit, Limit::Capacity);
        // No request gives so large a window where the kernel cuts it to 4 MiB.
        let huge = Given { buffer: Some(ByteCount::from_kib(64)), ..path(1000, 173) };
        let got = lifted(&huge, &fixture::hosts()).unwrap();
        assert_eq!(got.changes[0], Change::SocketBuffer(Buffer::Automatic));
        assert_eq!(got.after.limit, Limit::Capacity);
    }

    #[test]
    fn bbr_is_for_loss() {
        let lossy = Given { loss: Some(Ratio::new(1e-3)), ..path(100, 20) };
        let got = lifted(&lossy, &fixture::hosts()).unwrap();
        assert_eq!(got.changes, [Change::CongestionControl("bbr".to_owned())]);
    }

    #[test]
    fn window_scaling_comes_first() {
        let mut hosts = fixture::hosts();
        hosts.receiver.window_scaling = false;
        hosts.receiver.moderate_rcvbuf = false;
        let got = lifted(&path(100, 100), &hosts).unwrap();
        assert_eq!(got.changes, [Change::WindowScaling(true), Change::ModerateRcvbuf(true)]);
    }
}
