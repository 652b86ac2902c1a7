use std::mem::discriminant;

use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::loss::CongestionControl;
use fullpipe_model::{USUAL_RELAY_RTT, predict, predict_with_relays};
use fullpipe_record::{
    Encapsulation, Forecast, HostSettings, MtuVerdict, Path, PathDirection, Prediction, Request,
    RttForecast,
};

use crate::prelude::*;
use crate::signals::{RetransmittedSegments, SenderView, path, policer_rate};
use crate::thresholds::NEXT_SIZE_FACTOR;

/// The path, the hosts and the load as the evidence has them, to predict what changes would bring.
pub(crate) struct ChangeOutlook<'a> {
    evidence: &'a Evidence,
    path: Path,
    sender: HostSettings,
    receiver: HostSettings,
    request: Request,
    /// Rate that was measured.
    pub(crate) present: BitRate,
    /// True if nothing that a prediction needs was assumed.
    certain: bool,
    /// True if packets are lost because they are sent too fast: a lower pace loses none.
    drops_the_excess: bool,
    is_black_hole: bool,
}

/// Multiple of the present rate up to which a change may be promised to bring a path whose
/// bandwidth is not known: as much as buffers and connections are then raised by.
const MAX_GAIN_OF_UNKNOWN_PATH: f64 = NEXT_SIZE_FACTOR as f64;
/// Multiple of the present rate that a change may be promised to bring if it lifts a limit that the
/// path has no part in, such as 64 KiB in flight (measured: 1.0 to 11.7 times as much, over paths
/// that were drawn at random).
const MAX_GAIN_BEHIND_A_FIXED_LIMIT: f64 = 16.0;
/// Share of the rate of one measurement that the next one over the same path reaches at least (a
/// choice; seen: 0.997 and 0.98 where nothing had changed).
const USUAL_VARIATION: f64 = 0.95;
/// Payload of the segments with which the kernel begins to probe for the path MTU (`tcp_base_mss`,
/// its default).
const PROBING_MSS: ByteCount = ByteCount::new(1024);

impl<'a> ChangeOutlook<'a> {
    /// `None` where nothing can be predicted: no round-trip time is known, or no path lies between
    /// the ends.
    pub(crate) fn new(figures: &SenderView<'a>, verdict: LegalVerdict) -> Option<Self> {
        let evidence = figures.evidence;
        if is_within_a_host(evidence) {
            return None;
        }
        let unbounded = HostSettings::without_limits();
        let known = evidence.sender.is_some()
            && evidence.receiver.is_some()
            && evidence.bandwidth.is_some();
        let drops_the_excess = matches!(
            verdict,
            LegalVerdict::Loss(LossVerdict::ShallowQueue | LossVerdict::Policer)
        );
        let is_black_hole = verdict == MtuVerdict::BlackHole.into();
        let guessed = drops_the_excess || is_black_hole;
        Some(Self {
            evidence,
            path: observed_path(figures, verdict)?,
            sender: evidence.sender.clone().unwrap_or_else(|| unbounded.clone()),
            receiver: evidence.receiver.clone().unwrap_or(unbounded),
            request: observed_request(figures),
            present: figures.rate,
            certain: known && !guessed,
            drops_the_excess,
            is_black_hole,
        })
    }

    /// Returns the rate after `changes`: an interval that begins a little below the present rate
    /// where the path's bandwidth or an end's settings are not known. `None` where the lowest
    /// ceiling would be one of an end that is not known.
    pub(crate) fn forecast_rate(&self, changes: &[Change]) -> Option<Forecast> {
        let prediction = self.predict_changes(changes);
        if self.rests_on_the_unknown(prediction.limit, changes) {
            return None;
        }
        let low = if self.certain {
            prediction.low
        } else {
            prediction.low.min(self.present.scale_by(USUAL_VARIATION))
        };
        // A policer may let more pass than a sender that it holds down has shown.
        let as_stated = self.predict_over(self.evidence.bandwidth, changes);
        let high = self
            .most_likely(&prediction, changes)
            .max(self.most_likely(&as_stated, changes));
        let forecast = Forecast {
            bits_per_second: prediction.kernel_model,
            low,
            high,
            capacity_unknown: false,
        };
        Some(self.limited_to_the_known(forecast, changes))
    }

