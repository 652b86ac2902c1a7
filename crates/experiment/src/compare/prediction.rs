//! The steady rate of a program: of its TCP connections, and of what it keeps above TCP.

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_model::kernel::{asked_rate, send_buffer};
use fullpipe_model::predict;
use fullpipe_record::{ProgramPrediction, Writer};

use super::program::TransferProgram;
use super::simulation::SimulatedProgram;
use super::transfer::{Limited, NEAR, PredictedTransfer, blocking_request};

/// The predicted rate of a transfer without end.
struct RateWithoutEnd {
    rate: BitRate,
    limit: Limit,
    /// Other limits that allow hardly more.
    near_limits: Vec<Limit>,
}

impl PredictedTransfer<'_> {
    /// Returns the prediction of every program of the closed list.
    ///
    /// Formulas give the rate of a transfer without end over one connection. A transfer of a given
    /// size is simulated where packets are lost by chance, since it meets a few of them, and where
    /// several connections divide the file, since they speed up at different times and end at
    /// different times. An interrupt leaves what the formulas say.
    pub(crate) fn predict_all(self, interrupt: Interrupt<'_>) -> Vec<ProgramPrediction> {
        TransferProgram::ALL
            .into_iter()
            .map(|program| self.predict_program(program, interrupt))
            .collect()
    }

    /// Returns the prediction of one program.
    pub(crate) fn predict_program(
        self,
        program: TransferProgram,
        interrupt: Interrupt<'_>,
    ) -> ProgramPrediction {
        let connections = program.connection_count(self.path, self.hosts).max(1);
        let above_tcp = self.above_tcp(program, connections);
        let without_end = self.without_end(connections, &above_tcp);
        let is_by_chance = self.path.forward.loss.is_some_and(|loss| loss.get() > 0.0);
        let own = least_rate(&above_tcp);
        let simulated = (is_by_chance || connections > 1)
            .then(|| SimulatedProgram::simulate_program(self, program, connections, own, interrupt))
            .flatten();
        let mut prediction = ProgramPrediction {
            program: program.name().to_owned(),
            rate: without_end.rate,
            range: None,
            limit: without_end.limit,
            near_limits: without_end.near_limits,
        };
        if let Some(simulated) = simulated {
            prediction.rate = simulated.median;
            prediction.range = Some(simulated.range);
            if is_by_chance {
                prediction.limit = simulated.limit;
                prediction.near_limits.clear();
            }
            prediction.near_limits.extend(simulated.limits);
            let told = [prediction.limit, Limit::Unknown];
            prediction.near_limits.retain(|limit| !told.contains(limit));
            prediction.near_limits.sort_unstable();
            prediction.near_limits.dedup();
        }
        prediction
    }

    /// Returns the rate of a transfer without end.
    fn without_end(self, connections: u16, above_tcp: &[Limited]) -> RateWithoutEnd {
        // What a program puts into its buffer that asks before it writes is known: the kernel's
        // rule alone remains.
        let asks = above_tcp
            .iter()
            .any(|(_, limit)| *limit == Limit::SendBuffer);
        let writer = if asks {
            Writer::Retrying
        } else {
            Writer::Blocking
        };
        let of_tcp = predict(
            self.path,
            self.hosts[0],
            self.hosts[1],
            &Request {
                writer,
                ..blocking_request(connections)
            },
        );
        let ceilings = of_tcp.ceilings.iter();
        let ceilings = ceilings.map(|ceiling| (ceiling.kernel_model, ceiling.kind));
        let all: Vec<Limited> = above_tcp.iter().copied().chain(ceilings).collect();
        let least = (of_tcp.kernel_model, of_tcp.limit);
        let (rate, limit) = least_rate(above_tcp)
            .filter(|own| own.0 <= least.0)
            .unwrap_or(least);
        let near = all
            .into_iter()
            .filter(|(other, kind)| *kind != limit && *other <= rate.scale_by(1.0 + NEAR));
        RateWithoutEnd {
            rate,
            limit,
            near_limits: near.map(|(_, kind)| kind).collect(),
        }
    }

    /// Returns the rates that a program's own window, and its way to fill the send buffer, permit.
    fn above_tcp(self, program: TransferProgram, connections: u16) -> Vec<Limited> {
        let Some(application) = program.application(self.iperf3) else {
            return Vec::new();
        };
        let (rtt, link) = (self.path.rtt(), self.path.forward.rate);
        let window = application
            .expected_rate(rtt, link)
            .map(|rate| (rate, Limit::ApplicationWindow));
        let buffer = send_buffer(self.hosts[0], None);
        let asked = application
            .asks_after
            .and_then(|each| asked_rate(buffer, each, rtt, link))
            .map(|rate| (rate, Limit::SendBuffer));
        window
            .into_iter()
            .chain(asked)
            .map(|(rate, limit)| (rate.scale_by(f64::from(connections)), limit))
            .collect()
    }
}

