//! The steady rate of a program: of its TCP connections, and of what it keeps above TCP.

use std::num::NonZeroUsize;
use std::thread;

use fullpipe_experiment::{Interrupt, NamedPlan, simulate_each};
use fullpipe_model::kernel::{asked_fill, send_buffer};
use fullpipe_model::{predict, window};
use fullpipe_record::{
    HostSettings, Limit, Measurement, Path, ProgramPrediction, Progress, RAMP_ROUND_TRIPS, Request, Sample, Writer,
    steady,
};
use fullpipe_sim::Plan;
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::program::Program;

/// Transfers that are simulated where packets are lost by chance.
const SIMULATED: u16 = 19;

/// Places, among the sorted ones, of those between which four fifths lie.
const FOUR_FIFTHS: [usize; 2] = [1, 17];

/// Share of the rate of what a program keeps above TCP from which on that is the limit, and not the losses.
const FILLED: f64 = 0.95;

/// Multiple of the time of a transfer without end for which several connections are simulated, after their ramp.
const LONGER: f64 = 2.0;

/// A transfer whose rate is predicted.
#[derive(Clone, Copy)]
pub(crate) struct Predicted<'p> {
    /// The path from the sender to the receiver.
    pub(crate) path: &'p Path,
    /// Settings of the sender and of the receiver.
    pub(crate) hosts: [&'p HostSettings; 2],
    /// Size of the file.
    pub(crate) size: ByteCount,
}

impl Predicted<'_> {
    /// Returns the prediction of every program of the closed list.
    ///
    /// Formulas give the rate of a transfer without end. Where packets are lost by chance, one of a given size meets a
    /// few of them: it is simulated. An interrupt leaves what the formulas say.
    pub(crate) fn all(self, interrupt: Interrupt<'_>) -> Vec<ProgramPrediction> {
        Program::ALL.into_iter().map(|program| self.of(program, interrupt)).collect()
    }

    fn of(self, program: Program, interrupt: Interrupt<'_>) -> ProgramPrediction {
        let connections = program.connections(self.path, self.hosts).max(1);
        let of_tcp = predict(self.path, self.hosts[0], self.hosts[1], &request(connections));
        let of_tcp = (of_tcp.kernel_model, of_tcp.limit);
        let own = self.above_tcp(program, connections);
        let is_by_chance = self.path.forward.loss.is_some_and(|loss| loss.get() > 0.0);
        let simulated = is_by_chance.then(|| self.simulated(connections, own, interrupt)).flatten();
        let (rate, limit) = simulated.as_ref().map_or_else(
            || [Some(of_tcp), own].into_iter().flatten().min_by_key(|(rate, _)| *rate).unwrap_or(of_tcp),
            |simulated| (simulated.median, simulated.limit),
        );
        let range = simulated.map(|simulated| simulated.range);
        ProgramPrediction { program: program.name().to_owned(), rate, range, limit }
    }

    /// Returns the rate that a program's own window, or its way to fill the send buffer, permits.
    fn above_tcp(self, program: Program, connections: u16) -> Option<(BitRate, Limit)> {
        let application = program.application()?;
        let all = |rate: BitRate| rate.scaled(f64::from(connections));
        let window = application.expected(self.path.rtt(), self.path.forward.rate);
        let buffer = || send_buffer(self.hosts[0], None).scaled(asked_fill().get());
        let asked = application.asks.then(|| window::rate(buffer(), self.path.rtt()));
        let window = window.map(|rate| (all(rate), Limit::ApplicationWindow));
        let asked = asked.map(|rate| (all(rate), Limit::SendBuffer));
        [window, asked].into_iter().flatten().min_by_key(|(rate, _)| *rate)
    }

    /// Simulates transfers of the size over `connections`. A program that is held back above TCP writes at that rate.
    /// `None` if something of the path is not modelled.
    fn simulated(self, connections: u16, own: Option<(BitRate, Limit)>, interrupt: Interrupt<'_>) -> Option<Simulated> {
        let rate = own.map(|(rate, _)| rate.scaled(1.0 / f64::from(connections)));
        let rate = rate.filter(|rate| self.path.forward.rate.is_none_or(|of_link| *rate < of_link));
        let request = Request { rate, ..self.until_moved(connections) };
        let plan = Plan::new(self.path.clone(), self.hosts.map(Clone::clone), request, 1);
        let jobs = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mut all = Vec::new();
        let plans = [NamedPlan { name: None, plan }];
        simulate_each(&plans, SIMULATED, jobs, interrupt, &mut |measurement| {
            let rate = self.steady_rate(&measurement);
            all.push((rate, measurement.limit.map_or(Limit::Loss, |verdict| verdict.kind)));
        })
        .ok()?;
        all.sort_by_key(|(rate, _)| *rate);
        let (median, of_transfer) = *all.get(all.len() / 2)?;
        let fills = |(rate, _): &(BitRate, Limit)| median >= rate.scaled(FILLED);
        let limit = own.filter(fills).map_or(of_transfer, |(_, limit)| limit);
        let range = FOUR_FIFTHS.map(|place| all[place].0);
        Some(Simulated { median, range, limit })
    }

    /// Returns a load that lasts until the file has been moved. Programs with several connections give each the next
    /// part of the file when it has moved one, so that all have something to move until the end: that load is one for
    /// a time, for most of which it moves the file.
    fn until_moved(self, connections: u16) -> Request {
        if connections == 1 {
            return Request { bytes: Some(self.size), ..request(1) };
        }
        let without_end = predict(self.path, self.hosts[0], self.hosts[1], &request(connections)).kernel_model;
        let duration = without_end.time_for(self.size).scaled(LONGER) + self.path.rtt() * RAMP_ROUND_TRIPS;
        Request { duration, ..request(connections) }
    }

    /// Returns the rate of the steady part, or the mean, until the size has been moved.
    fn steady_rate(self, measurement: &Measurement) -> BitRate {
        let samples = &measurement.sender().samples;
        let moved = Progress::of(samples, Span::MAX).reached(self.size).unwrap_or(Span::MAX);
        let part: Vec<Sample> = samples.iter().filter(|sample| sample.at <= moved).cloned().collect();
        let steady = steady(&part, Some(self.path.rtt()), moved);
        steady.map_or(measurement.summary.rate, |steady| steady.rate)
    }
}

