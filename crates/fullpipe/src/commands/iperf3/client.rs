//! `iperf3 -c`.

use std::io::{self, ErrorKind};

use fullpipe_iperf::{SessionStep, TestError};
use fullpipe_probe::{ProbeError, TestEvent, watch_transfer};
use fullpipe_record::ConnectedTest;
use fullpipe_report::iperf3::{TestRole, greeting_lines};

use super::arguments::{ClientPlan, ProgramFormat};
use super::output::ResultWriter;
use super::process;
use super::renderer::{TestFailure, TestRenderer, test_header};
use super::sentences::{CLIENT_TERMINATED, error_sentence};
use crate::commands::interrupt_flag;
use crate::commands::measure::displacing_udp;
use crate::commands::prelude::*;

pub(super) fn run(plan: &ClientPlan, output: &mut ResultWriter) -> Result {
    let flag = interrupt_flag()?;
    let header = test_header(&plan.destination.host, plan.destination.port);
    if let Some(warning) = udp_warning(&plan.request) {
        ResultWriter::print_warning(&format!("iperf3: warning: {warning}\n"));
    }
    if plan.shape.verbose && plan.shape.form == ProgramFormat::Text {
        output.write_text(&greeting_lines(&header, plan.request.title.as_deref()));
    }
    let mut renderer =
        TestRenderer::new(TestRole::Client, &plan.shape, plan.request.clone(), header);
    let failure = match run_test(plan, &flag, &mut renderer, output) {
        Ok(seen) => {
            renderer.report_results(&seen, output);
            let interrupted = TestFailure::Interrupted(CLIENT_TERMINATED);
            let broken_off = seen.broken_off.map(TestFailure::Error);
            seen.interrupted.then_some(interrupted).or(broken_off)
        }
        Err(failure) => Some(failure),
    };
    match &failure {
        Some(failure) => renderer.report_failure(failure, output),
        None => renderer.print_done_line(output),
    }
    renderer.finish_report(output);
    failure.map_or(Ok(()), |_| Err(Failure::already_printed(FAILED)))
}

fn run_test(
    plan: &ClientPlan,
    flag: &AtomicBool,
    renderer: &mut TestRenderer,
    output: &mut ResultWriter,
) -> Result<Measurement, TestFailure> {
    let _pidfile = process::prepare_process(&plan.shape).map_err(TestFailure::Error)?;
    let measured = watch_transfer(
        &plan.destination,
        &plan.request,
        flag,
        &mut |event| match event {
            TestEvent::Connected(connected) => {
                if let Some(warning) = fragmentation_warning(connected) {
                    ResultWriter::print_warning(&format!("warning: {warning}\n"));
                }
                renderer.report_connected(connected, output);
            }
            TestEvent::Interval(interval) => renderer.report_interval(interval, output),
            TestEvent::Snapshot(_) | TestEvent::SoFar(_) => {}
        },
    );
    measured.map_err(|error| {
        if has_agreed(&error) {
            renderer.report_peer(output);
        }
        match error {
            ProbeError::Interrupted => TestFailure::Interrupted(CLIENT_TERMINATED),
            other => TestFailure::Error(in_iperf3s_words(&other)),
        }
    })
}

/// Returns true if the server had asked for the parameters before the test failed.
fn has_agreed(error: &ProbeError) -> bool {
    let (ProbeError::Protocol { cause, .. } | ProbeError::Unauthorized { cause, .. }) = error
    else {
        return false;
    };
    !matches!(
        cause,
        TestError::Busy
            | TestError::NotIperf3 { .. }
            | TestError::Timeout {
                step: SessionStep::Greeting,
                ..
            }
            | TestError::Closed {
                step: SessionStep::Greeting
            }
    )
}

/// Returns a warning before much UDP is sent. iperf3 sends it without consent, so we do not ask for
/// it.
fn udp_warning(request: &Request) -> Option<String> {
    let what = displacing_udp(request)?;
    Some(format!(
        "{what} takes no notice of congestion: on a path that others use it displaces their traffic"
    ))
}

/// Returns iperf3's warning about datagrams that are larger than a packet.
fn fragmentation_warning(connected: &ConnectedTest) -> Option<String> {
    let (block, mss) = (connected.request.block, connected.mss?);
    let is_too_large = connected.request.transport == Transport::Udp && block > mss;
    let (block, mss) = (block.get(), mss.get());
    is_too_large.then(|| {
        format!("UDP block size {block} exceeds TCP MSS {mss}, may result in fragmentation / drops")
    })
}

/// Returns iperf3's message for an error, or our own if it has none.
fn in_iperf3s_words(error: &ProbeError) -> String {
    const UNREACHABLE: &str = "unable to connect to server";
    match error {
        ProbeError::UnknownHost { .. } => format!("{UNREACHABLE}: Name or service not known"),
        ProbeError::Connect { cause, .. } => format!("{UNREACHABLE}: {}", system_message(cause)),
        ProbeError::Silent { .. } => format!("{UNREACHABLE}: Connection timed out"),
        ProbeError::Protocol { cause, .. } | ProbeError::Unauthorized { cause, .. } => {
            error_sentence(cause).map_or_else(|| error.to_string(), str::to_owned)
        }
        ProbeError::Prepare(refused) if refused.kind() == ErrorKind::NotFound => {
            "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns the system's message for an error, without its number.
pub(super) fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_much_udp_is_worth_a_warning() {
        let udp = |rate, streams| Request {
            transport: Transport::Udp,
            rate,
            streams,
            ..Request::default()
        };
        assert_eq!(udp_warning(&udp(Some(BitRate::from_mbps(10)), 1)), None);
        assert!(
            udp_warning(&udp(Some(BitRate::from_mbps(10)), 2))
                .unwrap()
                .contains("20 Mbit/s of UDP")
        );
        assert!(
            udp_warning(&udp(None, 1))
                .unwrap()
                .contains("as fast as it goes")
        );
        assert_eq!(udp_warning(&Request::default()), None);
    }
}
