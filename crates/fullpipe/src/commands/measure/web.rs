//! Speed tests over the web: a download, and then an upload.

use fullpipe_probe::{measure_ndt7, measure_responsiveness};

use super::{MeasureArguments, finish_measurement, interval_printer, judge_measurement};
use crate::commands::every::run_repeatedly;
use crate::commands::load::WebTest;
use crate::commands::prelude::*;

/// Says which address and which flag belong together.
pub(super) const RPM_AND_HTTPS: &str =
    "responsiveness is measured with --rpm at the URL of a server: https://HOST --rpm";

/// Measures the download and, unless the user wants that alone, the upload, once or again and
/// again.
///
/// # Errors
/// Fails if the server cannot be reached or refuses, or if the protocol has no such test.
pub(super) fn measure_both_ways(
    arguments: &MeasureArguments,
    server: &(Destination, WebTest),
    request: &Request,
    interrupts: &InterruptFlags,
    terminal: &Terminal,
) -> Result {
    if arguments.rpm != matches!(server.1, WebTest::Responsiveness(_)) {
        return Err(usage_failure(RPM_AND_HTTPS));
    }
    let is_more_than_a_test = arguments.ramp.is_some()
        || arguments.route
        || arguments.live.is_wanted()
        || arguments.capture.is_wanted()
        || arguments.until_sure.bound(request)?.is_some();
    if is_more_than_a_test {
        return Err(usage_failure(
            "with speed tests over the web there is neither --ramp, --route, --until-sure, --capture nor --live",
        ));
    }
    let flag = &interrupts.flag;
    let measure = || measure_once(arguments, server, request, flag, terminal);
    match arguments.every {
        None => measure(),
        Some(every) => {
            arguments.archive.require_archive()?;
            run_repeatedly(every, flag, terminal, &measure)
        }
    }
}

fn measure_once(
    arguments: &MeasureArguments,
    server: &(Destination, WebTest),
    request: &Request,
    flag: &AtomicBool,
    terminal: &Terminal,
) -> Result {
    if request.direction == Direction::Both {
        return Err(usage_failure(
            "a speed test over the web measures one direction after the other; leave out --bidir",
        ));
    }
    let download = Request {
        direction: Direction::Download,
        ..request.clone()
    };
    let download = measure_one_way(arguments, server, &download, flag, terminal)?;
    let is_upload_wanted = request.direction == Direction::Upload
        && !download.interrupted
        && download.broken_off.is_none();
    let upload = is_upload_wanted
        .then(|| measure_one_way(arguments, server, request, flag, terminal))
        .transpose()?;
    finish_measurement(download, upload, arguments, terminal)
}

fn measure_one_way(
    arguments: &MeasureArguments,
    (destination, test): &(Destination, WebTest),
    request: &Request,
    flag: &AtomicBool,
    terminal: &Terminal,
) -> Result<Measurement> {
    let progress = &mut interval_printer(request, arguments.every.is_none(), terminal);
    let measured = match test {
        WebTest::Responsiveness(path) => {
            measure_responsiveness(destination, path, request, flag, progress)
        }
        ndt7 => {
            let is_encrypted = *ndt7 == WebTest::Ndt7;
            measure_ndt7(destination, is_encrypted, request, flag, progress)
        }
    };
    Ok(judge_measurement(measured?, arguments.bandwidth))
}