    /// Returns the top of the interval of a prediction, but no more than the link carries if that
    /// is the limit. The share of the link that BBR uses is itself an estimate.
    fn most_likely(&self, prediction: &Prediction, changes: &[Change]) -> BitRate {
        let is_full = prediction.limit == Limit::Capacity
            && requested_control(&self.request_with(changes), &self.sender)
                != CongestionControl::Bbr;
        if is_full {
            prediction.high.min(prediction.kernel_model)
        } else {
            prediction.high
        }
    }

    /// Returns the rate through a pair of relays, each [`USUAL_RELAY_RTT`] from its host, whose own
    /// windows limit nothing. `None` where the path is too short for them.
    pub(crate) fn forecast_with_relays(&self) -> Option<Forecast> {
        let [near, far] = [(); 2].map(|()| self.scaled_path(USUAL_RELAY_RTT, None));
        let between = self.path.rtt().saturating_sub(near.rtt() + far.rtt());
        if between <= near.rtt() {
            return None;
        }
        let stretches = [near, self.scaled_path(between, self.path.forward.loss), far];
        let hosts = [&self.sender, &self.receiver];
        let prediction = predict_with_relays(
            &stretches,
            hosts,
            &HostSettings::without_limits(),
            &self.request,
        );
        // How far the relays are from the hosts is assumed.
        let low = prediction.low.min(self.present.scale_by(USUAL_VARIATION));
        let forecast = Forecast {
            bits_per_second: prediction.kernel_model,
            low,
            high: prediction.high,
            capacity_unknown: false,
        };
        Some(self.limited_to_the_known(forecast, &[]))
    }

    fn scaled_path(&self, rtt: Span, loss: Option<Ratio>) -> Path {
        let mut stretch = Path::with_symmetric_rtt(
            &PathDirection {
                loss: None,
                ..self.path.forward.clone()
            },
            rtt,
        );
        stretch.forward.loss = loss;
        stretch
    }

    /// Returns the round-trip time under load after `changes`: that of the idle path, unless a
    /// sender that fills queues may have more in flight than the path carries. `None` where the
    /// path's capacity is not known.
    pub(crate) fn forecast_rtt(&self, changes: &[Change]) -> Option<RttForecast> {
        let prediction = self.predict_changes(changes);
        let capacity = self
            .path
            .forward
            .rate
            .and_then(|_| prediction.find_ceiling(Limit::Capacity))?
            .kernel_model;
        let idle = self.path.rtt();
        let request = self.request_with(changes);
        let is_paced = request.pacing.is_some_and(|pace| pace <= capacity);
        let high = if prediction.limit != Limit::Capacity || is_paced {
            Some(idle)
        } else if requested_control(&request, &self.sender) == CongestionControl::Bbr {
            Some(longest_of_bbr(idle, request.streams))
        } else {
            let windows = [Limit::SendBuffer, Limit::ReceiveWindow].into_iter();
            let known = windows.filter(|limit| !self.rests_on_the_unknown(*limit, changes));
            let ceilings =
                known.filter_map(|limit| Some(prediction.find_ceiling(limit)?.kernel_model));
            ceilings
                .min()
                .map(|most| idle.scale_by(most.relative_to(capacity).max(1.0)))
        };
        Some(RttForecast { low: idle, high })
    }

    /// Returns true if something bounds what the path carries: a stated bandwidth, or a policer's
    /// rate. Where nothing passes at all, the present rate bounds nothing either.
    fn knows_the_capacity(&self) -> bool {
        self.path.forward.rate.is_some() || self.is_black_hole
    }

