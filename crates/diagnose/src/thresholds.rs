//! Every threshold of the judgement, in one place, with its unit and its source.

use fullpipe_units::{BitRate, ByteCount, Span};

// Single samples.

/// Bytes of a train of segments as the kernel builds it (GSO): a window may appear unused, or data
/// unsent, by this much.
pub(crate) const SEGMENT_TRAIN: ByteCount = ByteCount::from_kib(64);

/// Segments by which a window that limits may appear unused.
pub(crate) const WINDOW_MARGIN_SEGMENTS: u64 = 3;

/// Share of a window that limits by which it may appear unused.
pub(crate) const WINDOW_MARGIN_SHARE: f64 = 1.0 / 16.0;

/// Largest share of a window by which it may appear unused: a train of segments is the whole of a
/// small window.
pub(crate) const MAX_WINDOW_MARGIN_SHARE: f64 = 1.0 / 4.0;

/// Unsent share of the send buffer below which the buffer held back what could have been sent.
///
/// A buffer that the kernel sizes by the congestion window is 3 to 5 windows large, so that more
/// than half of it is unsent.
pub(crate) const MAX_UNSENT_SHARE: f64 = 1.0 / 4.0;

/// Share below which a figure is clearly lower: bytes in flight and the window, a pace and its
/// default.
pub(crate) const CLEARLY_LOWER_SHARE: f64 = 0.9;

/// Share of the congestion window in the pipe from which the congestion window limits.
pub(crate) const FULL_CONGESTION_WINDOW_SHARE: f64 = 0.9;

/// Share of the send buffer below which its writer is behind.
pub(crate) const LOW_BUFFER_SHARE: f64 = 0.5;

// Losses.

/// Segments from which the lost ones are printed as a share.
pub(crate) const MIN_SEGMENTS_OF_SHARE: u64 = 100;

/// Recoveries of a stream that are recurring loss; a window grows back from a single one.
pub(crate) const MIN_RECOVERIES: u64 = 2;

/// Recoveries that are recurring loss where none is in the judged part.
///
/// Slow start that overshoots may need a second recovery, but not a third.
pub(crate) const MIN_RECOVERIES_BEFORE: u64 = 3;

/// Losses of a stream that are enough to see if they come at one window.
pub(crate) const MIN_EPISODES_OF_ONE_WINDOW: usize = 8;

/// Largest deviation ÷ mean of windows before loss that are one window.
///
/// By chance, at most 1.5 % of series of eight independent losses are as narrow (simulated round by
/// round, CUBIC over 100 ms at p of 10⁻³ to 10⁻⁵, 1000 series each). With four losses it would be
/// 17 %, and with a spread of 0.1 it would be 10 %.
pub(crate) const ONE_WINDOW_SPREAD: f64 = 0.05;

/// Losses of a stream that are enough where they come at exactly one window.
pub(crate) const MIN_EPISODES_OF_SAME_WINDOW: usize = 5;

/// Largest deviation ÷ mean of a few windows before loss that are the same but for a segment.
///
/// Windows before independent losses spread by a quarter and more: five of them are as narrow by
/// chance about once in ten thousand times.
pub(crate) const SAME_WINDOW_SPREAD: f64 = 0.025;

/// Share of the losses, at least [`MIN_EPISODES_OF_SAME_WINDOW`], that come at the largest window
/// where a short queue sets it.
pub(crate) const MIN_SHARE_AT_THE_TOP: f64 = 0.6;

/// Median round-trip time before losses ÷ the usual one from which a queue that is too short drops
/// packets (measured: 1.045 to 1.22 in 22 of 25 runs with one; at most 1.02 in 40 of 42 runs with
/// random loss or a policer).
pub(crate) const RTT_BEFORE_SHORT_QUEUE_DROPS: f64 = 1.04;

/// Lower quartile of the round-trip time before losses ÷ the usual one, from which a queue that is
/// too short drops packets (measured: 1.013 and more in 21 of those 22; 0.992 and 1.007 in the two
/// others).
pub(crate) const LOWER_RTT_BEFORE_SHORT_QUEUE_DROPS: f64 = 1.01;

/// Losses of a stream from which one that does not fit is left out.
pub(crate) const MIN_EPISODES_WITH_OUTLIER: usize = 12;

/// Share of a window that is lost at once where a device, and not chance, cuts it (measured: 0.02
/// and more of large windows; several at once by chance are a share of some windows of few
/// segments).
pub(crate) const MANY_LOST_AT_ONCE: f64 = 0.02;

/// Multiple of the idle round-trip time before losses from which a queue, and no policer, discards
/// (measured: 1.065 to 1.18 before a queue of three packets; 1.00 to 1.045 before policers).
pub(crate) const RTT_BEFORE_SHORT_QUEUE: f64 = 1.05;

/// Multiple of the idle round-trip time up to which the burst that ends slow start met no queue
/// (measured: 1.03 to 1.05; 1.3 and more at a full link).
pub(crate) const MAX_RTT_BEFORE_BURST: f64 = 1.1;

/// Largest deviation ÷ mean of the windows before a policer's losses (measured: 0.03; 0.2 behind a
/// queue of three packets that bursts overflow).
pub(crate) const MAX_WINDOW_SPREAD_OF_POLICER: f64 = 0.15;

/// Segments of a window from which a part of it is more than a train (measured: queues of 3 to 9
/// packets drop up to 10 segments of windows of 15, and at most 3 of windows of 20 and more).
pub(crate) const MIN_WINDOW_OF_PARTS: u64 = 20;

/// Segments that are lost at once, and their share of the window, from which a policer takes them
/// (measured of windows of 20 segments and more: at most 3 and 0.1 by chance and before short
/// queues; 5 to 150 and 0.05 to 0.5 of half of all policers).
pub(crate) const MIN_LOST_OF_PART: u64 = 5;

pub(crate) const MIN_PART_OF_WINDOW: f64 = 0.05;

/// The fastest that a stream ever was ÷ its rate before losses, from which what discards packets
/// let bursts pass (measured of windows of 20 segments and more: 1.00 to 1.13 before short queues,
/// up to 2.1 of policers).
pub(crate) const FASTER_BEFORE_LOSSES: f64 = 1.2;

/// Segments that are more than the few which chance takes at once (measured: usually one; 3 to 28
/// of policers).
pub(crate) const MIN_LOST_AT_ONCE: u64 = 3;

/// Variance ÷ mean of the losses between samples from which they come many at once: 1 by chance,
/// and the number of a burst where bursts are rare.
pub(crate) const MIN_DISPERSION_OF_BURSTS: f64 = 2.0;

/// Time after the first loss of a stream in which a policer may still take what its bucket let
/// through (a choice).
pub(crate) const SOON_AFTER_FIRST_LOSS: Span = Span::from_secs(1);

/// Round trips of that time, where they are longer.
pub(crate) const ROUND_TRIPS_AFTER_FIRST_LOSS: u64 = 10;

/// Variance ÷ mean of the losses between samples from which a policer makes them behind a window
/// that is full (simulated under BBR: 130 and more of policers, at most 23 where chance loses up to 8
/// %).
pub(crate) const MIN_DISPERSION_OF_POLICER: f64 = 50.0;

/// Round trips between two samples from which several recoveries look like one.
pub(crate) const MANY_ROUND_TRIPS_BETWEEN_SAMPLES: u64 = 3;

/// Round trips after a loss in which the window has not yet grown to where a queue overflows.
pub(crate) const ROUND_TRIPS_TO_GROW: u64 = 3;