fn least_rate(all: &[Limited]) -> Option<Limited> {
    all.iter().copied().min_by_key(|(rate, _)| *rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{HostSettings, Path};
    use fullpipe_scenario::Scenario;
    use fullpipe_units::ByteCount;
    use std::sync::atomic::AtomicBool;

    fn path(rtt: &str, of_path: &str) -> Path {
        let text = format!(
            "name = 'x'\ntitle = 'x'\n[path]\nrtt = '{rtt}'\n{of_path}\n[[step]]\nname = 'a'\n"
        );
        Scenario::parse("x.toml", &text).unwrap().path
    }

    fn predicted(program: TransferProgram, path: &Path) -> ProgramPrediction {
        let host = HostSettings::of_linux_6_18();
        let size = ByteCount::new(100_000_000);
        let predicted = PredictedTransfer {
            path,
            hosts: [&host, &host],
            size,
            iperf3: Some((3, 12)),
        };
        predicted.predict_program(program, Interrupt(&AtomicBool::new(false)))
    }

    fn of(program: TransferProgram, rtt: &str) -> (f64, Limit) {
        let prediction = predicted(program, &path(rtt, "rate = '1Gbit/s'\nmtu = 9000"));
        assert_eq!(prediction.range, None, "nothing falls to chance");
        (prediction.rate.as_mbps().round(), prediction.limit)
    }

    #[test]
    fn a_window_above_tcp_is_the_limit_only_where_it_is_the_smaller() {
        // 161 Mbit/s were measured over 98 ms.
        assert_eq!(
            of(TransferProgram::Scp, "98ms"),
            (166.0, Limit::ApplicationWindow)
        );
        assert_ne!(of(TransferProgram::Scp, "2ms").1, Limit::ApplicationWindow);
    }

    #[test]
    fn a_program_that_asks_before_it_writes_fills_the_send_buffer_less() {
        // 216 Mbit/s of the daemon and 244 of curl were measured.
        assert_eq!(
            of(TransferProgram::RsyncDaemon, "98ms"),
            (225.0, Limit::SendBuffer)
        );
        let (curl, limit) = of(TransferProgram::Curl, "98ms");
        assert!(curl > 240.0 && limit == Limit::SendBuffer, "{curl}");
    }

    #[test]
    fn iperf3_that_asks_in_time_fills_the_send_buffer_more() {
        // 289 and 291 Mbit/s were measured.
        let (iperf3, limit) = of(TransferProgram::Iperf3, "98ms");
        assert!(
            (285.0..300.0).contains(&iperf3) && limit == Limit::SendBuffer,
            "{iperf3}"
        );
    }

    /// Over 16 ms the channel of SSH permits 969 Mbit/s or so, and the link 990.
    #[test]
    fn limits_that_permit_hardly_more_are_predicted_beside_the_least() {
        let long = path("98ms", "rate = '1Gbit/s'\nmtu = 9000");
        let scp = predicted(TransferProgram::Scp, &long);
        assert_eq!(scp.near_limits, [], "{scp:?}");
        let short = path("16ms", "rate = '1Gbit/s'\nmtu = 9000");
        let scp = predicted(TransferProgram::Scp, &short);
        assert_eq!(
            (scp.limit, &scp.near_limits[..]),
            (Limit::ApplicationWindow, &[Limit::Capacity][..])
        );
    }

    #[test]
    fn connections_side_by_side_carry_more_than_one_and_less_than_the_link() {
        let path = path("98ms", "rate = '1Gbit/s'\nmtu = 9000");
        let curl = predicted(TransferProgram::Curl, &path).rate;
        for program in [TransferProgram::Aria2, TransferProgram::Copy] {
            let several = predicted(program, &path);
            let [low, high] = several.range.expect("they begin at different times");
            assert!(
                low <= several.rate && several.rate <= high && low < high,
                "{several:?}"
            );
            assert!(
                several.rate > curl.scale_by(1.2) && high < BitRate::from_mbps(1000),
                "{several:?}"
            );
        }
    }

    #[test]
    fn copy_changes_to_bbr_where_packets_are_lost_without_a_queue() {
        let path = path("20ms", "rate = '200Mbit/s'\nloss = '0.1%'");
        let (copy, curl) = (
            predicted(TransferProgram::Copy, &path),
            predicted(TransferProgram::Curl, &path),
        );
        assert!(copy.rate > curl.rate.scale_by(4.0), "{copy:?} {curl:?}");
    }

    #[test]
    fn a_transfer_that_meets_few_losses_is_not_predicted_as_one_without_end() {
        let path = path("40ms", "rate = '500Mbit/s'\nloss = '0.005%'");
        let without_end = {
            let host = HostSettings::of_linux_6_18();
            predict(&path, &host, &host, &blocking_request(1)).kernel_model
        };
        let curl = predicted(TransferProgram::Curl, &path);
        let [low, high] = curl.range.expect("losses fall to chance");
        assert!(
            low <= curl.rate && curl.rate <= high && low < high,
            "{curl:?}"
        );
        assert!(
            curl.rate > without_end.scale_by(1.2),
            "{curl:?}, without end {without_end}"
        );
        assert_eq!(curl.limit, Limit::Loss);
    }

    #[test]
    fn a_window_that_losses_do_not_bind_is_the_limit_over_a_lossy_path_too() {
        let path = path("200ms", "rate = '1Gbit/s'\nloss = '0.001%'");
        let scp = predicted(TransferProgram::Scp, &path);
        assert_eq!(scp.limit, Limit::ApplicationWindow, "{scp:?}");
        assert!(
            scp.rate < predicted(TransferProgram::Curl, &path).rate,
            "{scp:?}"
        );
    }
}
