//! Cross traffic of a step: each phase of each is a measurement of its own, between the same hosts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fullpipe_lab::Host;
use fullpipe_record::event::{CrossTrafficFailure, CrossTrafficPhase};
use fullpipe_record::{LabCrossTraffic, PathDirection};
use fullpipe_scenario::CrossTraffic;
use fullpipe_sim::{CrossTraffic as Phase, CrossTrafficResult};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::error::ExperimentError;
use crate::in_lab::{LabTarget, POLL_INTERVAL, TIMEOUT};
use crate::phases::{MIN_PHASE, cross_traffic_phases, lead_time, load_phases};
use crate::prelude::*;
use crate::target::{ExperimentTarget, Interrupt};
use crate::virtual_target::VirtualTarget;

/// The port of the server of these loads: the step's own has the usual one.
const PORT: u16 = 5202;

/// Phases of a load without end: each gathers samples until it is over, and the file has none that
/// is longer.
const MAX_PHASE: Span = Span::from_secs(600);

/// Time that a load which failed waits before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `work`, which sends as `main` has it, while `cross_traffic` runs in `target`, and returns
/// the result of each load. Those with a range of rates draw from `seed`.
///
/// # Errors
/// The error of `work`; and if no phase of one of the loads could be measured.
pub(crate) fn run_with_cross_traffic<W>(
    target: &LabTarget<'_>,
    (cross_traffic, seed): (&[CrossTraffic], u64),
    main: &Request,
    interrupt: Interrupt<'_>,
    work: impl FnOnce() -> Result<W, ExperimentError>,
) -> Result<(W, Vec<LabCrossTraffic>), ExperimentError> {
    if cross_traffic.is_empty() {
        return Ok((work()?, Vec::new()));
    }
    let server = target.start_server(Host::Receiver, &["--port", &PORT.to_string()])?;
    let (lead, plans) = cross_traffic_phases(cross_traffic, main, seed);
    let (origin, over) = (Instant::now(), &AtomicBool::new(false));
    let done = thread::scope(|scope| {
        let running: Vec<Vec<_>> = plans
            .iter()
            .map(|phases| {
                let phases = phases.iter();
                phases
                    .map(|phase| {
                        scope.spawn(move || run_phase(target, phase, origin, over, interrupt))
                    })
                    .collect()
            })
            .collect();
        sleep_until(origin + lead.into(), over);
        let measured = work();
        over.store(true, Ordering::Relaxed);
        let path = &target.path().forward;
        let loads = cross_traffic
            .iter()
            .zip(running)
            .map(|(load, running)| load_outcome(load, path, running))
            .collect::<Vec<_>>();
        Ok((measured?, loads.into_iter().collect::<Result<_, _>>()?))
    });
    server.interrupt_program()?;
    server.finish_within(TIMEOUT)?;
    done
}

/// Measures as `main` has it while `cross_traffic` runs in virtual time, and returns the result of
/// each load. Those with a range of rates draw from `seed`.
///
/// # Errors
/// If something is not modelled, or it is interrupted.
pub(crate) fn measure_with_cross_traffic(
    target: &VirtualTarget,
    (cross_traffic, seed): (&[CrossTraffic], u64),
    main: &Request,
    interrupt: Interrupt<'_>,
    progress: &mut dyn FnMut(&Interval),
) -> Result<(Measurement, Vec<LabCrossTraffic>), ExperimentError> {
    let (lead, plans) = cross_traffic_phases(cross_traffic, main, seed);
    let (measurement, results) =
        target.measure_with(main, (lead, plans.concat()), interrupt, progress)?;
    let mut results = results.into_iter();
    let loads = cross_traffic.iter().zip(plans).map(|(load, phases)| {
        let ended: Vec<_> = phases
            .into_iter()
            .map(|phase| phase.request)
            .zip(&mut results)
            .collect();
        load_summary(load, &target.path().forward, &ended)
    });
    let loads = loads.collect();
    Ok((measurement, loads))
}