/// Losses of a stream from which a wider spread counts as one window.
///
/// Small windows can only be the same by whole segments, and packets in a burst fill a short queue
/// a little sooner or later.
pub(crate) const MANY_EPISODES: usize = 20;

/// Largest deviation ÷ mean of many windows before loss that are one window.
///
/// At most one percent of series of 20 independent losses are as narrow (simulated round by round,
/// CUBIC over 100 ms at p of 0.026 to 10⁻⁴).
pub(crate) const MANY_EPISODES_SPREAD: f64 = 0.145;

/// Largest deviation ÷ mean of windows before loss that are one window under Reno, which does not
/// dwell below its last peak: a hundredth of the series of eight independent losses is as narrow
/// (simulated round by round at p of 0.03 to 0.001, 1000 series each).
pub(crate) const ONE_WINDOW_SPREAD_UNDER_RENO: f64 = 0.145;

/// Largest deviation ÷ mean of twenty windows before loss that are one window under Reno: a
/// hundredth of the series of independent losses is as narrow.
pub(crate) const MANY_EPISODES_SPREAD_UNDER_RENO: f64 = 0.2;

/// Largest deviation ÷ mean of twenty windows before loss that are one window under Reno, where
/// packets waited before the losses, as they do before few independent ones: a twentieth of the
/// series is as narrow.
pub(crate) const MANY_EPISODES_SPREAD_AFTER_DELAY_UNDER_RENO: f64 = 0.23;

/// Segments lost in one round trip that are a burst.
pub(crate) const MIN_BURST_SEGMENTS: u64 = 15;

/// Multiple of the usual window at which losses came that no queue holds which was too short for
/// that one.
pub(crate) const LARGER_WINDOW_FACTOR: f64 = 1.5;

/// Samples with so much in flight and without a loss, of which a burst has few.
pub(crate) const MIN_CALM_SAMPLES: usize = 8;

/// Share of the segments of a round trip that a policer takes of a burst.
pub(crate) const MIN_BURST_SHARE: f64 = 0.1;

/// Multiple of the idle round-trip time up to which a burst met no queue.
pub(crate) const MAX_RTT_WITHOUT_QUEUE: f64 = 1.35;

/// Segments lost in a round trip that count it as one with losses.
pub(crate) const MIN_LOSSES_OF_ROUND_TRIP: u64 = 3;

/// Round trips with losses that a policer causes: it goes on discarding while the sender repairs.
pub(crate) const MIN_LOSSY_ROUND_TRIPS: usize = 3;

/// Times in a row that a sender takes its window back though no queue stands, from which a policer
/// and not a queue made it do so: one that overflows makes it do so once, or twice where a packet
/// is lost again.
pub(crate) const MIN_CUTS_WITHOUT_QUEUE: usize = 3;

/// Round trips between two such cuts that are in a row: a recovery takes two.
pub(crate) const ROUND_TRIPS_BETWEEN_CUTS: u64 = 4;

/// Largest loss after a policer's burst, as a share of the loss in that burst; independent losses
/// come at one rate.
pub(crate) const MAX_LATER_LOSS_SHARE: f64 = 0.2;

// Shares of the judged part.

/// Share of the samples in which a limit must hold to be the verdict.
pub(crate) const MIN_LIMIT_SHARE: f64 = 0.5;

/// Share of the busy time in which the kernel must count the advertised window as the limit
/// (`rwnd_limited`).
pub(crate) const MIN_WINDOW_CLOCK_SHARE: f64 = 0.5;

/// Share of the busy time in which the kernel must count the advertised window as the limit under
/// BBR (measured: 54 % where it was the only limit).
pub(crate) const MIN_WINDOW_CLOCK_SHARE_UNDER_BBR: f64 = 0.25;

/// Multiple of the idle round-trip time from which a full window of another program's transfer
/// shows that its data is kept waiting (measured: 2.8 for a slow reader).
pub(crate) const KEPT_DATA_RTT_FACTOR: f64 = 1.5;

/// Share of the bandwidth-delay product below which one look shows a pipe that is not full.
pub(crate) const EMPTY_PIPE_SHARE: f64 = 0.5;

/// Share of the samples in which a window that has fallen is full, from which it shows a slow
/// reader.
pub(crate) const MIN_SHARE_OF_FULL_WINDOW: f64 = 0.2;

/// Share of the busy time in which closed windows and late acknowledgements together show a slow
/// reader (measured: 0.20 under BBR, 0.27 of eight connections that one program reads).
pub(crate) const MIN_CLOSED_SHARE: f64 = 0.15;

/// Share of the data that waits between echo and acknowledgement from which unread data explains it
/// (measured: 0.6 to 0.8).
pub(crate) const MIN_UNREAD_SHARE_OF_DELAY: f64 = 0.5;

/// Multiple of the rate of which a window that is always full would carry more, above which it is
/// closed for some of the time (measured: 3.3 of a reader that pauses).
pub(crate) const CLOSED_WINDOW_FACTOR: f64 = 2.0;

/// Share of the advertised window that must be in use where only the kernel's clock shows it as the
/// limit.
pub(crate) const MIN_WINDOW_USE: f64 = 0.5;

/// Multiple of the rate above which the ceiling of a window shows that something else held the
/// transfer (a choice, not measured).
pub(crate) const MAX_CEILING_FACTOR: f64 = 10.0;

/// Share of the rate below which the ceiling of a window shows that it held nothing back:
/// round-trip times vary.
pub(crate) const MIN_CEILING_SHARE: f64 = 0.67;

/// Multiple of the time of a transfer from which the silence after it shows that its program has
/// nothing to send (a choice, not measured).
pub(crate) const MIN_SILENCE_FACTOR: f64 = 20.0;

/// Segments with data from which a transfer shows how fast it could have been; fewer fit into one
/// flight.
pub(crate) const MIN_DATA_SEGMENTS: u64 = 5;

/// Segments with data from which a verdict may be surer than [`MAX_CONFIDENCE_OF_FEW`]: an initial
/// window (RFC 6928).
pub(crate) const MIN_SURE_SEGMENTS: u64 = 10;

/// Largest confidence of a verdict on fewer segments.
pub(crate) const MAX_CONFIDENCE_OF_FEW: f64 = 0.5;

/// Shortest time without an acknowledgement that a retransmission timer ends (RFC 6298; Linux has
/// 200 ms).
pub(crate) const MIN_RETRANSMISSION_TIMEOUT: Span = Span::from_millis(190);

/// Share of its largest size below which the median of a window shows that it has fallen.
pub(crate) const FALLEN_WINDOW_SHARE: f64 = 0.75;

/// Share of itself by which a window falls from one snapshot to the next in a swing.
pub(crate) const WINDOW_FALL_SHARE: f64 = 0.05;

/// Share of the snapshots in which a swinging window falls (measured: 29 to 51 % where a fast path
/// meets a slow reader, none where the buffer limits).
pub(crate) const MIN_WINDOW_FALLS_SHARE: f64 = 0.2;

/// Share of its largest size below which the median of a swinging window stays; a full one that
/// trains dent stays above.
pub(crate) const SWINGING_WINDOW_SHARE: f64 = 0.9;

/// Share of the kernel's largest size from which a buffer or window counts as tuned to the end.
pub(crate) const FULLY_TUNED_SHARE: f64 = 0.8;

