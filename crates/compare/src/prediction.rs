//! The steady rate of a program: of its TCP connections, and of what it keeps above TCP.

use fullpipe_experiment::Interrupt;
use fullpipe_model::kernel::{asked_rate, send_buffer};
use fullpipe_model::predict;
use fullpipe_record::{Limit, ProgramPrediction, Request, Writer};

use crate::program::TransferProgram;
use crate::simulation::SimulatedProgram;
use crate::transfer::{Limited, PredictedTransfer, blocking_request};

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
        let own = self.above_tcp(program, connections);
        let without_end = self.without_end(connections, own);
        let is_by_chance = self.path.forward.loss.is_some_and(|loss| loss.get() > 0.0);
        let is_simulated = is_by_chance || connections > 1;
        let simulated = is_simulated
            .then(|| SimulatedProgram::simulate_program(self, program, connections, own, interrupt))
            .flatten();
        let (rate, limit) = match &simulated {
            Some(simulated) if is_by_chance => (simulated.median, simulated.limit),
            Some(simulated) => (simulated.median, without_end.1),
            None => without_end,
        };
        let range = simulated.map(|simulated| simulated.range);
        ProgramPrediction {
            program: program.name().to_owned(),
            rate,
            range,
            limit,
        }
    }

    /// Returns the rate of a transfer without end.
    fn without_end(self, connections: u16, own: Option<Limited>) -> Limited {
        // What a program puts into its buffer that asks before it writes is known: the kernel's
        // rule alone remains.
        let asks = own.is_some_and(|(_, limit)| limit == Limit::SendBuffer);
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
        let of_tcp = (of_tcp.kernel_model, of_tcp.limit);
        own.into_iter()
            .chain([of_tcp])
            .min_by_key(|(rate, _)| *rate)
            .unwrap_or(of_tcp)
    }

    /// Returns the rate that a program's own window, or its way to fill the send buffer, permits.
    fn above_tcp(self, program: TransferProgram, connections: u16) -> Option<Limited> {
        let application = program.application(self.iperf3)?;
        let (rtt, link) = (self.path.rtt(), self.path.forward.rate);
        let connections = f64::from(connections);
        let window = application
            .expected_rate(rtt, link)
            .map(|rate| (rate.scale_by(connections), Limit::ApplicationWindow));
        let buffer = send_buffer(self.hosts[0], None);
        let asked = application
            .asks_after
            .and_then(|each| asked_rate(buffer, each, rtt, link));
        let asked = asked.map(|rate| (rate.scale_by(connections), Limit::SendBuffer));
        [window, asked]
            .into_iter()
            .flatten()
            .min_by_key(|(rate, _)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{HostSettings, Path};
    use fullpipe_scenario::Scenario;
    use fullpipe_units::BitRate;
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
