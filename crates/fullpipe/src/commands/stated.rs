//! What can be stated of a load and of its two ends, by the same flags in every command that
//! predicts.

use fullpipe_model::calc::{InputError, PAUSE_ALONE};
use fullpipe_model::systems::system_settings;
use fullpipe_record::{Evidence, HostSettings, ProgramWindow, Quantity, StatedLoad, Writer};

use super::offered_rate::OfferedRate;
use super::prelude::*;
use crate::values::{QuantityValues, some_test_time, values_parser};

/// The load, by quantities that may be lists or ranges.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadLists {
    /// Window that the receiver should advertise: 64KiB
    ///
    /// The socket buffers are chosen to yield it.
    #[arg(long, value_name = "BYTES", value_parser = values_parser(Quantity::Window))]
    window: Option<QuantityValues>,
    /// Socket buffers to request at both ends
    ///
    /// The kernel doubles the request, and advertises a share of the receive buffer as window.
    #[arg(long, short = 'w', value_name = "BYTES", value_parser = values_parser(Quantity::Buffer))]
    buffer: Option<QuantityValues>,
    /// Send buffer to request at the sender alone
    #[arg(long, value_name = "BYTES", value_parser = values_parser(Quantity::Sndbuf))]
    sndbuf: Option<QuantityValues>,
    /// Receive buffer to request at the receiver alone
    #[arg(long, value_name = "BYTES", value_parser = values_parser(Quantity::Rcvbuf))]
    rcvbuf: Option<QuantityValues>,
    /// Window of an application: 64KiB, or 64x32KiB of requests
    ///
    /// As the protocols of HTTP/2, QUIC, SSH, SFTP and SMB have it, for each stream.
    #[arg(long, visible_alias = "requests", value_name = "WINDOW", value_parser = values_parser(Quantity::AppWindow))]
    app_window: Option<QuantityValues>,
    /// Size of requests that follow one another
    #[arg(long, value_name = "BYTES", hide_short_help = true, conflicts_with = "app_window", value_parser = parse_request_sizes)]
    request_size: Option<QuantityValues>,
    /// Time between an answer and the next request
    #[arg(long, value_name = "TIME", hide_short_help = true, value_parser = values_parser(Quantity::Pause))]
    pause: Option<QuantityValues>,
    /// Parallel streams [default: 1]
    #[arg(long, short = 'P', visible_alias = "parallel", value_name = "N", value_parser = values_parser(Quantity::Streams))]
    streams: Option<QuantityValues>,
    /// Congestion control [default: the sender's]
    #[arg(long, short = 'C', value_name = "NAME", value_parser = values_parser(Quantity::Congestion))]
    congestion: Option<QuantityValues>,
    /// Rate at which the sender's kernel paces each stream
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    pub(super) fq_rate: Option<BitRate>,
    /// Rate at which the receiving program reads each stream
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    read_rate: Option<BitRate>,
    /// Write as ordinary programs do, and sleep while the send buffer is full
    ///
    /// By default the sender keeps the send buffer full.
    #[arg(long, hide_short_help = true)]
    blocking: bool,
}

/// What only predictions know, so that it is refused in a sentence by other commands.
#[derive(Debug, Args)]
pub(super) struct PredictionFlags {
    #[arg(long, hide = true, value_name = "RATE")]
    flow_cap: Option<BitRate>,
    #[arg(long, hide = true, value_name = "RATE")]
    cpu_rate: Option<BitRate>,
}

impl PredictionFlags {
    /// Fails if one of the flags is given.
    pub(super) fn check_absent(&self) -> Result {
        let message = if self.flow_cap.is_some() {
            "--flow-cap is only predicted (`fullpipe calc`); state here what the device does: a bucket, as \
             --path 'policer=5G 1MB', or a pace, as --fq-rate 5G"
        } else if self.cpu_rate.is_some() {
            "--cpu-rate is only predicted (`fullpipe calc`); the rate of a program that a cipher slows down is --bitrate \
             at the sender or --read-rate at the receiver"
        } else {
            return Ok(());
        };
        Err(usage_failure(message))
    }
}