/// Share of the busy time in which the kernel must count the send buffer as the limit
/// (`sndbuf_limited`).
///
/// Measured: 1.5 % of a small buffer whose writer sleeps, nothing of a writer that had no more
/// data.
pub(crate) const MIN_BLOCKED_SHARE: f64 = 0.002;

/// Share of the busy time in which the kernel must count the send buffer as the limit where
/// snapshots show data unsent (measured: 0.40 with writes of 64 KiB into 52 KiB under BBR).
pub(crate) const MIN_BUFFER_CLOCK_SHARE: f64 = 0.25;

/// Shares of the send buffer in use when a sleeping writer is woken: a third of it is free
/// (`sk_stream_write_space`).
pub(crate) const WOKEN_BUFFER_SHARES: std::ops::RangeInclusive<f64> = 0.64..=0.8;

/// Share of a send buffer that limits below which a program that asks before it writes (`poll`)
/// never leaves it (measured: 0.62 to 0.72 throughout).
pub(crate) const MIN_BUFFER_OF_ASKING_WRITER: f64 = 0.5;

/// Share of a send buffer that limits above which such a program never fills it, but for its last
/// write.
pub(crate) const MAX_BUFFER_OF_ASKING_WRITER: f64 = 0.85;

/// Snapshots that are enough to see a writer sleep and wake.
pub(crate) const MIN_SNAPSHOTS_OF_SLEEPING_WRITER: usize = 20;

/// Mean share of the receive buffer that unread data fills where the reader is slow (measured: at
/// most 3 % where it keeps up, 43 % where it does not).
pub(crate) const MIN_UNREAD_SHARE: f64 = 0.25;

/// Largest share in use of a send buffer that limits.
pub(crate) const MIN_BUFFER_PEAK: f64 = 0.9;

/// Mean share in use of a send buffer that limits (measured: 0.70 to 0.87 for a sleeping writer,
/// 0.97 for one that retries).
pub(crate) const MIN_BUFFER_MEAN: f64 = 0.6;

/// Share of the snapshots in which a send buffer may be emptier than where its writer is woken
/// (seen: one of 92).
pub(crate) const LATE_WRITER_SHARE: f64 = 0.02;

/// Mean share in use of a send buffer that is more than full at times, from which its writer waits
/// for room though no snapshot shows it at its emptiest (measured: 0.90).
pub(crate) const MIN_MEAN_OF_FULL_BUFFER: f64 = 0.85;

/// Share of the time without data from which a sender counts as idle; it is the verdict where no
/// other limit held for longer.
pub(crate) const MIN_IDLE_SHARE: f64 = 0.1;

/// The same of each quarter of the judged part, where it is the verdict whatever else held.
pub(crate) const MIN_IDLE_SHARE_OF_QUARTER: f64 = 0.05;

// Short transfers.

/// Segments that a sender sends at first (RFC 6928).
pub(crate) const INITIAL_WINDOW: u64 = 10;

/// Round trips by which a transfer may take longer than slow start does for its bytes: one for the
/// request, and one for acknowledgements that are held back.
pub(crate) const SLOW_START_TOLERANCE: f64 = 2.0;

// The path.

/// Share of the stated capacity from which the goodput is a full pipe.
pub(crate) const FULL_PIPE_SHARE: f64 = 0.9;

/// Share of the stated capacity from which the goodput is a full pipe where BBR found no more: its
/// probes take some.
pub(crate) const FULL_PIPE_SHARE_UNDER_BBR: f64 = 0.8;

/// Multiple of the idle round-trip time above which a queue stands on the path.
pub(crate) const INFLATED_RTT_FACTOR: f64 = 1.25;

/// Multiple of its size in the first third from which a window has grown in the last third.
pub(crate) const GROWN_WINDOW_FACTOR: f64 = 1.1;

/// Multiple of the rate in the first third up to which the rate of the last third is flat.
pub(crate) const FLAT_RATE_FACTOR: f64 = 1.03;

/// Distance of the quartiles of the rate ÷ its median up to which data arrives at one rate
/// (measured: 0.01 at a full link, 0.2 and more where loss limits).
pub(crate) const FLAT_RATE_SPREAD: f64 = 0.06;

/// Segments over which a rate is taken to see whether it is flat, so that one more or less does not
/// count.
pub(crate) const FLAT_RATE_SEGMENTS: u64 = 100;

/// Multiple of its size in the first third from which a window has grown enough to see whether the
/// round trips grow with it.
pub(crate) const GROWN_WITH_RTT_FACTOR: f64 = 1.04;

/// Share of the growth of a window by which the round trips grow where all that it adds waits in a
/// queue; the rate gets the rest (measured: 0.9).
pub(crate) const RTT_SHARE_OF_GROWTH: f64 = 0.6;

/// Multiple of its size in the first third from which a window grows back from a loss; near its
/// last peak it grows slowly.
pub(crate) const REGROWN_WINDOW_FACTOR: f64 = 1.05;

/// Multiple of the rate in the first third from which a window that a loss has made smaller grows
/// at all (a choice, not measured).
pub(crate) const REGROWING_WINDOW_FACTOR: f64 = 1.01;

/// Largest factor between the rate that loss allows and the measured one at which the loss explains
/// the rate.
pub(crate) const EXPLAINED_BY_LOSS_FACTOR: f64 = 2.0;

/// Multiple of the round-trip time of echo requests above which acknowledgements come late: the
/// receiving host, and not the path, holds them back.
pub(crate) const LATE_ACK_FACTOR: f64 = 1.15;

/// Multiple of the longest usual round-trip time of the idle path above which the shortest under
/// load show a queue that never empties.
pub(crate) const NEVER_EMPTY_RTT_FACTOR: f64 = 1.05;

/// Share of the stated capacity below which a full bottleneck carries cross traffic too.
pub(crate) const SHARED_PIPE_SHARE: f64 = 0.75;

/// Packets that a queue holds at most which is too short for bursts (a choice: 3 to 9 are planted).
pub(crate) const PACKETS_OF_SHORT_QUEUE: u64 = 12;

/// Share of the idle round-trip time that packets wait at least in a queue that others fill (a
/// choice; measured: 0.3 and 0.8).
pub(crate) const MIN_WAIT_BEHIND_OTHERS: f64 = 0.2;

/// Multiple of the least idle round-trip time that a tenth of them must exceed for a queue before
/// the load.
pub(crate) const WANDERING_RTT_FACTOR: f64 = 1.1;

/// Time above the least idle round-trip time that half of them must exceed for a queue before the
/// load.
pub(crate) const WANDERING_RTT_MEDIAN: Span = Span::from_millis(2);

/// Echo requests that are enough to see a queue before the load.
pub(crate) const MIN_ECHOES: u64 = 10;

/// Share of the segments that a policer discards under BBR.
///
/// BBR probes with a quarter more for one round trip in eight, which is a thirty-third of its
/// segments.
pub(crate) const MIN_LOSS_OF_PROBES: f64 = 0.02;

/// Share of the segments from which more is lost under BBR than its probes exceed a rate by.
pub(crate) const MAX_LOSS_OF_PROBES: f64 = 0.05;

/// Multiple of the idle round-trip time that nine tenths of the round trips under BBR must keep to
/// where a policer discards (measured: 1.01 to 1.07 behind a policer, 1.16 and more at a full
/// link).
pub(crate) const MAX_RTT_WITHOUT_QUEUE_UNDER_BBR: f64 = 1.1;

/// Largest of BBR's paces ÷ the least where it keeps to the rate of a policer
/// (`bbr_lt_bw_sampling`); elsewhere it changes them by a quarter up and down in eight round trips.
pub(crate) const SAME_PACE_FACTOR: f64 = 1.02;

