//! From what is given to what the predictor takes: the one place where that is done.

use crate::prelude::*;
use crate::{RateOutlook, distance, evaluate_ceilings, framing, predict, short};
use fullpipe_record::CompletionForecast;

/// The settings of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPair {
    /// Of the end that sends.
    pub sender: HostSettings,
    /// Of the end that receives.
    pub receiver: HostSettings,
}

/// A path and a load, as the predictor takes them.
pub(crate) struct PredictorCase {
    pub(crate) path: Path,
    pub(crate) request: Request,
}

impl PredictorCase {
    /// The path is the same both ways, with a queue of one BDP; its round trip is zero where none
    /// is given.
    pub(crate) fn from_inputs(inputs: &Inputs) -> Self {
        let rtt = round_trip(inputs).unwrap_or(Span::ZERO);
        let direction = PathDirection {
            rate: inputs.bandwidth,
            delay: Span::ZERO,
            queue: inputs
                .queue
                .or_else(|| inputs.bandwidth.map(|rate| rate.bytes_in(rtt))),
            loss: inputs.loss,
            mtu: inputs.mtu.unwrap_or(COMMON_MTU),
            framing: inputs.framing,
            ip: inputs.ip,
            encapsulation: inputs.encapsulation,
            effects: inputs.effects.clone(),
        };
        let rest = Request {
            pacing: inputs.pacing,
            writer: inputs.writer,
            bytes: inputs.size,
            duration: STEADY,
            ..Request::default()
        };
        Self {
            path: Path::with_symmetric_rtt(&direction, rtt),
            request: load_of_inputs(inputs, rest),
        }
    }

    pub(crate) fn prediction(&self, hosts: &HostPair) -> Prediction {
        predict(&self.path, &hosts.sender, &hosts.receiver, &self.request)
    }

    /// Leaves out the cap of each flow.
    pub(crate) fn forget_flow_cap(&mut self) {
        if let Some(stated) = &mut self.request.stated {
            stated.flow_cap = None;
        }
    }

    pub(crate) fn outlook(&self, hosts: &HostPair) -> RateOutlook {
        evaluate_ceilings(&self.path, &hosts.sender, &hosts.receiver, &self.request)
    }

    /// The limit of a transfer that ends within its ramp is the congestion window.
    pub(crate) fn estimate(&self, hosts: &HostPair) -> Estimate {
        let RateOutlook {
            textbook,
            kernel_model,
            low,
            high,
            limit,
            ends_in_ramp,
        } = self.outlook(hosts);
        let limit = if ends_in_ramp {
            Limit::CongestionWindow
        } else {
            limit
        };
        let time = self
            .request
            .bytes
            .map(|size| self.transfer_time(size, kernel_model, hosts));
        Estimate {
            textbook,
            kernel_model,
            low,
            high,
            limit,
            time,
        }
    }

    /// Returns when the size is complete, by the spread of an estimate, over a path of which
    /// `payload_share` carries payload.
    pub(crate) fn completion(
        &self,
        estimate: &Estimate,
        payload_share: Ratio,
        hosts: &HostPair,
    ) -> Option<CompletionForecast> {
        let (size, time) = (self.request.bytes?, estimate.time?);
        let [low, high] =
            [estimate.high, estimate.low].map(|rate| self.transfer_time(size, rate, hosts));
        let forecast = CompletionForecast {
            time,
            low,
            high,
            efficiency: None,
        };
        let capacity = self.path.forward.rate;
        Some(forecast.over_path(
            size,
            capacity.map(|rate| rate.scale_by(payload_share.get())),
        ))
    }

    /// Returns the time that `size` takes over all streams together at a `steady` rate of theirs,
    /// slow start included, the handshake not.
    pub(crate) fn transfer_time(&self, size: ByteCount, steady: BitRate, hosts: &HostPair) -> Span {
        let streams = u64::from(self.request.streams.max(1));
        let (each, rate) = (
            ByteCount::new(size.get().div_ceil(streams)),
            BitRate::from_bps(steady.bps() / streams),
        );
        short::transfer_time(
            each,
            self.mss(hosts),
            self.path.rtt(),
            rate,
            self.path.forward.loss,
        )
    }

    /// Returns the steady rate that the bottleneck allows where no packet is lost: its payload,
    /// less what the congestion control keeps free to find out its rate.
    pub(crate) fn capacity_without_loss(mut self, hosts: &HostPair) -> Option<BitRate> {
        (self.path.forward.loss, self.path.reverse.loss) = (None, None);
        self.forget_flow_cap();
        self.prediction(hosts)
            .find_ceiling(Limit::Capacity)
            .map(|ceiling| ceiling.kernel_model)
    }

    /// Payload of a full bottleneck.
    pub(crate) fn payload_capacity(&self, hosts: &HostPair) -> Option<BitRate> {
        let forward = &self.path.forward;
        let headers = framing::tcp_headers(forward.ip, has_timestamps(hosts));
        Some(forward.rate?.scale_by(
            framing::payload_share(self.mss(hosts), headers, forward.packet_overhead()).get(),
        ))
    }

    pub(crate) fn mss(&self, hosts: &HostPair) -> ByteCount {
        let forward = &self.path.forward;
        framing::segment_payload(
            forward.inner_mtu(),
            forward.ip,
            has_timestamps(hosts),
            self.request.mss,
        )
    }
}

/// The round-trip time that was given, or else what is usual over the distance.
pub(crate) fn round_trip(inputs: &Inputs) -> Option<Span> {
    inputs
        .rtt
        .or_else(|| inputs.distance.map(distance::guess_rtt))
}

fn has_timestamps(hosts: &HostPair) -> bool {
    hosts.sender.timestamps && hosts.receiver.timestamps
}

/// Returns the estimate for `inputs` between `hosts`.
pub(crate) fn estimate_inputs(inputs: &Inputs, hosts: &HostPair) -> Estimate {
    PredictorCase::from_inputs(inputs).estimate(hosts)
}

/// Returns the load that has the streams, the congestion control, the buffers and what is stated of
/// programs from `inputs`, and the `rest`.
pub fn load_of_inputs(inputs: &Inputs, rest: Request) -> Request {
    Request {
        streams: inputs.streams.unwrap_or(1),
        congestion: inputs.congestion.clone(),
        buffer: match (inputs.window, inputs.buffer) {
            (Some(window), _) => Buffer::Window(window),
            (None, Some(request)) => Buffer::Request(request),
            (None, None) => Buffer::Automatic,
        },
        ..rest
    }
    .with_stated(inputs.stated)
}

/// Duration of the calculated load: the result is the steady rate, over a time in which the chance
/// of random losses evens out.
const STEADY: Span = Span::from_secs(3600);
/// Ethernet's.
pub(crate) const COMMON_MTU: ByteCount = ByteCount::new(1500);
