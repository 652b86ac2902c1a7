use fullpipe_record::{ProgramWindow, Request, Writer};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Samples that are usually kept of a transfer, about 16 MB.
const MAX_SAMPLES: usize = 20_000;

/// The options of a transfer.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of iperf3 by itself"
)]
pub(crate) struct TransferPlan {
    /// Bytes of one write or read; of a datagram's payload with UDP, where less than 16 are taken
    /// for that many.
    pub block: ByteCount,
    /// Bytes after which the senders of this end stop by themselves, all streams together.
    /// Datagrams are not cut: the last may exceed it.
    pub budget: Option<ByteCount>,
    /// Set if TCP senders complete the block that reaches the budget, as iperf3 does. Its receivers
    /// since 3.16 count whole blocks only, and would wait for the rest of the last. Bytes from a
    /// file are never exceeded.
    pub whole_blocks: bool,
    /// Rate at which each sender offers data, by its own clock; as fast as it can if not set, or
    /// zero.
    pub rate: Option<BitRate>,
    /// Writes in a row when `rate` permits one; one if not set.
    pub burst: Option<u16>,
    /// True if a sender of datagrams that is behind `rate` sends all that is due at once.
    pub catches_up_at_once: bool,
    /// Window of the programs' own protocol in each stream of TCP.
    pub app_window: Option<ProgramWindow>,
    /// Time from an answer until the sending program goes on, with an `app_window`.
    pub pause: Span,
    /// Rate at which each receiver of TCP reads; at once if not set, or zero.
    pub read_rate: Option<BitRate>,
    /// The method by which a TCP sender fills its socket.
    pub writer: Writer,
    /// True if a TCP sender's socket may hold little that is unsent until the other end has
    /// acknowledged much, and a buffer for a file is small: a server's, whose clients may read
    /// nothing.
    pub bounds_unsent: bool,
    /// True if a TCP sender hands the kernel pages of a file.
    pub sendfile: bool,
    /// True if a TCP sender hands the kernel the pages that data lies in.
    pub zero_copy: bool,
    /// True if a TCP receiver discards in the kernel what arrives, if it does not store it.
    pub discard: bool,
    /// True if UDP hands the kernel many datagrams as one message, and takes many.
    pub offload: bool,
    /// True if the user is informed where that is not possible.
    pub notes_lack_of_offload: bool,
    /// True if datagrams are numbered in 64 bits rather than 32.
    pub wide_counters: bool,
    /// Processor that the data threads run on; the kernel's choice if not set.
    pub processor: Option<u16>,
    /// Round-trip time of the idle path, if known: a TCP sender retries at least every 64th part of
    /// it.
    pub base_rtt: Option<Span>,
    /// Samples that are kept, of all streams together: when there are more, every second snapshot
    /// goes and snapshots come half as often.
    pub samples: usize,
}

impl TransferPlan {
    /// Returns the plan for what `request` asks of the streams of one end. Its block must not be
    /// zero.
    pub(crate) fn from_request(request: &Request, base_rtt: Option<Span>) -> Self {
        let stated = request.stated_load();
        Self {
            block: request.block,
            // What is sent in the omitted time does not count.
            budget: request.bytes.filter(|_| request.omit == Span::ZERO),
            whole_blocks: true,
            rate: request.rate,
            burst: request.burst,
            catches_up_at_once: request.catches_up_at_once,
            app_window: stated.app_window,
            pause: stated.pause.unwrap_or_default(),
            read_rate: stated.read_rate,
            writer: request.writer,
            bounds_unsent: false,
            sendfile: request.sendfile,
            zero_copy: request.zero_copy,
            // Only a receiver that must copy looks at the data.
            discard: !request.rx_copy,
            offload: !request.no_gso,
            notes_lack_of_offload: request.offload,
            wide_counters: request.wide_counters,
            processor: request.processor,
            base_rtt,
            samples: MAX_SAMPLES,
        }
    }
}