/// Payload rates that providers grant a connection at most, whatever the machine may send: 5 Gbit/s
/// between EC2 instances, and 10 Gbit/s within a cluster placement group (Amazon EC2 User Guide,
/// "Amazon EC2 instance network bandwidth").
pub(crate) const KNOWN_FLOW_LIMITS: [BitRate; 2] =
    [BitRate::from_mbps(5000), BitRate::from_mbps(10_000)];

/// Goodput ÷ such a rate where a connection has all of it: headers take up to 6 % (seen: 4.97 of 5
/// Gbit/s).
pub(crate) const AT_KNOWN_FLOW_LIMIT: std::ops::RangeInclusive<f64> = 0.92..=1.01;

/// Largest difference between the data of connections, as a share of their median, at which each
/// has a bound of its own.
pub(crate) const SAME_RATE_OF_FLOWS: f64 = 0.05;

/// The same difference where no chance makes them alike (measured of kernels: up to 0.007 of
/// connections with a bound each, 0.022 and more of those that share a queue).
pub(crate) const EQUAL_RATE_OF_FLOWS: f64 = 0.01;

/// Connections that are policed and carry the same, from which each may have a policer of its own.
pub(crate) const MIN_POLICED_FLOWS: usize = 3;

/// Higher ÷ lower rate of a transfer from which an allowance was used up; CUBIC keeps 0.7 of its
/// window after a loss.
pub(crate) const FALLEN_RATE_FACTOR: f64 = 1.5;

/// Shortest time of either rate (a choice: the bucket of a policer lasts for less).
pub(crate) const MIN_PLATEAU_TIME: Span = Span::from_secs(2);

/// Length of the steps over which these rates are taken.
pub(crate) const PLATEAU_STEP: Span = Span::from_millis(250);

/// The most steps of a transfer: one that lasts for days has longer ones, so that a judgement takes a
/// bounded time whatever the evidence says.
pub(crate) const MAX_PLATEAU_STEPS: u64 = 10_000;

/// Round trips of such a step, where that is longer.
pub(crate) const PLATEAU_ROUND_TRIPS: u64 = 2;

/// Share of the steps of the higher rate that have it.
pub(crate) const MIN_PLATEAU_SHARE: f64 = 0.9;

/// Upper ÷ lower quartile of the steps of the higher rate at most.
pub(crate) const MAX_SPREAD_OF_PLATEAU: f64 = 1.25;

/// Largest rate at the end of the lower one ÷ the rate at its begin; a window that recovers grows.
pub(crate) const MAX_GROWTH_OF_FALLEN_RATE: f64 = 1.15;

/// Packets seen to overtake others from which reordering counts.
pub(crate) const MIN_REORDERED: u64 = 3;

/// Reordered packets ÷ retransmissions from which packets are late, and not lost (seen: 0.15 on a
/// lossy path that also swapped a few packets).
pub(crate) const MIN_REORDERED_SHARE: f64 = 0.3;

/// Share of the retransmissions that had arrived already from which packets are late, and not lost
/// (RFC 2883).
pub(crate) const MIN_NEEDLESS_SHARE: f64 = 0.5;

/// Retransmissions of which some would have arrived already if packets were late, and not lost.
pub(crate) const MANY_RETRANSMISSIONS: u64 = 20;

/// Share of them that would (measured: 0.95 of a path that reorders; at most 0.003 of kernels that
/// counted packets as overtaken while a policer or chance took others).
pub(crate) const MIN_NEEDLESS_OF_REORDERED: f64 = 0.05;

// Remedies.

/// Multiple by which a size is raised where the path's bandwidth is not known.
pub(crate) const NEXT_SIZE_FACTOR: u64 = 4;

/// Multiple of the present rate up to which a change may be promised to bring a path whose
/// bandwidth is not known: as much as buffers and connections are then raised by.
pub(crate) const MAX_GAIN_OF_UNKNOWN_PATH: f64 = NEXT_SIZE_FACTOR as f64;

/// Multiple of the present rate that a change may be promised to bring if it lifts a limit that the
/// path has no part in, such as 64 KiB in flight (measured: 1.0 to 11.7 times as much, over paths
/// that were drawn at random).
pub(crate) const MAX_GAIN_BEHIND_A_FIXED_LIMIT: f64 = 16.0;

/// Share of the rate of one measurement that the next one over the same path reaches at least (a
/// choice; seen: 0.997 and 0.98 where nothing had changed).
pub(crate) const USUAL_VARIATION: f64 = 0.95;

/// Largest number of connections in one test, as in iperf3.
pub(crate) const MAX_STREAMS: u16 = 128;

/// Multiple of the present rate that a change must promise to be worth making.
pub(crate) const MIN_GAIN: f64 = 1.02;

/// Share of the rate above which packets are dropped that a pace keeps to; the rest is room for
/// uneven pacing (a choice, not measured).
pub(crate) const PACE_SHARE: f64 = 0.95;

/// Shortest time over which the rate of a device that drops is taken.
pub(crate) const MIN_POLICED_TIME: Span = Span::from_secs(1);

/// Round trips over which the rate of a device that drops is taken: the losses of one show in the
/// next.
pub(crate) const MIN_POLICED_ROUND_TRIPS: u64 = 10;

/// Percent of window ÷ round trip at which the kernel paces in slow start by default
/// (`tcp_pacing_ss_ratio`).
pub(crate) const SLOW_START_PACE_PERCENT: u32 = 200;

/// Percent of window ÷ round trip at which the kernel paces after slow start by default
/// (`tcp_pacing_ca_ratio`).
pub(crate) const PACE_PERCENT: u32 = 120;

/// Payload of the segments with which the kernel begins to probe for the path MTU (`tcp_base_mss`,
/// its default).
pub(crate) const PROBING_MSS: ByteCount = ByteCount::new(1024);

/// Packets that may wait for an Ethernet device by default (`txqueuelen`).
pub(crate) const DEFAULT_QUEUE_PACKETS: u64 = 1000;

// The receiving end alone.

/// Share of the advertised window that a round trip must bring where the window limits.
///
/// A buffer that the kernel tunes offers twice of what a round trip brings, until it cannot grow.
pub(crate) const MIN_WINDOW_FILL: f64 = 0.65;

/// Multiple of the idle round-trip time above which a queue comes and goes on the path, where the
/// rate is flat as well (measured: 1.08 and more at full links, 1.00 to 1.02 where loss or a window
/// limits).
pub(crate) const SLIGHTLY_INFLATED_RTT_FACTOR: f64 = 1.04;

/// Resolution of the receiver's own estimate of the round-trip time, that of TCP's timestamps.
pub(crate) const CLOCK_TICK: Span = Span::from_millis(1);

/// Share of the segments out of order from which many are lost at once.
pub(crate) const MUCH_OUT_OF_ORDER: f64 = 0.1;

/// Share of a window that arrives out of order below which only the end of a burst was lost
/// (measured: 0.01 to 0.02 behind a full send buffer whose bursts overflow a queue, 1 and more
/// elsewhere).
pub(crate) const TAIL_OF_A_WINDOW: f64 = 0.1;

/// Shortest time over which the arrival of segments is a rate.
pub(crate) const SHORT_RATE_TIME: Span = Span::from_millis(50);

/// Share of its rate that Reno keeps after a loss, from which something else than its window holds
/// it (measured: up to 0.76 where losses limit, 0.82 and more behind a full send buffer).
pub(crate) const KEPT_BY_RENO: f64 = 0.8;