impl LoadLists {
    /// Returns the quantities that were given.
    pub(super) fn quantity_lists(&self) -> impl Iterator<Item = &QuantityValues> {
        [
            &self.window,
            &self.buffer,
            &self.sndbuf,
            &self.rcvbuf,
            &self.app_window,
            &self.request_size,
            &self.pause,
            &self.streams,
            &self.congestion,
        ]
        .into_iter()
        .flatten()
    }

    /// Returns the way in which the sending program fills its socket.
    pub(super) fn writer(&self) -> Writer {
        if self.blocking {
            Writer::Blocking
        } else {
            Writer::Retrying
        }
    }

    /// Returns what has one value for all combinations.
    pub(super) fn stated_load(&self) -> StatedLoad {
        StatedLoad {
            read_rate: self.read_rate,
            ..StatedLoad::default()
        }
    }
}

/// Reads sizes of requests that follow one another.
fn parse_request_sizes(text: &str) -> Result<QuantityValues, InputError> {
    let single: Vec<String> = text.split(',').map(|size| format!("1x{size}")).collect();
    values_parser(Quantity::AppWindow)(&single.join(","))
}

/// The load, by the letters of `measure`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArguments {
    /// Duration of the transfer
    #[arg(long, short, default_value = "10", value_parser = some_test_time, value_name = "SECONDS")]
    time: Span,
    /// End after this many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", value_parser = some_bytes, conflicts_with = "time")]
    pub(super) bytes: Option<ByteCount>,
    /// Leave the first seconds out of the result
    #[arg(
        long,
        short = 'O',
        default_value = "0",
        value_parser = parse_duration,
        value_name = "SECONDS",
        hide_short_help = true
    )]
    omit: Span,
    /// Rate offered by each stream; 0 is unlimited
    ///
    /// With /N, a stream sends N blocks in a row, then waits.
    #[arg(long, short, value_name = "RATE[/N]")]
    bitrate: Option<OfferedRate>,
}

impl LoadArguments {
    /// Returns the rest of the load.
    pub(super) fn to_request(&self, stated: &LoadLists) -> Request {
        Request {
            direction: Direction::Upload,
            duration: self.time,
            omit: self.omit,
            bytes: self.bytes,
            block: ByteCount::ZERO,
            rate: self
                .bitrate
                .map(|offer| offer.rate)
                .filter(|rate| *rate > BitRate::ZERO),
            burst: self.bitrate.and_then(|offer| offer.burst),
            pacing: stated.fq_rate.filter(|rate| *rate > BitRate::ZERO),
            writer: stated.writer(),
            ..Request::default()
        }
        .with_stated(stated.stated_load())
    }
}

/// The systems of both ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hosts")]
pub(super) struct EndSystems {
    /// System of the sender: linux-5.15, windows-10, …
    ///
    /// Others are macos-14, freebsd-14 and slirp; an unknown name lists all.
    #[arg(long, value_name = "NAME", conflicts_with = "quic", value_parser = system_settings)]
    sender_os: Option<HostSettings>,
    /// System of the receiver
    #[arg(long, value_name = "NAME", conflicts_with = "quic", value_parser = system_settings)]
    receiver_os: Option<HostSettings>,
    /// The transfer is one of QUIC, without buffers of TCP
    #[arg(long, hide_short_help = true, conflicts_with_all = ["window", "buffer", "sndbuf", "rcvbuf"])]
    quic: bool,
}

impl EndSystems {
    /// Returns whether the system of the sender and of the receiver is stated.
    pub(super) fn stated_ends(&self) -> [bool; 2] {
        [&self.sender_os, &self.receiver_os].map(|system| self.quic || system.is_some())
    }

