use crate::improvement::WindowConstraint;
use crate::kernel::{self, ReceiveBuffer};
use crate::prelude::*;
use crate::{distance, window};
use fullpipe_record::{BufferAdvice, Calculation, Solved};

use super::case::{HostPair, PredictorCase, estimate_inputs, round_trip};
use super::critical::{CriticalValue, most_sufficient};
use super::improvement::find_improvement;
use super::needs::{MAX_DURATION, joint_needs, single_needs};
use super::sizing::{congestion_control, control_name, lower_window};
use super::target::TransferTarget;
use super::{InputError, WhatIfChange};

/// Returns the whole answer for the `inputs` of a transfer between `hosts`, and one estimate for
/// each of `what_ifs`.
///
/// The equation rate = streams × window ÷ round trip is solved for the one that is left out. The
/// rate is the bandwidth, or else the one that is wanted; the window is given, or what a buffer
/// request yields, or what loss leaves. The prediction, the needs and the what-ifs then hold for
/// the round trip that was given or followed.
///
/// # Errors
/// Too little to calculate from, or what contradicts itself.
pub fn calculate(
    inputs: &Inputs,
    hosts: &HostPair,
    what_ifs: &[WhatIfChange],
) -> Result<Calculation, InputError> {
    check_inputs(inputs)?;
    let (solved, rtt, window) = solve_equation(inputs, hosts)?;
    let said = inputs;
    let inputs = Inputs {
        rtt: Some(rtt),
        ..said.clone()
    };
    let case = PredictorCase::from_inputs(&inputs);
    let mut prediction = case.prediction(hosts);
    prediction.notes.splice(0..0, distance_note(said, rtt));
    let as_is = estimate_inputs(&inputs, hosts);
    prediction.limit = as_is.limit;
    let target = TransferTarget::from_inputs(&inputs);
    let rate = target.and_then(|target| target.needed_rate(&inputs, hosts));
    let wanted = target.zip(rate);
    Ok(Calculation {
        solved,
        bandwidth: inputs.bandwidth,
        rtt,
        window,
        rate: match (solved, inputs.size.zip(as_is.time)) {
            (Solved::Rate, Some((size, time))) if as_is.limit == Limit::CongestionWindow => {
                BitRate::from_bytes_in(size, time)
            }
            (Solved::Rate, _) => prediction.kernel_model,
            (Solved::Window | Solved::Rtt, _) => inputs
                .bandwidth
                .unwrap_or_else(|| window::rate_of_window(window * equation_streams(&inputs), rtt)),
        },
        mss: prediction.mss,
        efficiency: prediction.efficiency,
        buffers: buffer_advice(&inputs, hosts, window, prediction.mss),
        time: as_is.time,
        completion: case.completion(&as_is, prediction.efficiency, hosts),
        target: rate,
        needs: wanted
            .map(|(target, rate)| joint_needs(target, rate, &inputs, hosts))
            .unwrap_or_default(),
        alone: wanted
            .map(|(target, _)| single_needs(target, &inputs, hosts))
            .unwrap_or_default(),
        improvement: wanted
            .and_then(|(target, rate)| find_improvement(target, rate, &inputs, hosts)),
        what_ifs: what_ifs
            .iter()
            .map(|one| one.estimate_change(&inputs, hosts, &as_is))
            .collect::<Result<_, _>>()?,
        prediction,
        inputs,
    })
}

/// Returns a note about the source of the round trip, or that no fibre allows it.
fn distance_note(said: &Inputs, rtt: Span) -> Option<String> {
    let far = said.distance?;
    let floor = distance::fibre_floor(far);
    if said.rtt.is_none() {
        return Some(format!(
            "a round trip of {rtt} is usual over {far}; fibre allows {floor} at best"
        ));
    }
    distance::below_floor(rtt, far).then(|| {
        format!("no fibre over {far} has a round trip of {rtt} (the least is {floor}): something nearer answers")
    })
}