    /// Returns `forecast`; where the capacity is not known, no higher than can be expected then:
    /// nothing was seen of it but the present rate. Where that is the bound, the expected rate is
    /// in the middle.
    fn limited_to_the_known(&self, forecast: Forecast, changes: &[Change]) -> Forecast {
        if self.knows_the_capacity() {
            return forecast;
        }
        let gain = if changes.iter().any(hides_the_path) {
            MAX_GAIN_BEHIND_A_FIXED_LIMIT
        } else {
            MAX_GAIN_OF_UNKNOWN_PATH
        };
        let most = self.present.scale_by(gain);
        let expected = if forecast.bits_per_second <= most {
            forecast.bits_per_second
        } else {
            self.present.scale_by(gain.sqrt())
        };
        let high = forecast.high.min(most.scale_by(1.0 / USUAL_VARIATION));
        Forecast {
            bits_per_second: expected,
            low: forecast.low.min(expected),
            high,
            capacity_unknown: true,
        }
    }

    /// Returns the rate of a sender that probes for a size of packets that passes: it begins with
    /// one that nearly always does, and ends at one that is not known. Until it has found the
    /// first, nothing passes.
    pub(crate) fn forecast_of_probing(&self, changes: &[Change]) -> Option<Forecast> {
        let whole = self.forecast_rate(changes)?;
        let mss = Some(
            self.request
                .mss
                .map_or(PROBING_MSS, |mss| mss.min(PROBING_MSS)),
        );
        let small = predict(
            &self.path,
            &self.sender,
            &self.receiver,
            &Request {
                mss,
                ..self.request.clone()
            },
        );
        let bits_per_second = small.kernel_model.min(whole.high);
        Some(Forecast {
            bits_per_second,
            low: whole.low.min(bits_per_second),
            ..whole
        })
    }

    /// Returns the prediction after `changes`. Both ends get each of them: a sender's `tcp_rmem`
    /// and a receiver's `tcp_wmem` are of no consequence.
    pub(crate) fn predict_changes(&self, changes: &[Change]) -> Prediction {
        self.predict_over(self.path.forward.rate, changes)
    }

    fn predict_over(&self, bandwidth: Option<BitRate>, changes: &[Change]) -> Prediction {
        let [sender, receiver] =
            [&self.sender, &self.receiver].map(|host| host.changed_by(changes));
        let request = self.request_with(changes);
        let mut path = self.path.clone();
        path.forward.rate = bandwidth;
        if self.drops_the_excess
            && changes
                .iter()
                .any(|change| matches!(change, Change::MaxPacingRate(Some(_))))
        {
            path.forward.loss = None;
        }
        predict(&path, &sender, &receiver, &request)
    }

    /// Returns the payload of all streams together that the path carries, where its bandwidth was
    /// stated.
    pub(crate) fn stated_capacity(&self) -> Option<BitRate> {
        self.evidence.bandwidth?;
        Some(
            self.predict_changes(&[])
                .find_ceiling(Limit::Capacity)?
                .kernel_model,
        )
    }

    /// Returns `changes`, and every larger buffer that it then takes to fill a path whose bandwidth
    /// was stated.
    pub(crate) fn with_buffers_for_the_path(&self, mut changes: Vec<Change>) -> Vec<Change> {
        // Each round raises one of the two buffers.
        for _ in 0..2 {
            match self.next_buffer(&changes) {
                Some(change) => changes.push(change),
                None => break,
            }
        }
        changes
    }

    fn next_buffer(&self, changes: &[Change]) -> Option<Change> {
        self.evidence.bandwidth?;
        let constraint = match self.predict_changes(changes).limit {
            Limit::SendBuffer => WindowConstraint::SendMaximum,
            Limit::ReceiveWindow => WindowConstraint::ReceiveMaximum,
            _ => return None,
        };
        let change = constraint.removing_change(self.maximum_for_the_path(constraint))?;
        let is_new = changes
            .iter()
            .all(|earlier| discriminant(earlier) != discriminant(&change));
        is_new.then_some(change)
    }