    /// Returns the settings of sender and receiver: `usual` where no system is given.
    pub(super) fn host_settings(&self, usual: &HostSettings) -> [HostSettings; 2] {
        let quic = Some("quic").filter(|_| self.quic);
        let quic = quic.and_then(|name| system_settings(name).ok());
        let usual = quic.as_ref().unwrap_or(usual);
        [&self.sender_os, &self.receiver_os]
            .map(|system| system.clone().unwrap_or_else(|| usual.clone()))
    }
}

const ONLY_OF_FILES: &str = "--sndbuf, --rcvbuf, --app-window, --requests, --request-size, --pause, --sender-os and \
                             --receiver-os state what files do not show: add --from FILE; what is measured or \
                             watched shows it";

/// What is known of the programs and hosts of a transfer that files show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stated of --from")]
pub(super) struct StatedEnds {
    /// Send buffer that the sending program requests
    #[arg(long, value_name = "BYTES", value_parser = some_bytes, hide_short_help = true)]
    sndbuf: Option<ByteCount>,
    /// Receive buffer that the receiving program requests
    #[arg(long, value_name = "BYTES", value_parser = some_bytes, hide_short_help = true)]
    rcvbuf: Option<ByteCount>,
    /// Window of an application: 64KiB, or 64x32KiB of requests
    #[arg(
        long,
        visible_alias = "requests",
        value_name = "WINDOW",
        requires = "from",
        hide_short_help = true
    )]
    app_window: Option<ProgramWindow>,
    /// Size of requests that follow one another
    #[arg(long, value_name = "BYTES", conflicts_with = "app_window", value_parser = some_bytes, hide_short_help = true)]
    request_size: Option<ByteCount>,
    /// Time between an answer and the next request
    #[arg(long, value_name = "TIME", value_parser = parse_duration, hide_short_help = true)]
    pause: Option<Span>,
    /// System of the sender: linux-5.15, windows-10, …
    #[arg(long, value_name = "NAME", value_parser = system_settings, hide_short_help = true)]
    sender_os: Option<HostSettings>,
    /// System of the receiver
    #[arg(long, value_name = "NAME", value_parser = system_settings, hide_short_help = true)]
    receiver_os: Option<HostSettings>,
}

impl StatedEnds {
    /// Fails if a flag has no effect without another, or where no file `is_handed_over`.
    pub(super) fn check_flags(&self, is_handed_over: bool) -> Result {
        let is_stated = self.has_programs() || self.systems() != [None, None];
        if is_stated && !is_handed_over {
            return Err(usage_failure(ONLY_OF_FILES));
        }
        if self.pause.is_some() && self.app_window.or(self.request_window()).is_none() {
            return Err(usage_failure(PAUSE_ALONE));
        }
        Ok(())
    }

    /// Returns the systems of sender and receiver.
    pub(super) fn systems(&self) -> [Option<HostSettings>; 2] {
        [self.sender_os.clone(), self.receiver_os.clone()]
    }

    /// Returns true if something is stated of the programs.
    pub(super) fn has_programs(&self) -> bool {
        self.programs_over(StatedLoad::default()) != StatedLoad::default()
    }

    /// Adds what is stated to `evidence`. Settings that were read from a host are kept.
    pub(super) fn add_to(&self, evidence: &mut Evidence) {
        let request = std::mem::take(&mut evidence.request);
        let stated = self.programs_over(request.stated_load());
        evidence.request = request.with_stated(stated);
        let [sender, receiver] = self.systems();
        evidence.sender = evidence.sender.take().or(sender);
        evidence.receiver = evidence.receiver.take().or(receiver);
    }

    /// Returns the window of one request after another.
    fn request_window(&self) -> Option<ProgramWindow> {
        self.request_size.map(|size| ProgramWindow {
            bytes: size,
            request: size,
        })
    }

    fn programs_over(&self, known: StatedLoad) -> StatedLoad {
        let window = self.app_window.or(self.request_window());
        StatedLoad {
            sndbuf: self.sndbuf.or(known.sndbuf),
            rcvbuf: self.rcvbuf.or(known.rcvbuf),
            app_window: window.or(known.app_window),
            pause: self.pause.or(known.pause),
            ..known
        }
    }
}