/// Share of its rate that CUBIC keeps after a loss, from which something else than its window holds
/// it (measured: up to 0.88 where losses limit, 0.91 and more elsewhere).
pub(crate) const KEPT_BY_CUBIC: f64 = 0.9;

/// Losses of a connection that are enough to compare the rates before them.
pub(crate) const MIN_EPISODES: usize = 4;

/// Mean distance from the median of those rates, as a share of it, from which chance makes the
/// losses (measured: 0.10 to 0.43 of random loss).
pub(crate) const MIN_SPREAD_OF_CHANCE: f64 = 0.12;

/// Largest such distance of a policer, whose bucket is not always full (measured: 0.04 to 0.10).
pub(crate) const MAX_SPREAD_OF_POLICER: f64 = 0.105;

/// Largest such distance of a queue that is too short (measured: 0.00 to 0.04).
pub(crate) const MAX_SPREAD_OF_QUEUE: f64 = 0.06;

/// Largest deviation ÷ mean of the times between losses that a device makes at one rate; by chance
/// they spread like an exponential distribution, by 1.
pub(crate) const MAX_SPREAD_OF_REGULAR_GAPS: f64 = 0.45;

/// Round trips of a repair without a pause that only a policer causes, who goes on discarding
/// (measured: 10.9 to 20.7; at most 8.4 behind a full link's queue, 7.9 where chance loses packets,
/// 4.4 behind a short queue).
pub(crate) const LONG_REPAIR_ROUND_TRIPS: u64 = 10;

/// Round trips of a repair from which the rate meanwhile can be compared: the first brings what was
/// sent before the sender knew.
pub(crate) const REPAIR_BEHIND_POLICER: f64 = 3.0;

/// Rate before a repair ÷ the highest from which a policer's burst may have ended then.
pub(crate) const MIN_SHARE_BEFORE_POLICER: f64 = 0.8;

/// Largest rate of arrival during and after a repair ÷ the rate before it where a device discards
/// what exceeds its rate (measured: 0.27 to 0.63 during it in 31 of 40 transfers behind a policer;
/// 0.75 and more behind a short queue or where chance loses packets, but for two of 20, whose many
/// losses showed chance).
pub(crate) const MAX_SHARE_BEHIND_POLICER: f64 = 0.65;

/// Highest rate of a transfer ÷ the median rate before its losses, from which a policer let a burst
/// pass (measured: 2.3 to 3.3).
pub(crate) const BURST_BEFORE_POLICER: f64 = 2.0;

/// Largest such ratio of a queue, which passes nothing faster than its link (measured: 1.06 to
/// 1.25).
pub(crate) const NO_BURST_BEFORE_QUEUE: f64 = 1.35;

/// Highest rate ÷ the usual one up to which BBR has all that the path carries (simulated: 1.00 to
/// 1.06 at full links; most policers let a faster burst pass).
pub(crate) const FASTER_FACTOR_AFTER_STARTUP: f64 = 1.07;

/// Round trips in which the start of BBR overflows a queue (simulated: up to 5; 6 and more of
/// policers).
pub(crate) const ROUNDS_OF_STARTUP: u64 = 5;

/// Unevenness of a course × losses ÷ its time, up to which a device takes them that holds a rate
/// (simulated, four losses and more: 0.05 to 0.16 of 32 of 38).
pub(crate) const MAX_DRIFT_OF_DEVICE: f64 = 0.165;

/// Such a figure of a device that holds a rate whatever the number of losses (simulated: 0.02 to
/// 0.04 of 11 policers, 0.058 and more of chance).
pub(crate) const DRIFT_OF_STEADY_DEVICE: f64 = 0.045;

/// Such a figure from which chance takes them (0.24 and more of 39 of 40).
pub(crate) const MIN_DRIFT_OF_CHANCE: f64 = 0.23;

/// Share of the stated bandwidth that data reaches for a round trip where no others use the link
/// (measured: 0.97 and more; 0.64 to 0.89 next to others).
pub(crate) const WHOLE_LINK_SHARE: f64 = 0.92;

/// Highest rate over a round trip ÷ the usual one of data that comes evenly, from which a program
/// caught up with its rate (simulated: at most 1.03 of paces; 1.2 and more of programs over 10 ms
/// and more).
pub(crate) const FASTER_THAN_A_PACE: f64 = 1.2;

/// Shares of the data of such a program that came a tenth faster than its rate (simulated: 0.02 to
/// 0.09; none behind a full link, whoever else uses it).
pub(crate) const CAUGHT_UP_SHARES: std::ops::RangeInclusive<f64> = 0.01..=0.15;

/// The same, up to which a pace held the data back from the first segment on (simulated: at most
/// 1.012 of paces over round trips of 40 segments and more, from 1.02 of buffers under BBR).
pub(crate) const FASTER_BY_CHANCE: f64 = 1.015;

/// Shortest round trip over which snapshots show that a program caught up.
pub(crate) const SHORTEST_TO_CATCH_UP: Span = Span::from_millis(10);

/// The same, from which no send buffer lets it through: a writer that sleeps until a third is free
/// keeps 0.64 of it full (simulated: at most 1.55 of buffers).
pub(crate) const FASTER_THAN_A_BUFFER: f64 = 1.6;

/// Highest rate before a loss ÷ the rate now, from which the loss has made the congestion window
/// small (CUBIC keeps 0.7).
pub(crate) const LOWERED_BY_LOSS_FACTOR: f64 = 1.2;

/// Share of all data from which what came later is next to nothing: probes, and segments of a few
/// bytes.
pub(crate) const STOPPED_SHARE: f64 = 0.9;

/// Samples of a connection that are enough to see the course of its arrivals.
pub(crate) const MIN_COURSE_SAMPLES: usize = 20;

/// Parts of a round trip in which arrivals are compared with those of others.
pub(crate) const PHASES_OF_ROUND_TRIP: usize = 8;

/// Time by which an even rate is ahead or behind at most, beside trains of a few segments
/// (simulated: at most 1.9 ms of paces and of programs that write every 2 ms).
pub(crate) const EVEN_TIME: Span = Span::from_millis(2);

/// Share of a round trip by which an even rate is ahead or behind at most (simulated: 0.16 and less
/// over 3 ms; 0.18 and more of send buffers where the time is as short).
pub(crate) const EVEN_SHARE: f64 = 0.17;

/// Multiple of the idle round-trip time up to which that of a full send buffer is, beside segments
/// on the line and the clock.
pub(crate) const LONGER_ROUND_TRIP: f64 = 1.03;

/// Share of the variance of the arrivals that is left within the phases of a round trip, up to which
/// they repeat with it (simulated: at most 0.36 of 45 of 50 full send buffers, 0.30 and more of 42
/// of 50 programs that pause).
pub(crate) const REPEATED_COURSE: f64 = 0.4;

/// The same where the arrivals repeat with another time, too, as with parts of a round trip:
/// clearly with the round trip, and perhaps with both (simulated: at most 0.16 of 54 full send
/// buffers with such times; 0.18 and more of 38 of 49 programs that pause, 0.1 and more of 41).
pub(crate) const CLEARLY_REPEATED_COURSE: f64 = 0.1;

pub(crate) const OWN_COURSE: f64 = 0.2;

/// Share that is left within the phases of another time, up to which they repeat with that: many
/// such times are tried (simulated: 0.27 and more of send buffers that do not repeat with the round
/// trip; measured: 0.6 and more).
pub(crate) const REPEATED_TIMES: f64 = 0.12;