/// Runs `cross_traffic` in `target` for as long as `work` takes, from the first on, and passes
/// their events to `observe`. Those with a range of rates draw from `seed`. Afterwards no program
/// is left in the lab.
///
/// # Errors
/// If the far end of the loads does not come up; then `work` is not begun.
pub fn keep_cross_traffic<W>(
    target: &LabTarget<'_>,
    (cross_traffic, seed): (&[CrossTraffic], u64),
    observe: &(dyn Fn(&Event) + Sync),
    work: impl FnOnce() -> W,
) -> Result<W, ExperimentError> {
    if cross_traffic.is_empty() {
        return Ok(work());
    }
    let _server = target.start_server(Host::Receiver, &["--port", &PORT.to_string()])?;
    let lead = cross_traffic
        .iter()
        .map(lead_time)
        .max()
        .unwrap_or_default();
    let (origin, over) = (Instant::now(), &AtomicBool::new(false));
    Ok(thread::scope(|scope| {
        for (place, load) in cross_traffic.iter().enumerate() {
            let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_add(place as u64));
            let endless = CrossTraffic {
                on_off: load.on_off.or(Some((MAX_PHASE, Span::ZERO))),
                ..load.clone()
            };
            scope.spawn(move || {
                for phase in load_phases(&endless, lead, Span::MAX, &mut random)
                    .take_while(|_| !over.load(Ordering::Relaxed))
                {
                    sleep_until(origin + phase.starts.into(), over);
                    // The next one need not wait until this one has reported its end to its far
                    // end.
                    scope.spawn(move || keep_phase(target, (place, phase), origin, over, observe));
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        // A load that was asked to end would first notify its far end, over a path that may be full
        // or have become slow.
        target.lab.end_programs();
        done
    }))
}

/// Runs a phase that begins now, and what is left of it again where that failed: datagrams that
/// fill the path may keep others from beginning.
fn keep_phase(
    target: &LabTarget<'_>,
    (place, phase): (usize, Phase),
    origin: Instant,
    over: &AtomicBool,
    observe: &(dyn Fn(&Event) + Sync),
) {
    let ends = phase.starts + phase.request.duration;
    let mut failed = false;
    while !over.load(Ordering::Relaxed) {
        let starts = Span::from(origin.elapsed());
        let left = ends.saturating_sub(starts);
        if left < MIN_PHASE {
            return;
        }
        let rest = Phase {
            starts,
            request: Request {
                duration: left,
                ..phase.request.clone()
            },
        };
        let Request { rate, duration, .. } = rest.request;
        observe(&Event::CrossTraffic(CrossTrafficPhase {
            load: place,
            rate,
            duration,
        }));
        let done = run_phase(target, &rest, origin, over, Interrupt(over));
        if let Some(Err(error)) = done
            && !over.load(Ordering::Relaxed)
        {
            if !std::mem::replace(&mut failed, true) {
                let failure = CrossTrafficFailure {
                    load: place,
                    message: error.to_string(),
                };
                observe(&Event::CrossTrafficFailed(failure));
            }
            sleep_until(Instant::now() + PAUSE, over);
        }
    }
}

/// `None` where the step was over first.
fn run_phase(
    target: &LabTarget<'_>,
    phase: &Phase,
    origin: Instant,
    over: &AtomicBool,
    interrupt: Interrupt<'_>,
) -> Option<Result<Measurement, ExperimentError>> {
    sleep_until(origin + phase.starts.into(), over);
    let skipped = over.load(Ordering::Relaxed) || interrupt.is_requested();
    (!skipped).then(|| {
        target.send_load(
            &phase.request,
            &["--port", &PORT.to_string()],
            interrupt,
            &mut |_| {},
        )
    })
}

fn sleep_until(moment: Instant, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        match moment.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return,
            left => thread::sleep(left.min(POLL_INTERVAL)),
        }
    }
}

type Running<'s> = ScopedJoinHandle<'s, Option<Result<Measurement, ExperimentError>>>;

/// Returns the result of a load. A phase that failed is left out as long as another did not: the
/// control connection of one may starve with the data that it competes with.
fn load_outcome(
    load: &CrossTraffic,
    path: &PathDirection,
    running: Vec<Running<'_>>,
) -> Result<LabCrossTraffic, ExperimentError> {
    let ended = running
        .into_iter()
        .filter_map(|phase| phase.join().ok().flatten());
    let (done, mut failed): (Vec<_>, Vec<_>) = ended.partition(Result::is_ok);
    let done: Vec<_> = done
        .into_iter()
        .flatten()
        .map(|phase| (phase.request.clone(), phase_result(&phase)))
        .collect();
    if let (true, Some(Err(error))) = (done.is_empty(), failed.pop()) {
        return Err(error);
    }
    Ok(load_summary(load, path, &done))
}

fn phase_result(phase: &Measurement) -> CrossTrafficResult {
    CrossTrafficResult {
        sent: phase.summary.sent,
        received: phase.summary.received,
        sending: phase.sending_time(),
        datagrams: phase.summary.datagrams,
    }
}

fn load_summary(
    load: &CrossTraffic,
    path: &PathDirection,
    phases: &[(Request, CrossTrafficResult)],
) -> LabCrossTraffic {
    let time: Span = phases
        .iter()
        .map(|(_, phase)| arrival_time(path, phase))
        .sum();
    let received: ByteCount = phases.iter().map(|(_, phase)| phase.received).sum();
    let datagrams = phases.iter().filter_map(|(_, phase)| phase.datagrams);
    let (lost, arrived) = datagrams.clone().fold((0, 0), |(lost, arrived), seen| {
        (lost + seen.lost, arrived + seen.received)
    });
    let is_udp = load.request.transport == Transport::Udp;
    LabCrossTraffic {
        request: phases
            .first()
            .map_or_else(|| load.request.clone(), |(request, _)| request.clone()),
        phases: u32::try_from(phases.len()).unwrap_or(u32::MAX),
        published: load.published,
        measured: (!phases.is_empty()).then(|| BitRate::from_bytes_in(received, time)),
        loss: is_udp.then(|| Ratio::from_quotient(lost as f64, (lost + arrived) as f64)),
        jitter: datagrams.map(|seen| seen.jitter).max(),
    }
}

/// Returns the time in which the datagrams of a phase arrived: as long as they were sent, and as
/// long as the queue holds of them then takes to run empty, at the least, as what others have in it
/// is not counted. What TCP sent has arrived by then.
fn arrival_time(path: &PathDirection, phase: &CrossTrafficResult) -> Span {
    phase.sending
        + phase.datagrams.map_or(Span::ZERO, |_| {
            queue_drain_time(path, phase.sent, phase.sending)
        })
}

/// Returns the time in which a queue runs empty that received `sent` during `sending`.
fn queue_drain_time(path: &PathDirection, sent: ByteCount, sending: Span) -> Span {
    let Some(rate) = path.rate else {
        return Span::ZERO;
    };
    let waiting = sent.saturating_sub(rate.bytes_in(sending));
    rate.time_for(path.queue.map_or(waiting, |queue| queue.min(waiting)))
}

#[cfg(test)]
mod tests;