    /// Returns the maximum of `tcp_wmem` or `tcp_rmem` that holds what the path takes, with room to
    /// repair losses; `None` where the bandwidth was not stated, or where the maximum is as large
    /// already.
    pub(crate) fn maximum_for_the_path(&self, constraint: WindowConstraint) -> Option<ByteCount> {
        let needed = constraint.maximum_for(
            self.bdp_of_a_stream()?,
            self.congestion_control(),
            &self.receiver,
        )?;
        let present = match constraint {
            WindowConstraint::SendMaximum => {
                self.evidence.sender.as_ref().map(|host| host.tcp_wmem.max)
            }
            WindowConstraint::ReceiveMaximum => self
                .evidence
                .receiver
                .as_ref()
                .map(|host| host.tcp_rmem.max),
            WindowConstraint::FixedBuffer
            | WindowConstraint::NoScaling
            | WindowConstraint::NoAutotuning => None,
        };
        Some(needed).filter(|needed| present.is_none_or(|present| *needed > present))
    }

    /// Returns the maximum that `constraint` takes under `control`, whatever it is at present, and
    /// its reason; `None` where the bandwidth was not stated.
    pub(crate) fn maximum_under(
        &self,
        control: CongestionControl,
        constraint: WindowConstraint,
    ) -> Option<(ByteCount, String)> {
        let bdp = self.bdp_of_a_stream()?;
        let size = constraint.maximum_for(bdp, control, &self.receiver)?;
        Some((
            size,
            constraint.reason_for_maximum(bdp, control, &self.receiver)?,
        ))
    }

    /// Returns bandwidth × round-trip time, for each stream; `None` where the bandwidth was not
    /// stated.
    pub(crate) fn bdp_of_a_stream(&self) -> Option<ByteCount> {
        self.predict_changes(&[]).bdp_of_each(self.request.streams)
    }

    /// Returns the load as `changes` leave it.
    fn request_with(&self, changes: &[Change]) -> Request {
        changes
            .iter()
            .fold(self.request.clone(), |request, change| {
                change.applied_to_request(&request)
            })
    }

    /// Connections asked for, at least one.
    pub(crate) fn stream_count(&self) -> u16 {
        self.request.streams
    }

    pub(crate) fn congestion_control(&self) -> CongestionControl {
        requested_control(&self.request, &self.sender)
    }

    fn rests_on_the_unknown(&self, limit: Limit, changes: &[Change]) -> bool {
        if self.request_with(changes).buffer != Buffer::Automatic {
            return false;
        }
        let mut changes = changes.iter();
        match limit {
            Limit::SendBuffer => {
                self.evidence.sender.is_none()
                    && !changes.any(|change| matches!(change, Change::TcpWmemMax(_)))
            }
            Limit::ReceiveWindow => {
                self.evidence.receiver.is_none()
                    && !changes.any(|change| matches!(change, Change::TcpRmemMax(_)))
            }
            _ => false,
        }
    }
}

/// Returns true if a change lifts a limit that has no relation to the path, so that the present
/// rate says little of it: 64 KiB in flight, or the rate of the host's own discipline.
const fn hides_the_path(change: &Change) -> bool {
    matches!(
        change,
        Change::WindowScaling(true) | Change::Qdisc { .. } | Change::QueueLength { .. }
    )
}

/// Multiple of the idle round-trip time up to which BBR's is: its window is twice what it takes the
/// path to carry (`bbr_cwnd_gain`), and behind a token bucket, whose bursts raise its estimate, it
/// has all of that in flight (measured: 1.0 to 2.0).
const RTT_FACTOR_OF_BBR: f64 = 2.0;
/// Multiple of the idle round-trip time up to which that of several BBR streams is: each may have
/// twice its share in flight, and takes the most that it ever got for its share (measured: 2.7).
const RTT_FACTOR_OF_BBR_STREAMS: f64 = 3.0;
/// Time for which BBR has more in flight where acknowledgements come in bursts
/// (`bbr_ack_aggregation_cwnd`, at most 100 ms; measured on busy hosts: 4 to 10 ms).
const ACK_AGGREGATION_OF_BBR: Span = Span::from_millis(8);

