use crate::prelude::*;
use crate::{
    CaptureEvidence, EndReport, Framing, HostSettings, Http2Wait, Machine, Measurement, Request,
    RttMethod, RttStats, Sample, SocketReadback, Steady, find_steady, steady_of_receiver,
};

/// All that a verdict may rest on. Of the path it knows only the user's statements.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The load that was carried out.
    pub request: Request,
    /// Settings of the sending host, where known.
    pub sender: Option<HostSettings>,
    /// Settings of the receiving host, where known.
    pub receiver: Option<HostSettings>,
    /// Sending sockets, where known.
    pub sender_sockets: Vec<SocketReadback>,
    /// Receiving sockets, where known.
    pub receiver_sockets: Vec<SocketReadback>,
    /// Processors, device and file of the sending end.
    #[serde(default)]
    pub sender_machine: Machine,
    /// Processors, device and file of the receiving end.
    #[serde(default)]
    pub receiver_machine: Machine,
    /// The program whose connections these are, where it is another than fullpipe: `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Set if connections of another program were watched, whether its name is known or not: that
    /// of another user's program is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_watched: bool,
    /// Samples of the sending end.
    pub sender_samples: Vec<Sample>,
    /// Samples of the receiving end.
    pub receiver_samples: Vec<Sample>,
    /// Least round-trip time of the idle path.
    pub idle_rtt: Option<Span>,
    /// Distribution of the round-trip times of the idle path, where they were taken on their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_spread: Option<RttStats>,
    /// Median round-trip time under load, after the ramp where there is a steady part.
    pub loaded_rtt: Option<Span>,
    /// Steady part of the transfer, where it had one.
    pub steady: Option<Steady>,
    /// Bandwidth of the path, if the user stated it.
    pub bandwidth: Option<BitRate>,
    /// Layer at which that bandwidth counts bytes.
    pub framing: Framing,
    /// The wait of the sending end for windows of HTTP/2, where it counted that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_wait: Option<Http2Wait>,
    /// Further figures of the capture that the samples were made of, where they were made of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureEvidence>,
}

impl Evidence {
    /// Returns true if another program than fullpipe made the load.
    pub fn is_of_another_program(&self) -> bool {
        self.is_watched || self.program.is_some()
    }

    /// Returns the number of looks at each connection of another program, where these are so few and
    /// far apart as listings are; one where its counters since the begin were read once.
    pub fn few_looks(&self) -> Option<u64> {
        const MAX_LOOKS: u64 = 20;
        const MIN_GAP: Span = Span::from_millis(400);
        let samples = self.sender_samples.iter().chain(&self.receiver_samples);
        let streams = u64::from(self.request.streams).max(1);
        let looks = samples.filter(|sample| sample.at > Span::ZERO).count() as u64;
        let looks = looks.div_ceil(streams);
        let is_few = looks == 1 || (looks <= MAX_LOOKS && self.request.duration >= MIN_GAP * looks);
        (self.is_watched && self.capture.is_none() && is_few).then_some(looks)
    }

    /// Returns the time of the last sample of either end.
    pub fn last_sample_at(&self) -> Span {
        let samples = self.sender_samples.iter().chain(&self.receiver_samples);
        samples.map(|sample| sample.at).max().unwrap_or_default()
    }

    /// Returns the evidence that there was when data had flowed for `elapsed`: the samples up to
    /// then, and what follows from them. The round-trip time under load is then the kernel's.
    #[must_use]
    pub fn up_to(&self, elapsed: Span) -> Self {
        let until = |samples: &[Sample]| -> Vec<Sample> {
            let past = samples.iter().filter(|sample| sample.at <= elapsed);
            past.cloned().collect()
        };
        let (sent, received) = (until(&self.sender_samples), until(&self.receiver_samples));
        let steady = if sent.is_empty() {
            steady_of_receiver(&received, self.idle_rtt, elapsed)
        } else {
            find_steady(&sent, self.idle_rtt, elapsed)
        };
        let ramp = steady.map_or(Span::ZERO, |steady| steady.ramp);
        let loaded = sent.iter().filter(|sample| sample.at >= ramp);
        let mut so_far = Self {
            loaded_rtt: median(loaded.filter_map(|sample| sample.tcp.rtt).collect()),
            steady,
            sender_samples: sent,
            receiver_samples: received,
            ..self.clone()
        };
        for machine in [&mut so_far.sender_machine, &mut so_far.receiver_machine] {
            machine.processors.retain(|sample| sample.at <= elapsed);
        }
        so_far
    }

    /// Returns the evidence of `measurement`, with the bandwidth that the user stated, if any; of
    /// the upload where data goes both ways, whose streams are numbered first.
    pub fn from_measurement(
        measurement: &Measurement,
        bandwidth: Option<BitRate>,
        framing: Framing,
    ) -> Self {
        let (sender, receiver) = (measurement.sending_end(), measurement.receiving_end());
        let steady = measurement.summary.steady;
        // A server of ndt7 states times of limits without the window: too little to judge by.
        let is_whole = |sample: &Sample| sample.tcp.cwnd.is_some() || sample.tcp.busy.is_none();
        let judged =
            |sample: &&Sample| sample.stream < measurement.request.streams && is_whole(sample);
        Self {
            request: measurement.carried_out().clone(),
            sender: sender.settings.clone(),
            receiver: receiver.settings.clone(),
            sender_sockets: sender.sockets.clone(),
            receiver_sockets: receiver.sockets.clone(),
            sender_machine: machine_of_end(sender),
            receiver_machine: machine_of_end(receiver),
            sender_samples: sender.samples.iter().filter(judged).cloned().collect(),
            receiver_samples: receiver.samples.iter().filter(judged).cloned().collect(),
            idle_rtt: measurement.rtt.idle.map(|rtt| rtt.min),
            idle_spread: measurement
                .rtt
                .idle
                .filter(|_| measurement.rtt.method != RttMethod::TcpInfo),
            loaded_rtt: loaded_rtt(measurement, steady.map_or(Span::ZERO, |steady| steady.ramp)),
            steady,
            bandwidth,
            framing,
            http2_wait: sender.http2_wait,
            ..Self::default()
        }
    }
}

/// Returns the median round-trip time under load after the `ramp`: of echo requests or, without
/// them, of the connections.
fn loaded_rtt(measurement: &Measurement, ramp: Span) -> Option<Span> {
    let later = measurement
        .sending_end()
        .samples
        .iter()
        .filter(|sample| sample.at >= ramp);
    let of_kernel = median(later.filter_map(|sample| sample.tcp.rtt).collect());
    let of_kernel = of_kernel.filter(|_| measurement.rtt.method == RttMethod::TcpInfo);
    of_kernel.or_else(|| measurement.rtt.loaded_after(ramp))
}

fn machine_of_end(end: &EndReport) -> Machine {
    Machine {
        processors: end.processors.clone(),
        device: end.device.clone(),
        network: end.network,
        storage: end.storage,
    }
}
