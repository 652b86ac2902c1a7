//! Limits of a transfer over time: what held the sender back, the windows as ceilings, and the
//! processors.

use fullpipe_record::{CpuSample, CpuTime, Sample, Verdict};

use super::course::{SampleSnapshot, arrival_rates, changes_by_step, limited_shares, of_end};
use super::prelude::*;
use super::transfer::limit_phrase;

/// Least share of the time that is worth a chart.
const WORTH_SHOWING: f64 = 0.05;

/// Points of a ceiling over the whole of a transfer.
const POINTS: usize = 240;

/// Ceilings above so many times the fastest rate do not matter, and would make the rest flat.
const FAR: f64 = 4.0;

/// Steps of the time of processors, which the kernel counts in 10 ms.
const CPU_STEPS: u64 = 60;

/// Returns the limits that the sender's kernel saw over time; `None` where neither held for long. A
/// full pipe, or any other limit, fills the buffer behind it, which the kernel counts too.
pub(super) fn held_back(
    sender: &[SampleSnapshot<'_>],
    limit: Option<&Verdict>,
) -> Option<PageSection> {
    let window = limited_shares(sender, |sample| sample.tcp.rwnd_limited);
    let buffer = limited_shares(sender, |sample| sample.tcp.sndbuf_limited);
    let [of_window, of_buffer] = [&window, &buffer].map(|shares| {
        shares.iter().map(|(_, share)| share.get()).sum::<f64>() / shares.len().max(1) as f64
    });
    if of_window.max(of_buffer) < WORTH_SHOWING {
        return None;
    }
    let (kind, share) = if of_buffer >= of_window {
        (Limit::SendBuffer, of_buffer)
    } else {
        (Limit::ReceiveWindow, of_window)
    };
    let panel = Panel::new("share of the time")
        .with_labelled_points("path", Steps, Grey, limited_shares(sender, by_path))
        .with_labelled_points("send buffer", Steps, Orange, buffer)
        .with_labelled_points("receive window", Steps, Green, window);
    let behind = limit.filter(|limit| limit.kind != kind && limit.kind != Limit::Unknown);
    let behind =
        behind.map_text(|limit| format!(", behind the limit: {}", limit_phrase(limit.kind)));
    let time = format!("{:.0} % of the time data was under way", share * 100.0);
    let title = match kind {
        Limit::SendBuffer => format!("The send buffer was full for {time}{behind}"),
        _ => format!("The receive window was used up for {time}{behind}"),
    };
    let method = "Time in which the sender's kernel had data or room for more and could not send, by what it waited \
         for, as a share of the time data was under way; path: the congestion window and the rate of the path.";
    Some(PageSection::new(
        title,
        method,
        Plot::new("Limits over time").with_panel(panel),
    ))
}

/// Returns the time in which data was under way and neither window nor buffer was short.
fn by_path(sample: &Sample) -> Option<Span> {
    Some(
        sample
            .tcp
            .busy?
            .saturating_sub(sample.tcp.rwnd_limited?)
            .saturating_sub(sample.tcp.sndbuf_limited?),
    )
}

/// Returns the rates that the windows allow over time, next to the rate; `None` where no window is
/// known.
pub(super) fn ceilings_over_time(
    measured: &Measurement,
    limit: Option<&Verdict>,
) -> Option<PageSection> {
    let sender = of_end(measured, measured.sending_end());
    let rate = arrival_rates(measured);
    let most = rate.iter().map(|(_, rate)| *rate).max()?;
    let most_drawn = FAR * most.as_f64();
    let mut advertised = allowed_rates(&sender, |sample| sample.tcp.snd_wnd);
    let mut congestion = allowed_rates(&sender, Sample::congestion_window);
    let title = allowed_by_windows(&advertised, &congestion, most_drawn);
    advertised.retain(|(_, rate)| rate.as_f64() <= most_drawn);
    congestion.retain(|(_, rate)| rate.as_f64() <= most_drawn);
    if advertised.len().max(congestion.len()) < 2 {
        return None;
    }
    let mut panel = Panel::new("rate")
        .with_labelled_points("congestion window", Line, Green, congestion)
        .with_labelled_points("advertised window", Line, Orange, advertised)
        .with_labelled_points("rate", Line, Blue, rate);
    for (kind, ceiling) in fixed_ceilings(limit) {
        if ceiling.as_f64() <= most_drawn {
            panel = panel.with_level(ceiling, &format!("{} {ceiling}", kind.name()));
        }
    }
    let method = "Each window ÷ the smoothed round-trip time, all streams together, and the rate. Dotted: ceilings \
                  that do not change. What allows more than four times the fastest rate is not drawn.";
    let plot = Plot::new("Ceilings over time").with_panel(panel);
    Some(PageSection::new(title, method, plot))
}

/// Returns the ceilings that do not change with time.
fn fixed_ceilings(limit: Option<&Verdict>) -> impl Iterator<Item = (Limit, BitRate)> {
    let fixed = [Limit::SendBuffer, Limit::Capacity, Limit::Pacing];
    let known = fixed.into_iter();
    known.filter_map(move |kind| Some((kind, *limit?.ceilings.get(&kind)?)))
}

/// Returns the rates that a window allows: it ÷ the smoothed round-trip time.
fn allowed_rates(
    sender: &[SampleSnapshot<'_>],
    window: fn(&Sample) -> Option<ByteCount>,
) -> Vec<(Span, BitRate)> {
    let every = sender.len().div_ceil(POINTS).max(1);
    let rates = sender.iter().step_by(every).filter_map(|snapshot| {
        let rtt = snapshot.largest_rtt()?;
        let rate = BitRate::from_bytes_in(snapshot.sum_figure(window)?, rtt);
        Some((snapshot.at, rate))
    });
    rates.collect()
}

/// Returns the median rates that the windows allow, as far as those are drawn.
fn allowed_by_windows(
    advertised: &[(Span, BitRate)],
    congestion: &[(Span, BitRate)],
    most_drawn: f64,
) -> String {
    let medians = [advertised, congestion].map(|rates| {
        median::<BitRate>(rates.iter().map(|(_, rate)| *rate).collect())
            .filter(|rate| rate.as_f64() <= most_drawn)
    });
    match medians {
        [Some(advertised), Some(congestion)] => {
            format!("The advertised window allows {advertised}, the congestion window {congestion}")
        }
        [Some(advertised), None] => format!("The advertised window allows {advertised}"),
        [None, Some(congestion)] => format!("The congestion window allows {congestion}"),
        [None, None] => "No window allows little enough to matter".to_owned(),
    }
}

/// Returns the processor time of both ends over time; `None` where no end reported it.
pub(super) fn processor_time_section(measured: &Measurement) -> Option<PageSection> {
    let ends = [measured.sending_end(), measured.receiving_end()].map(|end| &end.processors[..]);
    let programs = ends.map(|samples| {
        over_time(samples, |before, now, passed| {
            Some(program_share(before, now, passed))
        })
    });
    let title = processor_title(&programs)?;
    let mut plot = Plot::new("Processor time over time");
    let names = [
        ("sender, of one core", Blue),
        ("receiver, of one core", Orange),
    ];
    for ((samples, program), (name, hue)) in ends.into_iter().zip(programs).zip(names) {
        let core = over_time(samples, |before, now, _| busiest_core(before, now));
        plot = plot.with_panel(
            Panel::new(name)
                .with_labelled_points("program", Steps, hue, program)
                .with_labelled_points("busiest core", Steps, Grey, core),
        );
    }
    Some(PageSection::new(
        title,
        "Processor time of the program of each end, and of the core that has least to spare.",
        plot,
    ))
}

/// Returns the most that the programs of the sender and of the receiver spend; `None` if neither is
/// known.
fn processor_title(programs: &[Vec<(Span, Ratio)>; 2]) -> Option<String> {
    let [sender, receiver] = programs
        .each_ref()
        .map(|shares| (!shares.is_empty()).then(|| max_percent(shares)));
    Some(match (sender, receiver) {
        (None, None) => return None,
        (Some(sender), None) => format!("The sender spends up to {sender:.0} % of a core"),
        (None, Some(receiver)) => format!("The receiver spends up to {receiver:.0} % of a core"),
        (Some(sender), Some(receiver)) => {
            format!("The sender spends up to {sender:.0} % of a core, the receiver {receiver:.0} %")
        }
    })
}

/// Returns a share of the time between samples, by the end of each step.
fn over_time(
    samples: &[CpuSample],
    share: impl Fn(&CpuSample, &CpuSample, Span) -> Option<Ratio>,
) -> Vec<(Span, Ratio)> {
    let whole = samples
        .last()
        .map_or(Span::ZERO, |last| last.at.saturating_sub(samples[0].at));
    let states = samples.iter().map(|sample| (sample.at, sample));
    changes_by_step(states, whole / CPU_STEPS, |before, now, passed| {
        share(before, now, passed)
    })
}

fn program_share(before: &CpuSample, now: &CpuSample, passed: Span) -> Ratio {
    let [before, now] =
        [before, now].map(|sample| sample.user.as_secs_f64() + sample.system.as_secs_f64());
    Ratio::from_quotient((now - before).max(0.0), passed.as_secs_f64())
}

fn busiest_core(before: &CpuSample, now: &CpuSample) -> Option<Ratio> {
    let pairs = before.cores.iter().zip(&now.cores);
    pairs
        .map(|(before, now)| busy_share(before, now))
        .max_by(|one, other| one.get().total_cmp(&other.get()))
}

/// Returns the share of the time of a core that was not idle.
fn busy_share(before: &CpuTime, now: &CpuTime) -> Ratio {
    let [whole_before, whole] = [before, now].map(|time| {
        [
            time.user,
            time.system,
            time.interrupts,
            time.stolen,
            time.idle,
        ]
        .map(Span::as_secs_f64)
        .iter()
        .sum::<f64>()
    });
    let passed = whole - whole_before;
    if passed <= 0.0 {
        return Ratio::ZERO;
    }
    let idle = now.idle.saturating_sub(before.idle).as_secs_f64();
    Ratio::new((1.0 - idle / passed).clamp(0.0, 1.0))
}