/// Returns why a statement about the load has no effect beside another; `None` where each has one.
pub fn load_fault(inputs: &Inputs) -> Option<&'static str> {
    let stated = &inputs.stated;
    let has_window = inputs.window.is_some();
    if has_window && inputs.buffer.is_some() {
        return Some(WINDOW_AND_BUFFER);
    }
    if has_window && stated.rcvbuf.is_some() {
        return Some(WINDOW_AND_RCVBUF);
    }
    if inputs.buffer.is_some() && stated.sndbuf.is_some() && stated.rcvbuf.is_some() {
        return Some(BUFFER_OF_NO_END);
    }
    (stated.pause.is_some() && stated.app_window.is_none()).then_some(PAUSE_ALONE)
}

/// Refuses what contradicts itself.
fn check_inputs(inputs: &Inputs) -> Result<(), InputError> {
    if let Some(fault) = load_fault(inputs) {
        return Err(InputError::new(fault));
    }
    let sentence = match (inputs.rate, inputs.size, inputs.time) {
        (_, None, Some(_)) => "--time is how long a --size may take; add for example --size 10GiB",
        (Some(_), _, Some(_)) => {
            "--rate and --time both say how fast it should be; give one of them"
        }
        _ => return Ok(()),
    };
    Err(InputError::new(sentence))
}

/// Returns the part of the equation that it was solved for, the round trip and the window.
fn solve_equation(
    inputs: &Inputs,
    hosts: &HostPair,
) -> Result<(Solved, Span, ByteCount), InputError> {
    let has_loss = inputs.loss > Some(Ratio::ZERO);
    Ok(
        match (
            rate_of_each(inputs),
            round_trip(inputs),
            equation_window(inputs, hosts),
        ) {
            (Some(rate), Some(rtt), None) => (Solved::Window, rtt, window::bdp(rate, rtt)),
            (Some(rate), None, Some(size)) => {
                (Solved::Rtt, window::rtt_of_window(size, rate), size)
            }
            (Some(_), None, None) if has_loss => {
                let rtt = longest_rtt(inputs, hosts)?;
                let inputs = Inputs {
                    rtt: Some(rtt),
                    ..inputs.clone()
                };
                (Solved::Rtt, rtt, kept_under_loss(&inputs, hosts, "--rtt")?)
            }
            (_, Some(rtt), Some(size)) => (Solved::Rate, rtt, size),
            (None, Some(rtt), None) if has_loss => {
                let size = kept_under_loss(inputs, hosts, "--bandwidth")?;
                (Solved::Rate, rtt, size)
            }
            (None, Some(rtt), None) if inputs.size.is_some() => {
                let prediction = PredictorCase::from_inputs(inputs).prediction(hosts);
                let window = lower_window(&prediction).and_then(|ceiling| ceiling.window);
                (Solved::Rate, rtt, window.unwrap_or_default())
            }
            _ => return Err(InputError::new(TOO_LITTLE)),
        },
    )
}

/// The streams that share the rate of the equation; the window is that of each.
fn equation_streams(inputs: &Inputs) -> u64 {
    inputs.streams.unwrap_or(1).max(1).into()
}

/// The part of each stream in the rate of the equation: the path's, or else the one that is wanted.
fn rate_of_each(inputs: &Inputs) -> Option<BitRate> {
    let rate = inputs
        .bandwidth
        .or(inputs.rate)
        .or_else(|| Some(BitRate::from_bytes_in(inputs.size?, inputs.time?)))?;
    let of_each = rate.bps().div_ceil(equation_streams(inputs));
    Some(BitRate::from_bps(of_each))
}

