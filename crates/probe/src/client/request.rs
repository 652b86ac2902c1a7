//! The load of a test as it is carried out, with every default filled in.

use std::path::Path;

use fullpipe_model::framing;
use fullpipe_model::kernel::request_for_window;
use fullpipe_record::{Buffer, HostSettings, IpVersion, Request, Transport};
use fullpipe_units::{ByteCount, Span};

use crate::engine::{FileStorage, open_file};
use crate::error::ProbeError;

/// MTU that is assumed when a window is turned into a buffer before there is a connection.
const COMMON_MTU: ByteCount = ByteCount::new(1500);

/// Payload bytes of a datagram if the path MTU is not known (iperf3's `DEFAULT_UDP_BLKSIZE`).
const COMMON_DATAGRAM: ByteCount = ByteCount::new(1460);

/// Bytes of one write without a rate: the most that iperf3 servers accept.
const MAX_BLOCK: ByteCount = ByteCount::from_mib(1);

/// Minimum bytes of one write at a rate.
const MIN_BLOCK: ByteCount = ByteCount::from_kib(1);

/// Time for which one write at a rate lasts.
const BURST: Span = Span::from_millis(1);

/// Payload bytes of the largest datagram over IPv4.
const MAX_DATAGRAM: ByteCount = ByteCount::new(65_507);

/// Opens the file that is sent or written to. If it is sent, its length sets the bytes of the test.
pub(super) fn open_storage(
    request: &mut Request,
    path: Option<&Path>,
) -> Result<Option<FileStorage>, ProbeError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let (storage, length) =
        open_file(path, request.direction).map_err(|cause| ProbeError::File {
            path: path.to_owned(),
            cause,
        })?;
    request.bytes = length.or(request.bytes);
    Ok(Some(storage))
}

/// Replaces a window by the buffer request that yields it. The receiver may have another kernel
/// than this host, so the window that was really used is in the samples.
pub(super) fn fill_buffer(request: &mut Request, settings: &HostSettings) {
    if let Buffer::Window(window) = request.buffer {
        let mss =
            framing::segment_payload(COMMON_MTU, IpVersion::V4, settings.timestamps, request.mss);
        request.buffer = Buffer::Request(request_for_window(settings, window, mss));
    }
}

/// Fills in the length of a block if none was asked for: over TCP a long one without a rate, and a
/// short one at a rate, sent without delay, as otherwise it would wait for the acknowledgement of
/// the one before; over UDP the payload of a packet of the path, from the segment size of the
/// control connection, as iperf3 does.
pub(super) fn fill_block(request: &mut Request, mss: Option<ByteCount>) {
    if request.block > ByteCount::ZERO {
        return;
    }
    request.block = match (request.transport, request.rate) {
        (Transport::Tcp, None) => request.bytes.map_or(MAX_BLOCK, even_block),
        (Transport::Tcp, Some(rate)) => {
            request.no_delay = true;
            rate.bytes_in(BURST).clamp(MIN_BLOCK, MAX_BLOCK)
        }
        (Transport::Udp, _) => mss.map_or(COMMON_DATAGRAM, |mss| mss.min(MAX_DATAGRAM)),
    };
}

/// Returns the length of a block with which whole blocks exceed `bytes` by less than a byte each.
fn even_block(bytes: ByteCount) -> ByteCount {
    let blocks = bytes.get().div_ceil(MAX_BLOCK.get()).max(1);
    ByteCount::new(bytes.get().div_ceil(blocks).max(1))
}