/// Times that are tried: programs that pause for less come evenly.
pub(crate) const SHORTEST_PERIOD: Span = Span::from_millis(9);

/// The longest of them.
pub(crate) const LONGEST_PERIOD: Span = Span::from_millis(300);

/// Parts of a round trip between which a time is no round trip: up to the first, and from the second
/// to the third, as two round trips are one of a window, too.
pub(crate) const BELOW_ROUND_TRIP: f64 = 0.9;

pub(crate) const ABOVE_ROUND_TRIP: f64 = 1.3;

pub(crate) const BELOW_TWO_ROUND_TRIPS: f64 = 1.8;

/// Round trips without data that no window explains, beside the clock's tick.
pub(crate) const LONG_SILENCE: f64 = 1.2;

/// Share of the snapshots in such silences that shows them.
pub(crate) const MIN_LONG_SILENCES: f64 = 0.05;

/// Segments of the largest train that a pace lets pass at once (`sk_pacing_shift`: those of a
/// millisecond).
pub(crate) const MAX_TRAIN_SEGMENTS: u32 = 9;

/// Share of a train by which the acknowledgements differ from one for each where all trains are the
/// same (simulated: 0.002 of paces).
pub(crate) const SAME_TRAINS: f64 = 0.0025;

/// The same where few trains differ, as a program's may be.
pub(crate) const NEARLY_SAME_TRAINS: f64 = 0.004;

/// Share of the variance that round trips leave from which what comes has nothing to do with them
/// (simulated: 0.9 and more of paces and of programs with a rate, one of 112 send buffers).
pub(crate) const NO_ROUND_TRIPS: f64 = 0.85;

/// Silence ÷ round trip that nineteen of twenty samples keep to, from which a send buffer and a
/// program look alike (simulated: at most 0.78 of buffers that hold a quarter of the pipe).
pub(crate) const SILENT_ROUND_TRIP: f64 = 0.92;

/// Acknowledgements for each segment from which not all segments come in pairs or trains (RFC 1122,
/// 4.2.3.2: one for every second segment; measured of paces: 0.50 but for one in ten).
pub(crate) const ACKNOWLEDGED_PAIRS: f64 = 0.5;

/// Time for which data of a stream waits at most in the queues of its own host: a millisecond at
/// its pace, which is up to twice its rate (`tcp_small_queue_check`, `sk_pacing_shift`).
pub(crate) const SMALL_QUEUE_TIME: Span = Span::from_millis(3);

/// Segments of a stream that may wait there in any case: two packets of two segments, by the memory
/// that they take.
pub(crate) const SMALL_QUEUE_SEGMENTS: u64 = 8;

/// Share of a round trip without data that is a pause between bursts.
pub(crate) const BURST_PAUSE: f64 = 0.15;

/// Share of the snapshots in such a pause from which data comes in bursts.
pub(crate) const MIN_BURST_PAUSES_SHARE: f64 = 0.1;

/// Largest frame of a device that takes time for it; a larger segment is of a virtual one.
pub(crate) const MAX_FRAME: ByteCount = ByteCount::new(9000);

/// Times that a window closes from which its program reads slowly, as far as the samples show it.
pub(crate) const MIN_TIMES_CLOSED: usize = 3;

/// Share of the receive buffer in use from which its program reads too slowly.
pub(crate) const UNREAD_BUFFER_SHARE: f64 = 0.5;

/// Round trips without data from which the sender had none to send, or could not.
pub(crate) const SILENCE_ROUND_TRIPS: f64 = 1.5;

/// Time by which the kernel's count of the time since the last data may be off: it counts in ticks.
pub(crate) const TICK_TOLERANCE: Span = Span::from_millis(10);

// Devices between the ends.

/// Share of the advertised window below which the window that arrives was lowered between the ends.
pub(crate) const CLAMPED_WINDOW_SHARE: f64 = 0.75;

/// Largest window that never needed a scale; 65 535 bytes are the most without one.
pub(crate) const MAX_NEVER_SCALED_WINDOW: ByteCount = ByteCount::from_kib(32);

/// Share of the handshake's window below which all later ones are scaled, as the sender does not
/// know: Linux shifts by 3 or more from a `tcp_rmem` of 512 KiB on.
pub(crate) const MAX_SHRUNK_SHARE: f64 = 1.0 / 8.0;

/// Most that a sender may send before anything is acknowledged: the window of a handshake has no
/// scale (RFC 7323, 2.2).
pub(crate) const MAX_FIRST_WINDOW: ByteCount = ByteCount::new(65_535);

/// Share of the efficiency of full segments below which small segments are the limit.
pub(crate) const MSS_EFFICIENCY_SHARE: f64 = 0.9;

/// Timeouts in a row that a black hole causes.
pub(crate) const MIN_TIMEOUTS: u64 = 2;

/// Shortest time without progress that a black hole causes.
pub(crate) const MIN_TIME_WITHOUT_PROGRESS: Span = Span::from_secs(1);

// The machines.

/// Share of the time that a quota withholds from which a program lacks processor time.
pub(crate) const MIN_THROTTLED_SHARE: f64 = 0.2;

/// Share of a processor that the hypervisor takes from which a program lacks processor time.
pub(crate) const MIN_STOLEN_SHARE: f64 = 0.25;

/// Share of the time from which a busy processor has no more to give.
pub(crate) const FULL_CORE_SHARE: f64 = 0.9;

/// Share of the time spent on reading or writing a file from which the file is the limit.
pub(crate) const MIN_FILE_SHARE: f64 = 0.5;

/// Share of a rate that was asked for, or of the stated capacity, from which nothing else holds the
/// transfer.
pub(crate) const WHOLE_RATE_SHARE: f64 = 0.98;

/// Multiple of the rate of a queueing discipline up to which it held a transfer: its bucket lets
/// more pass at first, and one that was removed early held nothing. A choice.
pub(crate) const MAX_RATE_OF_DISCIPLINE: f64 = 1.5;

/// Share of the congestion window in use below which the host's own queue holds a stream that has
/// data to send: a train that waits to be larger leaves at most a third unused
/// (`tcp_tso_should_defer`; measured: 0.55).
pub(crate) const MAX_USE_BEHIND_OWN_QUEUE: f64 = 2.0 / 3.0;

/// Share of a maximum rate from which it is reached; headers and waiting take the rest.
pub(crate) const REACHED_RATE_SHARE: f64 = 0.9;

/// Packets that a host drops itself from which they count.
pub(crate) const MIN_OWN_DROPS: u64 = 10;

/// Packets that a host drops itself ÷ retransmissions from which its own queue is the limit.
///
/// A train of segments that is dropped as one counts as one.
pub(crate) const MIN_OWN_DROPS_SHARE: f64 = 0.2;

/// Packets that a host drops itself from which they count where they are about all that was lost,
/// and the share of it that is.
pub(crate) const MIN_MATCHING_DROPS: u64 = 5;

pub(crate) const MATCHING_DROPS_SHARE: f64 = 0.8;

/// Collisions of a half-duplex device ÷ packets that it sent from which they take time: data and
/// acknowledgements meet all the time there (our choice).
pub(crate) const MIN_COLLISION_SHARE: f64 = 0.01;

/// Segments that a host allows while it saves TCP memory (`tcp_adjust_rcv_ssthresh`).
pub(crate) const SEGMENTS_UNDER_PRESSURE: u64 = 4;

