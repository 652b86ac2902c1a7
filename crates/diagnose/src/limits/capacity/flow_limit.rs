//! A bound of each connection, which several of them multiply.

use crate::limits::capacity::cause_of_capacity;
use crate::limits::prelude::*;
use crate::signals::path;
use crate::text;
use crate::thresholds::{MAX_STREAMS, NEXT_SIZE_FACTOR, SHARED_PIPE_SHARE};

candidate_sets! {
    /// Connections that all have one rate.
    EACH_OR_SHARED: [Capacity PerFlowLimit, Capacity Shared],
        "transfers of one connection and of twice as many: whether each keeps its rate";
    /// Connections that all have one rate, and lose packets.
    EACH_OR_POLICER: [Capacity PerFlowLimit, Loss Policer],
        "transfers of one connection and of twice as many: whether each keeps its rate";
    /// A single connection at a rate that providers grant one.
    KNOWN_LIMIT: [Capacity PerFlowLimit],
        "a transfer of several connections (-P 4): whether they carry more together";
}

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![several_connections(advice)],
    manual_remedies: &[ManualRemedy::new(
        "raise-the-limit-of-a-flow",
        Scope::Path,
        "Who runs the path bounds each connection: its documentation says by how much, and where \
         not (one placement group, another class of the service).",
    )],
    ..cause_of_capacity(&["capacity/per-flow-limit"], |figures, _| {
        let (rate, streams) = (figures.rate, figures.stream_count());
        format!(
            "The path bounds each connection: each of {streams} carries {}, and all of them {rate}{}.",
            rate.scale_by(1.0 / f64::from(streams)),
            text::could_carry(figures),
        )
    })
};

/// Largest difference between the data of connections, as a share of their median, at which each
/// has a bound of its own.
const SAME_RATE_OF_FLOWS: f64 = 0.05;
/// Largest difference between the data of connections, as a share of their median, where no chance
/// makes them alike (measured of kernels: up to 0.007 of connections with a bound each, 0.022 and
/// more of those that share a queue).
const EQUAL_RATE_OF_FLOWS: f64 = 0.01;
/// Connections that are policed and carry the same, from which each may have a policer of its own.
const MIN_POLICED_FLOWS: usize = 3;

/// Finds a bound of each connection where several have one and the same rate, and together far less
/// than the stated bandwidth. A single one at a rate that providers grant a connection may have it.
pub(crate) fn find_flow_limit(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let is_policed = found.verdict == LegalVerdict::Loss(LossVerdict::Policer);
    if figures.stream_count() > 1 {
        let stated = stated_capacity(figures)?;
        let spread = rate_spread(figures)?;
        // Windows that a policer cuts are alike by chance at times.
        let are_several = figures.flows.len() >= MIN_POLICED_FLOWS;
        let is_loss = found.limit_kind() == Limit::Loss;
        let is_alike = are_several && (is_policed || spread <= EQUAL_RATE_OF_FLOWS)
            || !is_loss && path::carries_one_rate(figures);
        let set = if is_loss {
            &EACH_OR_POLICER
        } else {
            &EACH_OR_SHARED
        };
        let is_bound = figures.rate < stated.scale_by(SHARED_PIPE_SHARE)
            && is_alike
            && spread <= SAME_RATE_OF_FLOWS;
        return is_bound.then(|| found.as_verdict(CapacityVerdict::PerFlowLimit).one_of(set));
    }
    let may_be = is_policed || found.verdict == LegalVerdict::Capacity(CapacityVerdict::Link);
    (may_be && is_at_known_limit(figures)).then(|| found.clone().one_of(&KNOWN_LIMIT))
}

/// Returns the largest difference between what streams carry, as a share of their median; `None`
/// where it is not known how much one of them carries.
fn rate_spread(figures: &SenderView) -> Option<f64> {
    let sizes: Vec<u64> = figures
        .flows
        .iter()
        .map(|flow| flow.counter_growth(|tcp| tcp.bytes_acked.map(ByteCount::get)))
        .collect::<Option<_>>()?;
    let spread = sizes.iter().max()? - sizes.iter().min()?;
    let middle = median(sizes).filter(|middle| *middle > 0)?;
    Some(spread as f64 / middle as f64)
}

/// Payload rates that providers grant a connection at most, whatever the machine may send: 5 Gbit/s
/// between EC2 instances, and 10 Gbit/s within a cluster placement group (Amazon EC2 User Guide,
/// "Amazon EC2 instance network bandwidth").
const KNOWN_FLOW_LIMITS: [BitRate; 2] = [BitRate::from_mbps(5000), BitRate::from_mbps(10_000)];
/// Goodput ÷ such a rate where a connection has all of it: headers take up to 6 % (seen: 4.97 of 5
/// Gbit/s).
const AT_KNOWN_FLOW_LIMIT: std::ops::RangeInclusive<f64> = 0.92..=1.01;

/// Returns true if one stream has an even rate that is known as the most of a connection, and
/// neither the stated bandwidth nor its device is as slow.
fn is_at_known_limit(figures: &SenderView) -> bool {
    let device = figures.evidence.sender_machine.device.as_ref();
    let of_device = device.and_then(|device| device.speed);
    let slowest = [of_device, stated_capacity(figures)]
        .into_iter()
        .flatten()
        .min();
    let is_at_limit = KNOWN_FLOW_LIMITS.iter().any(|limit| {
        let bound = limit.scale_by(1.0 / SHARED_PIPE_SHARE);
        AT_KNOWN_FLOW_LIMIT.contains(&figures.rate.relative_to(*limit))
            && slowest.is_none_or(|slowest| slowest >= bound)
    });
    figures.stream_count() == 1 && is_at_limit && path::carries_one_rate(figures)
}

/// Returns as many connections as fill the stated bandwidth at the present rate of each, or several
/// times as many; `None` where more of them carry no more. Only the test itself shows the gain.
pub(crate) fn several_connections(advice: &RemedyAdvice) -> Option<Remedy> {
    let figures = advice.figures;
    let present = figures.stream_count();
    if present == 1 && !is_at_known_limit(figures) {
        return None;
    }
    let times = stated_capacity(figures).map_or(NEXT_SIZE_FACTOR as f64, |stated| {
        stated.relative_to(figures.rate).ceil()
    });
    let streams = (f64::from(present) * times).clamp(1.0, f64::from(MAX_STREAMS)) as u16;
    let why = format!(
        "Each connection has a bound of its own: {streams} of them carry {streams} times what one does, as far as the \
         path can."
    );
    let changes = vec![Change::Streams(streams)];
    let id = "parallel-streams";
    let remedy = advice.build_remedy(id, Scope::Application, At::Sender, changes, why);
    (streams > present).then_some(Remedy {
        predicted: None,
        rtt: None,
        ..remedy
    })
}