/// The window of the equation: the least of those that were given, of what the receiver's kernel
/// makes of its request, and of the sender's buffer.
fn equation_window(inputs: &Inputs, hosts: &HostPair) -> Option<ByteCount> {
    let stated = inputs.stated;
    let advertised = stated
        .rcvbuf
        .or(inputs.buffer)
        .map(|request| ReceiveBuffer::fixed_buffer(&hosts.receiver, request).max_window());
    let held = stated
        .sndbuf
        .map(|request| kernel::stored_sndbuf(&hosts.sender, request));
    let program = stated.app_window.map(|window| window.bytes);
    [inputs.window, advertised, held, program]
        .into_iter()
        .flatten()
        .min()
}

/// Returns the window that loss leaves over the round trip of `inputs`. Fails if loss does not bound
/// it: `wanted` would take its place.
fn kept_under_loss(
    inputs: &Inputs,
    hosts: &HostPair,
    wanted: &str,
) -> Result<ByteCount, InputError> {
    let prediction = PredictorCase::from_inputs(inputs).prediction(hosts);
    let ceiling = prediction.find_ceiling(Limit::Loss);
    ceiling.and_then(|ceiling| ceiling.window).ok_or_else(|| {
        let control = control_name(inputs, &hosts.sender);
        InputError::new(format!(
            "{control} is not bound by loss: add {wanted}, or say -C cubic"
        ))
    })
}

/// The longest round trip over which the target is met.
fn longest_rtt(inputs: &Inputs, hosts: &HostPair) -> Result<Span, InputError> {
    let target = TransferTarget::from_inputs(inputs).unwrap_or(TransferTarget::Fill);
    let most = most_sufficient(1, MAX_DURATION.as_nanos(), |nanos| {
        target.is_met_with(inputs, hosts, |inputs| {
            inputs.rtt = Some(Span::from_nanos(nanos));
        })
    });
    match most {
        CriticalValue::At(nanos) => Ok(Span::from_nanos(nanos)),
        CriticalValue::Always => Ok(MAX_DURATION),
        CriticalValue::Never => Err(InputError::new(
            "no round trip is short enough for that rate; say one with --rtt to see what limits it",
        )),
    }
}

fn buffer_advice(
    inputs: &Inputs,
    hosts: &HostPair,
    size: ByteCount,
    mss: ByteCount,
) -> BufferAdvice {
    let control = congestion_control(inputs, &hosts.sender);
    let [tcp_rmem_reason, tcp_wmem_reason] = [
        WindowConstraint::ReceiveMaximum,
        WindowConstraint::SendMaximum,
    ]
    .map(|constraint| {
        constraint
            .reason_for_maximum(size, control, &hosts.receiver)
            .unwrap_or_default()
    });
    BufferAdvice {
        tcp_rmem_max: kernel::tcp_rmem_max_for(&hosts.receiver, size),
        tcp_rmem_reason,
        tcp_wmem_max: kernel::tcp_wmem_max_for(control, size),
        tcp_wmem_reason,
        so_rcvbuf: kernel::request_for_window(&hosts.receiver, size, mss),
        rmem_max: kernel::rmem_max(&hosts.receiver),
    }
}

pub(crate) const WINDOW_AND_BUFFER: &str = "--window and --buffer exclude each other: a window is what the receiver \
                                            advertises, a buffer what the program asks of the kernel; give one of them";
const WINDOW_AND_RCVBUF: &str =
    "--window and --rcvbuf both fix what the receiver advertises; give one of them";
const BUFFER_OF_NO_END: &str =
    "--buffer has no effect beside --sndbuf and --rcvbuf, which fix both ends; leave it out";
/// Sentence about a pause without requests.
pub const PAUSE_ALONE: &str = "--pause is the time between an answer and the next request; add for example --request-size \
                           64KiB";