/// Multiple of a window below which no buffer is that is far above it: a buffer of small packets
/// gives an eighth and more of it to the window (our choice).
pub(crate) const FAR_BELOW_BUFFER: u64 = 8;

// Remedies.

/// Largest difference between two predicted rates, as a share, at which their round trips decide
/// which remedy is better.
pub(crate) const SAME_RATE: f64 = 0.05;

/// Multiple of the idle round-trip time up to which BBR's is: its window is twice what it takes the
/// path to carry (`bbr_cwnd_gain`), and behind a token bucket, whose bursts raise its estimate, it
/// has all of that in flight (measured: 1.0 to 2.0).
pub(crate) const RTT_FACTOR_OF_BBR: f64 = 2.0;

/// Multiple of the idle round-trip time up to which that of one BBR stream is without a token
/// bucket: BBR probes with a quarter more than the path carries.
pub(crate) const USUAL_RTT_FACTOR_OF_BBR: f64 = 1.25;

/// Multiple of the idle round-trip time up to which that of several BBR streams is: each may have
/// twice its share in flight, and takes the most that it ever got for its share (measured: 2.7).
pub(crate) const RTT_FACTOR_OF_BBR_STREAMS: f64 = 3.0;

/// Time for which BBR has more in flight where acknowledgements come in bursts
/// (`bbr_ack_aggregation_cwnd`, at most 100 ms; measured on busy hosts: 4 to 10 ms).
pub(crate) const ACK_AGGREGATION_OF_BBR: Span = Span::from_millis(8);

// Windows above TCP.

/// Smallest share of the rate which the window of a program allows that a transfer held by it
/// reaches.
///
/// Published: of 171 Mbit/s, scp had 119 on average and rsync over ssh 161.
pub(crate) const MIN_CHANNEL_FILL: f64 = 0.65;

/// Largest share of the rate which the window of a program allows that a transfer held by it
/// reaches: the round-trip time under load varies.
pub(crate) const MAX_CHANNEL_FILL: f64 = 1.1;

/// Messages of the receiving program by round trips, at least, where it grants credit: one that
/// waits for the whole of it sends one in each, and the last byte comes later than the first
/// (measured: 0.67 where a pace spreads it).
pub(crate) const MIN_CREDIT_MESSAGES: f64 = 0.6;

/// Share of the most that a stream ever had on the way from which all its credit is used: frames
/// and records make it differ a little (measured with HTTP/2: 65 535 to 65 949 bytes).
pub(crate) const FULL_CREDIT_SHARE: f64 = 0.97;

/// The same of a window whose size is known: the frames of HTTP/2 and the records of TLS add less
/// than 3 % to 16 KiB.
pub(crate) const MAX_FRAMED_WINDOW: f64 = 1.03;

/// Share of the snapshots in which all credit is used, at least. A program that keeps to a rate has
/// as much on the way as ever in 1 to 5 % of them (measured).
pub(crate) const MIN_FULL_CREDIT_TIME: f64 = 0.4;

/// Least number of snapshots of silence that show what it waits for.
pub(crate) const MIN_CREDIT_VOTES: u32 = 8;

/// Least number of those where all credit is used nearly always, so that there is little silence.
pub(crate) const FEW_CREDIT_VOTES: u32 = 3;

/// Share of those in which the last data left when the last message had come (measured: 0.96 and
/// more with credit; 0 to 0.7 of a program that keeps to a rate, whose peer sends messages too).
pub(crate) const MIN_FOLLOWING_SHARE: f64 = 0.8;

/// The same below which data leaves at times of its own.
pub(crate) const MIN_UNREFUTED_SHARE: f64 = 0.25;

// Shares of the whole transfer.

/// Length of the parts in which a transfer is judged one after the other.
pub(crate) const PART_TIME: Span = Span::from_secs(1);

/// Round trips of such a part, where that is longer.
pub(crate) const PART_ROUND_TRIPS: u64 = 2;

/// Largest number of such parts.
pub(crate) const MAX_PARTS: u64 = 600;

/// Share of the time from which another limit is worth reporting.
pub(crate) const MIN_OTHER_SHARE: f64 = 0.15;

/// Largest difference from the deciding limit, as a share of it, at which another limit is as good
/// as it.
///
/// The share applies to ceilings and to the times in which limits held. A choice, not measured:
/// predictions are held to three percent, and round trips vary by more.
pub(crate) const CLOSE_LIMIT_SHARE: f64 = 0.1;

// Captures.

/// Share of the data that follows acknowledgements at once, below which a program sends at its own
/// times (measured: 0 to 0.02 of a program, 0.19 and more of windows and buffers).
pub(crate) const CLOCKED_SHARE: f64 = 0.1;

/// Share of the time with little in flight, though nothing held it back, from which the sending
/// program is the limit.
pub(crate) const IDLE_CAPTURE_SHARE: f64 = 0.35;

/// Share of the time with little in flight, though nothing held it back, from which a program waits
/// nearly all the time, and what it sends meanwhile cannot show how it would grow (measured: 0.93
/// of one short of processor time; up to 0.5 of short transfers).
pub(crate) const IDLE_OF_WAITING_PROGRAM: f64 = 0.75;

/// Share of the time in which a pace spaces the data of a sender that has one (measured: 0.32 and
/// more).
pub(crate) const MIN_PACED_SHARE: f64 = 0.3;

/// Multiple of the transfer's rate up to which a frequent rate is that of a pace, and not of bursts
/// with pauses.
pub(crate) const MAX_PACE_FACTOR: f64 = 1.1;

/// Share of the data at one rate where that is below the transfer's: faster trains must be few.
pub(crate) const MIN_SHARE_BELOW_PACE: f64 = 0.4;

/// Share of the data in small trains at one rate from which the kernel paces (measured: 0.65 and
/// 0.77).
pub(crate) const PACED_BURSTS_SHARE: f64 = 0.5;

/// Round trips with several losses that a policer causes before its rate is learnt (measured: 11 to
/// 15; at most 4 of a slow start that overshoots).
pub(crate) const MANY_LOSSY_ROUND_TRIPS: usize = 8;

/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send (measured: 0.09 to 0.98 of programs with a rate, at most 0.03 elsewhere).
pub(crate) const MIN_PARTIAL_SHARE: f64 = 0.06;

/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send, in a capture at the sender. Packets are trains there, of which few end with a write
/// unless the program had no more (measured: 0.022 and more of most programs, at most 0.015 of
/// buffers and paces).
pub(crate) const MIN_PARTIAL_AT_SENDER: f64 = 0.02;

/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send, in a capture elsewhere, and at the sender where packets hold one segment each: only the
/// last one of a write is not full (measured: 0.005 and more of most programs, at most 0.002 of
/// buffers and paces).
pub(crate) const MIN_PARTIAL_OF_PROGRAM: f64 = 0.004;

/// Ends of writes that show where data always waits at the sender: the first one, which begins a
/// test, and the last.
pub(crate) const FEW_ENDS_OF_WRITES: f64 = 3.0;

/// Mean data of a packet ÷ a window, from which each packet fills it.
pub(crate) const FULL_PACKETS_SHARE: f64 = 0.95;

/// Share of the lost segments from which a queue that overflowed took them.
pub(crate) const LOST_IN_QUEUE_SHARE: f64 = 0.9;

/// Packets in a round trip that are cut short, from which they may end a window: one does
/// (measured: 0.9 to 1.3 of most windows, at most 0.6 of buffers).
pub(crate) const MIN_CUT_PACKETS: f64 = 0.8;

