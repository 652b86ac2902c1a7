//! What a sweep measures: a real host, a lab or a simulation.

use super::Drawing;
use crate::commands::prelude::*;
use crate::live::SweepUpdate;
use fullpipe_experiment::{EmulatedTarget, LabTarget, SweepMeasurer, VirtualTarget};
use fullpipe_host::device_counts;
use fullpipe_lab::{Host as LabHost, Lab};
use fullpipe_probe::{TestEvent, measure_transfer, watch_closely};
use fullpipe_record::{DailyHours, DeviceCounts, Path};
use fullpipe_scenario::{PathSpec, Scenario, ScenarioStep, parse_path_flag_with};
use jiff::Zoned;
use std::thread::sleep;

/// Time between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A real host.
pub(super) struct RealHost<'p> {
    pub(super) destination: Destination,
    /// Name of the device of the last measurement; each of them states it anew, as the route may
    /// change.
    pub(super) device: Option<String>,
    pub(super) interrupt: Arc<AtomicBool>,
    pub(super) picture: &'p Drawing,
    pub(super) terminal: &'p Terminal,
}

impl RealHost<'_> {
    fn measure_request(&self, request: &Request, most: Option<ByteCount>) -> Result<Measurement> {
        if most.is_none() && self.picture.borrow().is_none() {
            let interrupt = &self.interrupt;
            let measured = measure_transfer(&self.destination, request, interrupt, &mut |_| {});
            return Ok(measured?);
        }
        let mut is_over = false;
        let measured = watch_closely(&self.destination, request, &self.interrupt, &mut |event| {
            let TestEvent::Snapshot(snapshot) = event else {
                return;
            };
            if let Some(picture) = &*self.picture.borrow() {
                picture.send(SweepUpdate::Snapshot(snapshot.clone()));
            }
            let moved: ByteCount = snapshot.streams.iter().map(|stream| stream.bytes).sum();
            if most.is_some_and(|most| moved > most) && !is_over {
                is_over = true;
                self.interrupt.store(true, Ordering::Relaxed);
            }
        });
        if is_over {
            // Not by the user: the sweep ends with its answer.
            self.interrupt.store(false, Ordering::Relaxed);
        }
        Ok(measured?)
    }
}

impl SweepMeasurer for RealHost<'_> {
    type Error = Failure;

    fn of_single(error: &Failure) -> Option<String> {
        of_single(error)
    }

    fn measure_run(
        &mut self,
        _: u32,
        request: &Request,
        most: Option<ByteCount>,
    ) -> Result<Measurement> {
        let measurement = self.measure_request(request, most)?;
        self.device = measurement
            .local
            .device
            .as_ref()
            .map(|device| device.name.clone());
        Ok(measurement)
    }

    fn device_counts(&mut self) -> Option<DeviceCounts> {
        device_counts(self.device.as_deref()?).ok()
    }

    fn wait_idle(&mut self, span: Span) {
        sleep_interruptibly(span, &self.interrupt);
    }

    fn wait_for(&mut self, hours: DailyHours) {
        if hours.wait_until_start(time_of_day()) > Span::ZERO {
            self.terminal
                .print_progress(&format!("runs begin at {hours}: waiting\n"));
        }
        // The clock may be set meanwhile.
        while hours.wait_until_start(time_of_day()) > Span::ZERO
            && !self.interrupt.load(Ordering::Relaxed)
        {
            sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the sentence of a failure that another run may not have: a server that does not answer,
/// too many streams. `None` for errors of the command line, and for permissions that this host
/// lacks: every run would fail alike.
fn of_single(error: &Failure) -> Option<String> {
    (error.code == FAILED).then(|| error.message.clone())
}

/// Returns the time since midnight by the clock on the wall.
fn time_of_day() -> Span {
    let now = Zoned::now();
    let parts = [now.hour(), now.minute(), now.second()];
    let parts = parts.map(|part| u64::try_from(part).unwrap_or(0));
    Span::from_secs(parts.into_iter().fold(0, |whole, part| whole * 60 + part))
}

/// A lab or a simulation.
pub(super) struct EmulatedPath<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) step: &'s ScenarioStep,
    /// `None` in virtual time.
    pub(super) lab: Option<&'s Lab>,
    pub(super) interrupt: Arc<AtomicBool>,
}

impl SweepMeasurer for EmulatedPath<'_> {
    type Error = Failure;

    fn of_single(error: &Failure) -> Option<String> {
        of_single(error)
    }

    /// Bytes of an emulated path cost nobody anything.
    fn measure_run(
        &mut self,
        number: u32,
        request: &Request,
        _: Option<ByteCount>,
    ) -> Result<Measurement> {
        let seed = self.scenario.seed.wrapping_add(number.into());
        let load = (&self.step.cross_traffic[..], seed);
        let interrupt = Interrupt(&self.interrupt);
        if let Some(lab) = self.lab {
            return Ok(EmulatedTarget::Lab(&LabTarget::new(lab)).measure(request, load, interrupt)?);
        }
        let [sender, receiver] = self.scenario.hosts_of(self.step);
        let target = VirtualTarget::new(
            self.scenario.path_of(self.step).clone(),
            [&sender, &receiver],
            seed,
        );
        Ok(EmulatedTarget::Virtual(&target).measure(request, load, interrupt)?)
    }

    fn device_counts(&mut self) -> Option<DeviceCounts> {
        self.lab?.device_counts(LabHost::Sender).ok()
    }

    fn wait_idle(&mut self, span: Span) {
        if self.lab.is_some() {
            sleep_interruptibly(span, &self.interrupt);
        }
    }

    /// No emulated path has users whom a run could disturb at any hour.
    fn wait_for(&mut self, _: DailyHours) {}
}

fn sleep_interruptibly(span: Span, interrupt: &AtomicBool) {
    let until = Instant::now() + Duration::from(span);
    while !interrupt.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(POLL_INTERVAL));
    }
}

/// Returns a path of which capacity and round-trip time are known.
pub(super) fn known_path(rate: BitRate, rtt: Span) -> Result<Path> {
    let flag = format!("rate={}bit/s,rtt={}ns", rate.bps(), rtt.as_nanos().max(1));
    Ok(parse_path_flag_with(
        &flag,
        &PathSpec::demo_path(),
        &|file| Err(file.to_owned()),
    )?)
}