const TOO_LITTLE: &str = "calc needs two of --bandwidth (or --rate, or --size and --time), --rtt (or --distance) and \
                          --window (or --buffer, or --loss), as in `fullpipe calc --bandwidth 100Mbit/s --rtt 173ms`";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use proptest::prelude::*;

    fn inputs(words: &str) -> Inputs {
        let mut inputs = Inputs::default();
        for word in words.split(' ') {
            let (key, value) = word.split_once('=').unwrap();
            match key {
                "rate" => inputs.rate = Some(value.parse().unwrap()),
                "time" => inputs.time = Some(value.parse().unwrap()),
                _ => {
                    let quantity = crate::calc::READABLE
                        .into_iter()
                        .find(|quantity| quantity.name() == key)
                        .unwrap();
                    crate::calc::QuantitySetting::read(quantity, value)
                        .unwrap()
                        .apply_to(&mut inputs);
                }
            }
        }
        inputs
    }

    fn solved(words: &str) -> Calculation {
        calculate(&inputs(words), &test_fixture::default_hosts(), &[]).unwrap()
    }

    #[test]
    fn a_size_is_complete_within_the_spread_of_the_prediction() {
        let solved = solved("bandwidth=100M rtt=20ms loss=0.0001 size=1GB");
        let (completion, prediction) = (solved.completion.unwrap(), &solved.prediction);
        assert_eq!(Some(completion.time), solved.time);
        let size = ByteCount::new(1_000_000_000);
        for (time, rate) in [
            (completion.low, prediction.high),
            (completion.time, prediction.kernel_model),
            (completion.high, prediction.low),
        ] {
            let steady = rate.time_for(size);
            assert!(
                steady <= time && time < steady + Span::from_secs(1),
                "{completion:?}"
            );
        }
        let ideal = BitRate::from_mbps(100)
            .scale_by(prediction.efficiency.get())
            .time_for(size);
        let efficiency = completion.efficiency.unwrap().get();
        let expected = ideal.as_secs_f64() / completion.time.as_secs_f64();
        assert!((efficiency - expected).abs() < 1e-6 && efficiency < 1.0);
    }

    #[test]
    fn whatever_is_left_out_follows() {
        for (words, what, rtt, window, rate) in [
            (
                "bandwidth=100M rtt=173ms",
                Solved::Window,
                "173 ms",
                2_162_500,
                100_000_000,
            ),
            (
                "bandwidth=100M window=2162500",
                Solved::Rtt,
                "173 ms",
                2_162_500,
                100_000_000,
            ),
            (
                "window=64KiB rtt=173ms",
                Solved::Rate,
                "173 ms",
                65_536,
                3_030_566,
            ),
            (
                "rate=100M rtt=173ms",
                Solved::Window,
                "173 ms",
                2_162_500,
                100_000_000,
            ),
            // 1 GB in 80 s.
            (
                "size=1GB time=80s rtt=173ms",
                Solved::Window,
                "173 ms",
                2_162_500,
                100_000_000,
            ),
            (
                "bandwidth=10G distance=8000km",
                Solved::Window,
                "120 ms",
                150_000_000,
                10_000_000_000,
            ),
            (
                "bandwidth=100M rtt=173ms streams=4",
                Solved::Window,
                "173 ms",
                540_625,
                100_000_000,
            ),
            (
                "bandwidth=100M window=540625 streams=4",
                Solved::Rtt,
                "173 ms",
                540_625,
                100_000_000,
            ),
            (
                "window=64KiB rtt=173ms streams=4",
                Solved::Rate,
                "173 ms",
                65_536,
                12_122_264,
            ),
        ] {
            let got = solved(words);
            assert_eq!(
                (got.solved, got.rtt.to_string().as_str(), got.window.get()),
                (what, rtt, window),
                "{words}"
            );
            let textbook = match got.solved {
                Solved::Rate => got.prediction.textbook,
                Solved::Window | Solved::Rtt => got.rate,
            };
            // A window of 64 KiB takes one byte more than a header can say.
            assert!(
                textbook.bps().abs_diff(rate) <= rate / 60_000,
                "{words}: {textbook}"
            );
        }
    }

    #[test]
    fn a_buffer_request_has_the_rate_of_the_prediction_and_no_second_one() {
        let got = solved("buffer=64KiB rtt=10ms");
        // 5 ÷ 8 of what the kernel makes of the request, which is twice it.
        assert_eq!((got.solved, got.window.get()), (Solved::Rate, 81_920));
        assert_eq!(got.rate, got.prediction.kernel_model);
        assert!(got.rate < BitRate::from_bps(65_536_000), "{}", got.rate);
    }

    #[test]
    fn loss_takes_the_place_of_a_window() {
        // Reno keeps 1.31 ÷ √p segments of 1448 B under random losses.
        let got = solved("loss=1e-4 rtt=50ms congestion=reno");
        assert_eq!((got.solved, got.window.get() / 1448), (Solved::Rate, 131));
        // At the round trip that follows the link is full, and a nanosecond on it is not.
        let got = solved("loss=1e-4 bandwidth=100M congestion=reno");
        assert_eq!(got.solved, Solved::Rtt);
        assert!(
            got.alone
                .iter()
                .any(|need| need.met && need.value == Some(fullpipe_record::Value::Time(got.rtt)))
        );
    }

    #[test]
    fn a_distance_beyond_what_fibre_allows_is_noted() {
        let got = solved("bandwidth=1G rtt=10ms distance=8000km");
        assert!(
            got.prediction.notes[0].contains("no fibre over 8000 km"),
            "{:?}",
            got.prediction.notes
        );
        let got = solved("bandwidth=1G distance=8000km");
        assert!(
            got.prediction.notes[0].contains("120 ms is usual over 8000 km"),
            "{:?}",
            got.prediction.notes
        );
    }

    #[test]
    fn too_little_and_too_much_are_refused_in_a_sentence() {
        for (words, part) in [
            ("rtt=1ms", "two of --bandwidth"),
            ("bandwidth=1G", "two of --bandwidth"),
            ("bandwidth=1G loss=0", "two of --bandwidth"),
            ("loss=0 rtt=1ms", "two of --bandwidth"),
            ("window=1M size=1G", "two of --bandwidth"),
            ("bandwidth=1G rtt=1ms time=5s", "--size"),
            (
                "bandwidth=1G rtt=1ms time=5s size=1G rate=1G",
                "--rate and --time",
            ),
            ("bandwidth=1T loss=50%", "no round trip is short enough"),
            (
                "bandwidth=1G loss=0.01% congestion=bbr",
                "bbr is not bound by loss: add --rtt",
            ),
            (
                "loss=0.01% rtt=100ms congestion=bbr",
                "bbr is not bound by loss: add --bandwidth",
            ),
        ] {
            let stated = calculate(&inputs(words), &test_fixture::default_hosts(), &[])
                .unwrap_err()
                .to_string();
            assert!(stated.contains(part), "{words}: {stated}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_given_makes_it_panic(
            (bandwidth, rate) in (prop::option::of(1_u64..u64::MAX), prop::option::of(1_u64..u64::MAX)),
            (rtt, time) in (prop::option::of(1_u64..u64::MAX), prop::option::of(1_u64..u64::MAX)),
            (window, buffer) in (prop::option::of(1_u64..u64::MAX), prop::option::of(1_u64..u64::MAX)),
            (loss, size) in (prop::option::of(0_f64..1.0), prop::option::of(1_u64..u64::MAX)),
            (mtu, streams) in (68_u64..65_536, 1_u16..=128),
        ) {
            let inputs = Inputs {
                bandwidth: bandwidth.map(BitRate::from_bps),
                rate: rate.map(BitRate::from_bps),
                rtt: rtt.map(Span::from_nanos),
                time: time.map(Span::from_nanos),
                window: window.map(ByteCount::new),
                buffer: buffer.map(ByteCount::new),
                loss: loss.map(Ratio::new),
                size: size.map(ByteCount::new),
                mtu: Some(ByteCount::new(mtu)),
                streams: Some(streams),
                ..Inputs::default()
            };
            if let Err(error) = calculate(&inputs, &test_fixture::default_hosts(), &[]) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