/// Share of what is usually in flight at most, which a full send buffer has in flight for nine
/// tenths of the time (measured: 0.85 and more, where a third may be free when its writer is woken;
/// 0.5 of a program that pauses).
pub(crate) const MIN_PLATEAU: f64 = 0.6;

/// Share of what is usually in flight at most, which a full send buffer that never wavers has in
/// flight for nine tenths of the time: losses and queues make a sender's window swing (measured: at
/// most 0.78).
pub(crate) const FLAT_PLATEAU: f64 = 0.85;

/// Share of the rate at which bursts come that a transfer must have where the path is full.
pub(crate) const MIN_USE_OF_FULL_PATH: f64 = 0.8;

/// Share of the data that must come at one rate to know that of the path.
pub(crate) const MIN_SHARE_OF_BURSTS: f64 = 0.2;

/// Multiple of the window that CUBIC has under so much loss, from which a sender does not slow down
/// for it.
pub(crate) const IGNORES_LOSS_FACTOR: f64 = 3.0;

/// Full segments of a transfer that is too short to show anything.
pub(crate) const FEW_SEGMENTS: u64 = 3;

/// Largest window of a receiver ÷ its first one up to which its kernel never tuned it.
pub(crate) const MIN_TUNED_GROWTH: f64 = 1.5;

/// Share of the time with little in flight from which the sending program is the limit, where
/// bursts are faster than the transfer and the path would be full (measured: 0.21 and more of
/// senders short of processor time, at most 0.2 of full links).
pub(crate) const IDLE_SHARE_OF_PATH: f64 = 0.2;

/// Share of the data that follows acknowledgements at once where a buffer sends in bursts.
pub(crate) const CLOCKED_BURSTS: f64 = 0.8;

/// Share of the data that follows acknowledgements at once where a window sends, behind a
/// bottleneck or BBR's pace (measured: 0.49 and more; 0.18 of a pace).
pub(crate) const CLOCKED_BY_WINDOW: f64 = 0.3;

/// Share of the round trips since the last loss from which they show what limits.
pub(crate) const MIN_QUIET_SHARE: f64 = 0.35;

/// Share of the round trips since the last loss from which a congestion window would have grown
/// again (measured: 0.9 of a pace; 0.36 of BBR that keeps to a policer's rate).
pub(crate) const LONG_QUIET_SHARE: f64 = 0.7;

/// Share of the round trips since the last loss, most in flight of those with little by that of
/// those with much, and share of them without a queue, from which a sender has settled: a congestion
/// window would have grown, or filled a queue (simulated: 119 programs and 35 policers, and none of
/// 850 transfers with other limits).
pub(crate) const LONG_SETTLED_SHARE: f64 = 0.6;

pub(crate) const MIN_LEVEL_OF_SETTLED: f64 = 0.98;

pub(crate) const MIN_FREE_OF_SETTLED: f64 = 0.95;

/// Difference between the share of segments that follow another at once and that of the trains of a
/// pace (simulated: none of 240 buffers and windows, and 56 of 56 paces that a link spreads).
pub(crate) const SAME_SHARE_OF_TRAINS: f64 = 0.02;

/// Most in flight of the round trips with little, by that of those with much, where a buffer or a
/// pace holds as much in flight (measured: 0.91 and more, at most 0.86 of links with a queue that
/// empties).
pub(crate) const MIN_LEVEL: f64 = 0.88;

/// Share of the round trips in which a packet met no queue, from which the path is not full
/// (measured: 0.76 and more of buffers and paces).
pub(crate) const MIN_FREE_SHARE: f64 = 0.75;

/// Share of the round trips in which a packet met no queue, below which the queue of the path is no
/// short one (measured: at most 0.35 of full links, 0.71 and more of short queues).
pub(crate) const MAX_FREE_SHARE: f64 = 0.5;

/// Round-trip time by the idle one, from which packets wait on the path.
pub(crate) const MIN_WAIT: f64 = 1.1;

/// Share of the data at one rate to know that of the path where a buffer is refilled in bursts.
pub(crate) const MIN_SHARE_OF_REFILLS: f64 = 0.1;

/// Share of the rate of bursts from which a transfer has the whole path.
pub(crate) const FULL_USE_OF_PATH: f64 = 0.9;

/// Share of the round trips in which more was in flight than ever before, from which a transfer
/// ended while it sped up.
pub(crate) const GROWING_SHARE: f64 = 0.45;

/// Most in flight of late, by the most ever, from which a send buffer may hold as much: it never
/// shrinks, but data that is written in other portions takes more of its memory (measured: 0.81 and
/// more of buffers, 0.28 to 0.34 of programs that caught up with their rate).
pub(crate) const MIN_SHARE_OF_FULL_BUFFER: f64 = 0.75;

/// Most in flight of late, by the most ever, from which it is the same (simulated: 0.95 and more of
/// paces).
pub(crate) const SAME_IN_FLIGHT: f64 = 0.93;

/// Most in flight of late, by the most ever, from which a send buffer may hold as much after a
/// loss: a congestion window keeps 0.7 (CUBIC) or half (Reno), and grows back slowly.
pub(crate) const MIN_SHARE_BEFORE_LOSS: f64 = 0.9;

/// Most in flight of the round trips with little, by that of those with much, where a buffer swings
/// by the third that is free when its writer is woken.
pub(crate) const MIN_LEVEL_OF_SLEEPING_WRITER: f64 = 2.0 / 3.0;

/// Share of the data that leaves clearly faster than at the most frequent rate: BBR's probes do, in
/// one round trip of eight, and a maximum pace never does (measured: 0).
pub(crate) const MIN_FASTER_THAN_PACE: f64 = 0.04;

/// Packets of a sender that asks for a window again and again.
pub(crate) const MIN_PROBES: u64 = 2;

/// Times that a window falls to half of its largest size, from which its reader makes it swing.
pub(crate) const MIN_WINDOW_SWINGS: usize = 3;

/// Share of the samples with such a window (measured: 0.1 and more of slow readers, 0.02 of a small
/// buffer that is read at once).
pub(crate) const MIN_SHARE_OF_LOW_WINDOW: f64 = 0.1;

/// Share of a window that has fallen which is usually in flight at most where its reader is slow.
pub(crate) const MIN_USE_OF_FALLEN_WINDOW: f64 = 0.75;

/// Share of the largest window that is usually in flight at most where a reader makes it swing
/// (measured: 0.44 and more).
pub(crate) const MIN_USE_OF_SWINGING_WINDOW: f64 = 0.4;

/// Multiple of the idle round-trip time above which data waits on the path, and not for a shaper of
/// the sending host.
pub(crate) const MAX_WAIT_FOR_SHAPER: f64 = 1.5;

/// Time for which a pace sends at once (`tcp_tso_autosize`, with `sk_pacing_shift` 10).
pub(crate) const TIME_OF_PACED_TRAIN: Span = Span::from_nanos(1_000_000_000 / 1024);

/// Segments by which what is in flight differs where it is the same: trains end in between.
pub(crate) const SAME_SEGMENTS: f64 = 1.5;

/// Share of the usual data between two samples below which BBR looks at the round trip of the idle
/// path (`BBR_PROBE_RTT`: four segments in flight).
pub(crate) const SHARE_WHILE_PROBING: f64 = 0.25;

/// Times for which a full segment is on the line, up to which it waits behind no other (simulated:
/// 1.0 of policers).
pub(crate) const ALONE_ON_THE_LINE: f64 = 1.25;