/// The outcome of simulated transfers.
struct Simulated {
    median: BitRate,
    range: [BitRate; 2],
    limit: Limit,
}

fn request(connections: u16) -> Request {
    Request { writer: Writer::Blocking, streams: connections, ..Request::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_scenario::Scenario;
    use std::sync::atomic::AtomicBool;

    fn path(rtt: &str, of_path: &str) -> Path {
        let text = format!("name = 'x'\ntitle = 'x'\n[path]\nrtt = '{rtt}'\n{of_path}\n[[step]]\nname = 'a'\n");
        Scenario::parse("x.toml", &text).unwrap().path
    }

    fn predicted(program: Program, path: &Path) -> ProgramPrediction {
        let host = HostSettings::of_linux_6_18();
        let size = ByteCount::new(100_000_000);
        Predicted { path, hosts: [&host, &host], size }.of(program, Interrupt(&AtomicBool::new(false)))
    }

    fn of(program: Program, rtt: &str) -> (f64, Limit) {
        let prediction = predicted(program, &path(rtt, "rate = '1Gbit/s'\nmtu = 9000"));
        assert_eq!(prediction.range, None, "nothing falls to chance");
        (prediction.rate.as_mbps().round(), prediction.limit)
    }

    #[test]
    fn a_window_above_tcp_is_the_limit_only_where_it_is_the_smaller() {
        // 161 Mbit/s were measured over 98 ms.
        assert_eq!(of(Program::Scp, "98ms"), (166.0, Limit::ApplicationWindow));
        assert_ne!(of(Program::Scp, "2ms").1, Limit::ApplicationWindow);
    }

    #[test]
    fn a_program_that_asks_before_it_writes_fills_the_send_buffer_less() {
        // 216 Mbit/s of the daemon and 244 of curl were measured.
        assert_eq!(of(Program::RsyncDaemon, "98ms"), (225.0, Limit::SendBuffer));
        let (curl, limit) = of(Program::Curl, "98ms");
        assert!(curl > 240.0 && limit == Limit::SendBuffer, "{curl}");
    }

    #[test]
    fn connections_side_by_side_carry_more() {
        assert!(of(Program::Aria2, "98ms").0 > 900.0);
        assert!(of(Program::Copy, "98ms").0 > 900.0);
    }

    #[test]
    fn a_transfer_that_meets_few_losses_is_not_predicted_as_one_without_end() {
        let path = path("40ms", "rate = '500Mbit/s'\nloss = '0.005%'");
        let without_end = {
            let host = HostSettings::of_linux_6_18();
            predict(&path, &host, &host, &request(1)).kernel_model
        };
        let curl = predicted(Program::Curl, &path);
        let [low, high] = curl.range.expect("losses fall to chance");
        assert!(low <= curl.rate && curl.rate <= high && low < high, "{curl:?}");
        assert!(curl.rate > without_end.scaled(1.2), "{curl:?}, without end {without_end}");
        assert_eq!(curl.limit, Limit::Loss);
    }

    #[test]
    fn a_window_that_losses_do_not_bind_is_the_limit_over_a_lossy_path_too() {
        let path = path("200ms", "rate = '1Gbit/s'\nloss = '0.001%'");
        let scp = predicted(Program::Scp, &path);
        assert_eq!(scp.limit, Limit::ApplicationWindow, "{scp:?}");
        assert!(scp.rate < predicted(Program::Curl, &path).rate, "{scp:?}");
    }
}
