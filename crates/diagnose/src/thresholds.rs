//! The thresholds of several modules, each with its unit and its source. One of a single module
//! stands there.

use crate::prelude::*;

/// Bytes of a train of segments as the kernel builds it (GSO): a window may appear unused, or data
/// unsent, by this much.
pub(crate) const SEGMENT_TRAIN: ByteCount = ByteCount::from_kib(64);
/// Share below which a figure is clearly lower: bytes in flight and the window, a pace and its
/// default.
pub(crate) const CLEARLY_LOWER_SHARE: f64 = 0.9;
/// Recoveries of a stream that are recurring loss; a window grows back from a single one.
pub(crate) const MIN_RECOVERIES: u64 = 2;
/// Time after the first loss of a stream in which a policer may still take what its bucket let
/// through (a choice).
pub(crate) const SOON_AFTER_FIRST_LOSS: Span = Span::from_secs(1);
/// Share of the segments of a round trip that a policer takes of a burst.
pub(crate) const MIN_BURST_SHARE: f64 = 0.1;
/// Share of the samples in which a limit must hold to be the verdict.
pub(crate) const MIN_LIMIT_SHARE: f64 = 0.5;
/// Share of the advertised window that must be in use where only the kernel's clock shows it as the
/// limit.
pub(crate) const MIN_WINDOW_USE: f64 = 0.5;
/// Shortest time without an acknowledgement that a retransmission timer ends (RFC 6298; Linux has
/// 200 ms).
pub(crate) const MIN_RETRANSMISSION_TIMEOUT: Span = Span::from_millis(190);
/// Share of its largest size below which the median of a window shows that it has fallen.
pub(crate) const FALLEN_WINDOW_SHARE: f64 = 0.75;
/// Share of the kernel's largest size from which a buffer or window counts as tuned to the end.
pub(crate) const FULLY_TUNED_SHARE: f64 = 0.8;
/// Share of the time without data from which a sender counts as idle; it is the verdict where no
/// other limit held for longer.
pub(crate) const MIN_IDLE_SHARE: f64 = 0.1;
/// Segments that a sender sends at first (RFC 6928).
pub(crate) const INITIAL_WINDOW: u64 = 10;
/// Share of the stated capacity from which the goodput is a full pipe.
pub(crate) const FULL_PIPE_SHARE: f64 = 0.9;
/// Share of the stated capacity from which the goodput is a full pipe where BBR found no more: its
/// probes take some.
pub(crate) const FULL_PIPE_SHARE_UNDER_BBR: f64 = 0.8;
/// Multiple of the idle round-trip time above which a queue stands on the path.
pub(crate) const INFLATED_RTT_FACTOR: f64 = 1.25;
/// Multiple of its size in the first third from which a window has grown in the last third.
pub(crate) const GROWN_WINDOW_FACTOR: f64 = 1.1;
/// Multiple of its size in the first third from which a window grows back from a loss; near its
/// last peak it grows slowly.
pub(crate) const REGROWN_WINDOW_FACTOR: f64 = 1.05;
/// Multiple of the rate in the first third from which a window that a loss has made smaller grows
/// at all (a choice, not measured).
pub(crate) const REGROWING_WINDOW_FACTOR: f64 = 1.01;
/// Largest factor between the rate that loss allows and the measured one at which the loss explains
/// the rate.
pub(crate) const EXPLAINED_BY_LOSS_FACTOR: f64 = 2.0;
/// Share of the stated capacity below which a full bottleneck carries cross traffic too.
pub(crate) const SHARED_PIPE_SHARE: f64 = 0.75;
/// Echo requests that are enough to see a queue before the load.
pub(crate) const MIN_ECHOES: u64 = 10;
/// Share of the segments that a policer discards under BBR.
///
/// BBR probes with a quarter more for one round trip in eight, which is a thirty-third of its
/// segments.
pub(crate) const MIN_LOSS_OF_PROBES: f64 = 0.02;
/// Share of the retransmissions that had arrived already from which packets are late, and not lost
/// (RFC 2883).
pub(crate) const MIN_NEEDLESS_SHARE: f64 = 0.5;
/// Multiple by which a size is raised where the path's bandwidth is not known.
pub(crate) const NEXT_SIZE_FACTOR: u64 = 4;
/// Largest number of connections in one test, as in iperf3.
pub(crate) const MAX_STREAMS: u16 = 128;
/// Share of the advertised window that a round trip must bring where the window limits.
///
/// A buffer that the kernel tunes offers twice of what a round trip brings, until it cannot grow.
pub(crate) const MIN_WINDOW_FILL: f64 = 0.65;
/// Resolution of the receiver's own estimate of the round-trip time, that of TCP's timestamps.
pub(crate) const CLOCK_TICK: Span = Span::from_millis(1);
/// Losses of a connection that are enough to compare the rates before them.
pub(crate) const MIN_EPISODES: usize = 4;
/// Largest ratio of the highest rate of a transfer to the median rate before its losses of a queue,
/// which passes nothing faster than its link (measured: 1.06 to 1.25).
pub(crate) const NO_BURST_BEFORE_QUEUE: f64 = 1.35;
/// Round trips in which the start of BBR overflows a queue (simulated: up to 5; 6 and more of
/// policers).
pub(crate) const ROUNDS_OF_STARTUP: u64 = 5;
/// Highest rate over a round trip ÷ the usual one of data that comes evenly, from which a program
/// caught up with its rate (simulated: at most 1.03 of paces; 1.2 and more of programs over 10 ms
/// and more).
pub(crate) const FASTER_THAN_A_PACE: f64 = 1.2;
/// Highest rate over a round trip ÷ the usual one from which no send buffer lets the data through:
/// a writer that sleeps until a third is free keeps 0.64 of it full (simulated: at most 1.55 of
/// buffers).
pub(crate) const FASTER_THAN_A_BUFFER: f64 = 1.6;
/// Share of the receive buffer in use from which its program reads too slowly.
pub(crate) const UNREAD_BUFFER_SHARE: f64 = 0.5;
/// Round trips without data from which the sender had none to send, or could not.
pub(crate) const SILENCE_ROUND_TRIPS: f64 = 1.5;
/// Time by which the kernel's count of the time since the last data may be off: it counts in ticks.
pub(crate) const TICK_TOLERANCE: Span = Span::from_millis(10);
/// Most that a sender may send before anything is acknowledged: the window of a handshake has no
/// scale (RFC 7323, 2.2).
pub(crate) const MAX_FIRST_WINDOW: ByteCount = ByteCount::new(65_535);
/// Shortest time without progress that a black hole causes.
pub(crate) const MIN_TIME_WITHOUT_PROGRESS: Span = Span::from_secs(1);
/// Share of a rate that was asked for, or of the stated capacity, from which nothing else holds the
/// transfer.
pub(crate) const WHOLE_RATE_SHARE: f64 = 0.98;
/// Share of a maximum rate from which it is reached; headers and waiting take the rest.
pub(crate) const REACHED_RATE_SHARE: f64 = 0.9;
/// Packets that a host drops itself from which they count.
pub(crate) const MIN_OWN_DROPS: u64 = 10;
/// Packets that a host drops itself ÷ retransmissions from which its own queue is the limit.
///
/// A train of segments that is dropped as one counts as one.
pub(crate) const MIN_OWN_DROPS_SHARE: f64 = 0.2;
/// Smallest share of the rate which the window of a program allows that a transfer held by it
/// reaches.
///
/// Published: of 171 Mbit/s, scp had 119 on average and rsync over ssh 161.
pub(crate) const MIN_CHANNEL_FILL: f64 = 0.65;
/// Share of the data that follows acknowledgements at once, below which a program sends at its own
/// times (measured: 0 to 0.02 of a program, 0.19 and more of windows and buffers).
pub(crate) const CLOCKED_SHARE: f64 = 0.1;
/// Share of the time with little in flight, though nothing held it back, from which the sending
/// program is the limit.
pub(crate) const IDLE_CAPTURE_SHARE: f64 = 0.35;
/// Share of the time in which a pace spaces the data of a sender that has one (measured: 0.32 and
/// more).
pub(crate) const MIN_PACED_SHARE: f64 = 0.3;
/// Multiple of the transfer's rate up to which a frequent rate is that of a pace, and not of bursts
/// with pauses.
pub(crate) const MAX_PACE_FACTOR: f64 = 1.1;
/// Share of the data that must come at one rate to know that of the path.
pub(crate) const MIN_SHARE_OF_BURSTS: f64 = 0.2;
/// Full segments of a transfer that is too short to show anything.
pub(crate) const FEW_SEGMENTS: u64 = 3;
/// Share of the time with little in flight from which the sending program is the limit, where
/// bursts are faster than the transfer and the path would be full (measured: 0.21 and more of
/// senders short of processor time, at most 0.2 of full links).
pub(crate) const IDLE_SHARE_OF_PATH: f64 = 0.2;
/// Most in flight of late, by the most ever, from which a send buffer may hold as much: it never
/// shrinks, but data that is written in other portions takes more of its memory (measured: 0.81 and
/// more of buffers, 0.28 to 0.34 of programs that caught up with their rate).
pub(crate) const MIN_SHARE_OF_FULL_BUFFER: f64 = 0.75;