/// Returns the longest round-trip time under BBR that is to be expected, over a path that takes
/// `idle`.
pub(crate) fn longest_of_bbr(idle: Span, streams: u16) -> Span {
    idle.scale_by(if streams > 1 {
        RTT_FACTOR_OF_BBR_STREAMS
    } else {
        RTT_FACTOR_OF_BBR
    }) + ACK_AGGREGATION_OF_BBR
}

/// Multiple of the idle round-trip time up to which that of one BBR stream is without a token
/// bucket: BBR probes with a quarter more than the path carries.
const USUAL_RTT_FACTOR_OF_BBR: f64 = 1.25;

/// Returns the longest of one stream where no token bucket makes it take the path for faster than
/// it is.
pub(crate) fn usual_of_bbr(idle: Span) -> Span {
    idle.scale_by(USUAL_RTT_FACTOR_OF_BBR) + ACK_AGGREGATION_OF_BBR
}

/// Returns the congestion control of a load, CUBIC for one that the model does not know.
fn requested_control(request: &Request, sender: &HostSettings) -> CongestionControl {
    let name = request.congestion_at(sender);
    CongestionControl::from_name(name).unwrap_or(CongestionControl::Cubic)
}

/// Returns the path as the evidence shows it: half of the idle round-trip time each way, the
/// bandwidth if it was stated, no more than a policer lets pass, and the loss if that is the limit
/// (elsewhere the queue of a full link makes it).
fn observed_path(figures: &SenderView, verdict: LegalVerdict) -> Option<Path> {
    const ETHERNET: ByteCount = ByteCount::new(1500);
    let lost = figures
        .lost_segments()
        .filter(|_| verdict.limit_kind() == Limit::Loss);
    let stated = figures.evidence.bandwidth;
    let policed = policed_bandwidth(figures).filter(|_| verdict == LossVerdict::Policer.into());
    let direction = PathDirection {
        rate: stated.map_or(policed, |stated| {
            Some(policed.map_or(stated, |policed| stated.min(policed)))
        }),
        delay: Span::ZERO,
        queue: None,
        loss: None,
        mtu: figures.path_mtu().unwrap_or(ETHERNET),
        framing: figures.evidence.framing,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
        effects: fullpipe_record::Effects::default(),
    };
    let mut path = Path::with_symmetric_rtt(&direction, figures.idle_rtt?);
    path.forward.loss = lost
        .map(RetransmittedSegments::segment_share)
        .filter(|loss| *loss > Ratio::ZERO);
    Some(path)
}

/// The bandwidth that a policer leaves, counted as the path's is.
fn policed_bandwidth(figures: &SenderView) -> Option<BitRate> {
    let efficiency = path::payload_share(figures.evidence, figures.mss?, figures.has_timestamps());
    Some(policer_rate::upper_bound(figures)?.scale_by(1.0 / efficiency.get()))
}

fn observed_request(figures: &SenderView) -> Request {
    let asked = &figures.evidence.request;
    Request {
        streams: asked.streams.max(1),
        congestion: figures.congestion_control().map(str::to_owned),
        ..asked.clone()
    }
}

/// Returns true if both ends are one host, where processors and memory decide, and no bandwidth.
fn is_within_a_host(evidence: &Evidence) -> bool {
    let devices = [
        &evidence.sender_machine.device,
        &evidence.receiver_machine.device,
    ];
    devices
        .into_iter()
        .flatten()
        .any(|device| device.name == "lo")
        && evidence.bandwidth.is_none()
}
