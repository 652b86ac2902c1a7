//! The steady rate of a program: of its TCP connections, and of what it keeps above TCP.

use fullpipe_model::application::Application;
use fullpipe_model::kernel::{asked_fill, send_buffer};
use fullpipe_model::{predict, window};
use fullpipe_record::{HostSettings, Limit, Path, ProgramPrediction, Request, Writer};
use fullpipe_units::BitRate;

use crate::program::Program;

/// Returns the predicted steady rate of `connections` of an application, and its limit.
pub(crate) fn predicted(
    application: Option<&Application>,
    connections: u16,
    path: &Path,
    [sender, receiver]: [&HostSettings; 2],
) -> (BitRate, Limit) {
    let request = Request { writer: Writer::Blocking, streams: connections.max(1), ..Request::default() };
    let of_tcp = predict(path, sender, receiver, &request);
    let each = |rate: BitRate| rate.scaled(f64::from(connections.max(1)));
    let window = application.and_then(|application| application.expected(path.rtt(), path.forward.rate));
    let asks = application.is_some_and(|application| application.asks);
    let asked = asks.then(|| window::rate(send_buffer(sender, None).scaled(asked_fill().get()), path.rtt()));
    let all = [
        Some((of_tcp.kernel_model, of_tcp.limit)),
        window.map(|rate| (each(rate), Limit::ApplicationWindow)),
        asked.map(|rate| (each(rate), Limit::SendBuffer)),
    ];
    all.into_iter().flatten().min_by_key(|(rate, _)| *rate).unwrap_or((of_tcp.kernel_model, of_tcp.limit))
}

/// Returns the prediction of every program of the closed list.
pub(crate) fn predictions(path: &Path, hosts: [&HostSettings; 2]) -> Vec<ProgramPrediction> {
    let of = |program: Program| {
        let (rate, limit) = predicted(program.application(), program.connections(path, hosts), path, hosts);
        ProgramPrediction { program: program.name().to_owned(), rate, limit }
    };
    Program::ALL.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_scenario::Scenario;

    fn path(rtt: &str) -> Path {
        let text = format!(
            "name = 'x'\ntitle = 'x'\n[path]\nrate = '1Gbit/s'\nrtt = '{rtt}'\nmtu = 9000\n[[step]]\nname = 'a'\n"
        );
        Scenario::parse("x.toml", &text).unwrap().path
    }

    fn of(program: Program, rtt: &str) -> (f64, Limit) {
        let host = HostSettings::of_linux_6_18();
        let (path, hosts) = (path(rtt), [&host, &host]);
        let (rate, limit) = predicted(program.application(), program.connections(&path, hosts), &path, hosts);
        (rate.as_mbps().round(), limit)
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
}
