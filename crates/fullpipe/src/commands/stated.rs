//! What can be stated of a load and of its two ends, by the same flags in every command that
//! predicts.

use fullpipe_calc::{InputError, PAUSE_ALONE};
use fullpipe_model::systems::system_settings;
use fullpipe_record::{HostSettings, Quantity, StatedLoad, Writer};

use super::prelude::*;
use crate::values::{QuantityValues, values_parser};

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

    /// Fails if a flag has no effect without another.
    pub(super) fn check_flags(&self) -> Result {
        let requests = self.app_window.is_some() || self.request_size.is_some();
        if self.pause.is_some() && !requests {
            return Err(usage_failure(PAUSE_ALONE));
        }
        Ok(())
    }
}

/// Reads sizes of requests that follow one another.
fn parse_request_sizes(text: &str) -> Result<QuantityValues, InputError> {
    let single: Vec<String> = text.split(',').map(|size| format!("1x{size}")).collect();
    values_parser(Quantity::AppWindow)(&single.join(","))
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
    #[arg(long, hide_short_help = true)]
    quic: bool,
}

impl EndSystems {
    /// Returns the settings of sender and receiver: `usual` where no system is given.
    pub(super) fn host_settings(&self, usual: &HostSettings) -> [HostSettings; 2] {
        let quic = Some("quic").filter(|_| self.quic);
        let quic = quic.and_then(|name| system_settings(name).ok());
        let usual = quic.as_ref().unwrap_or(usual);
        [&self.sender_os, &self.receiver_os]
            .map(|system| system.clone().unwrap_or_else(|| usual.clone()))
    }
}
