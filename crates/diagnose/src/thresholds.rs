//! Every threshold of the judgement, in one place, with where it comes from.

use fullpipe_units::{ByteCount, Span};

// Single samples.

/// A train of segments as the kernel builds it (GSO, 64 KiB): a window may appear unused, or data unsent, by so much.
pub(crate) const ONE_TRAIN: ByteCount = ByteCount::from_kib(64);
/// A window that limits may appear unused by so many segments, …
pub(crate) const WINDOW_MARGIN_SEGMENTS: u64 = 3;
/// … or by this share of it, …
pub(crate) const WINDOW_MARGIN_SHARE: f64 = 1.0 / 16.0;
/// … but never by more than this share: of a small window a train is the whole.
pub(crate) const WINDOW_MARGIN_AT_MOST: f64 = 1.0 / 4.0;
/// With less unsent than this share of the send buffer, the buffer held back what could have been sent. A buffer that
/// the kernel sizes by the congestion window is 3 to 5 windows large, so that more than half of it is then unsent.
pub(crate) const UNSENT_OF_BUFFER: f64 = 1.0 / 4.0;
/// Less in flight than this share of the smaller window: that window does not limit.
pub(crate) const CLEARLY_BELOW: f64 = 0.9;
/// At least this share of the congestion window in the pipe: it limits.
pub(crate) const FULL_PIPE: f64 = 0.9;
/// Less in the send buffer than this share: the writer is behind.
pub(crate) const BEHIND: f64 = 0.5;

// Losses.

/// So many recoveries of a stream in all are loss that recurs, and not an accident that it grows back from.
pub(crate) const RECURS: u64 = 2;
/// The same where none of them was in the judged part: slow start that overshoots may need a second one, not a third.
pub(crate) const RECURRED: u64 = 3;
/// So many losses of a stream tell whether they come at one window.
pub(crate) const SAME_WINDOW_EPISODES: usize = 8;
/// Windows before loss that deviate by at most this share are one window. Independent losses snapshot so by chance in at
/// most 1.5 % of series of eight (simulated round by round, CUBIC over 100 ms at p of 10⁻³ to 10⁻⁵, 1000 series each);
/// with four losses it would be 17 %, and with a tenth instead of a twentieth 10 %.
pub(crate) const SAME_WINDOW_SPREAD: f64 = 0.05;
/// So many losses are known for one window's by a wider spread: small windows cannot be the same but by whole segments, and
/// packets that crowd fill a short queue a little sooner or later. Series of 20 independent losses are as narrow in at most
/// one percent (simulated likewise, at p of 0.026 to 10⁻⁴)…
pub(crate) const MANY_EPISODES: usize = 20;
pub(crate) const MANY_SPREAD: f64 = 0.145;
/// …and under Reno far more seldom than that at this spread (the hundredth narrowest is 0.245).
pub(crate) const MANY_SPREAD_UNDER_RENO: f64 = 0.2;

/// So many segments lost in a round trip are a burst.
pub(crate) const BURST: u64 = 15;
/// A burst that takes this share of what was sent…
pub(crate) const BURST_TAKES: f64 = 0.1;
/// …while the round-trip time is at most so many times the idle one met no queue: a policer took it…
pub(crate) const NO_QUEUE: f64 = 1.35;
/// …if so many segments…
pub(crate) const SEVERAL: u64 = 3;
/// …were lost in so many round trips, as a policer goes on taking while the sender repairs…
pub(crate) const LOSSY_ROUND_TRIPS: usize = 3;
/// …and the loss that goes on after that is at most this part of it: what is lost at random is lost at one rate.
pub(crate) const GOES_ON: f64 = 0.2;

// Shares of the judged part.

/// A limit that holds for this share of the samples is the limit.
pub(crate) const MAJORITY: f64 = 0.5;
/// The clock for the advertised window must run for this share of the busy time…
pub(crate) const CLOCK: f64 = 0.5;
/// …or for this under BBR (measured: 54 % where it was the only limit).
pub(crate) const CLOCK_UNDER_BBR: f64 = 0.25;
/// Where the clock says window, at least this share of the window must be in use.
pub(crate) const WINDOW_IN_USE: f64 = 0.5;
/// A window whose median is below this share of what it once was has fallen.
pub(crate) const WINDOW_FELL: f64 = 0.75;
/// A window that falls by this share of itself…
pub(crate) const WINDOW_FALLS_BY: f64 = 0.05;
/// …from one snapshot to the next as often as this swings (measured: 29 to 51 % of the snapshots where a fast path meets a slow reader,
/// none where the buffer limits)…
pub(crate) const WINDOW_FALLS: f64 = 0.2;
/// …if its median stays below this share of what it once was, and is not a full one that trains dent.
pub(crate) const WINDOW_SWINGS_BELOW: f64 = 0.9;
/// A buffer or window of at least this share of what the kernel tunes it to is tuned to the end.
pub(crate) const AUTOTUNED_TO_THE_END: f64 = 0.8;
/// A writer that the send buffer stops is known to the kernel as such for at least this share of the busy time (measured:
/// 1.5 % of a small buffer whose writer sleeps, nothing of one that had no more to write).
pub(crate) const BLOCKED: f64 = 0.002;
/// A sleeping writer is woken when a third of the buffer is free (`sk_stream_write_space`), and a little more is by then…
pub(crate) const WOKEN: std::ops::RangeInclusive<f64> = 0.64..=0.8;
/// …which so many snapshots tell.
pub(crate) const SNAPSHOTS_OF_A_SLEEPER: usize = 20;
/// Unread data that fills this share of the receive buffer in the mean waits for a slow reader (measured: at most 3 %
/// where the reader keeps up, 43 % where it does not).
pub(crate) const UNREAD: f64 = 0.25;
/// A full send buffer is this full at times…
pub(crate) const BUFFER_PEAK: f64 = 0.9;
/// …and this full in the mean (measured: 0.70 to 0.87 for a sleeping writer, 0.97 for one that retries).
pub(crate) const BUFFER_MEAN: f64 = 0.6;
/// Idle for this share of the time, a sender is idle; idle for more than any other limit held, that is the limit.
pub(crate) const IDLE: f64 = 0.1;

// The path.

/// This share of the bandwidth that was told, less framing, is all of it.
pub(crate) const FULL: f64 = 0.9;
/// The same where BBR found no more: it gives some of it to its probes.
pub(crate) const FULL_UNDER_BBR: f64 = 0.8;
/// A round-trip time so many times the idle one shows a standing queue.
pub(crate) const INFLATED: f64 = 1.25;
/// From the first third to the last, a window of so many times the size grew.
pub(crate) const GROWS: f64 = 1.1;
/// A rate of at most so many times what it was is flat.
pub(crate) const FLAT: f64 = 1.03;
/// A window that grows back is slow about it near its last peak.
pub(crate) const REGROWS: f64 = 1.05;
/// A rate within this factor of what loss allows is explained by loss.
pub(crate) const WITHIN: f64 = 2.0;

/// Less than this share of the bandwidth that was told, at a full bottleneck: others have the rest.
pub(crate) const SHARED: f64 = 0.75;
/// A tenth of the round trips so many times the least of the idle path…
pub(crate) const WANDERS: f64 = 1.1;
/// …and half of them by so much above it: a queue was there before the load…
pub(crate) const WANDERS_BY: Span = Span::from_millis(2);
/// …if so many echo requests tell it.
pub(crate) const MIN_ECHOES: u64 = 10;
/// Under BBR so much is lost again and again…
///
/// It probes with a quarter more for one round trip in eight: a thirty-third of what it sends.
pub(crate) const LOST_TO_PROBES: f64 = 0.02;
/// …of which nothing waits in a queue, if nine tenths of the round trips are at most so many times the idle one (measured:
/// 1.01 to 1.07 behind a policer, 1.16 and more at a full link): what exceeds a rate is discarded.
pub(crate) const NO_QUEUE_FOR_PROBES: f64 = 1.1;
/// So many times a packet was seen to overtake another…
pub(crate) const MIN_OVERTAKEN: u64 = 3;
/// …and for this share of what was sent again: packets are late, and not lost…
pub(crate) const OVERTAKEN: f64 = 0.1;
/// …or this share of it had arrived already.
pub(crate) const NEEDLESS: f64 = 0.5;

// Remedies.

/// Where the path's bandwidth is not known, a size is raised by so many times.
pub(crate) const NEXT_SIZE: u64 = 4;
/// As many connections as iperf3 allows in one test.
pub(crate) const MAX_STREAMS: u16 = 128;
/// A change that promises less than so many times the present rate is not worth making.
pub(crate) const GAIN: f64 = 1.02;
/// A pace of this share of the rate above which packets are dropped leaves room for its own unevenness (a choice, not measured).
pub(crate) const PACE_BELOW: f64 = 0.95;
/// What passes a device that drops is taken over at least this long, …
pub(crate) const PASSED_OVER: Span = Span::from_secs(1);
/// … and so many round trips: of what was sent in one, it is told in the next.
pub(crate) const PASSED_OVER_ROUND_TRIPS: u64 = 10;
/// Percent of window ÷ round trip at which the kernel paces in slow start (`tcp_pacing_ss_ratio`) by default…
pub(crate) const PACE_OF_SLOW_START: u32 = 200;
/// …and after it (`tcp_pacing_ca_ratio`).
pub(crate) const PACE_AFTER_SLOW_START: u32 = 120;
/// Payload of the segments with which the kernel begins to probe for a size that passes (`tcp_base_mss`, its default).
pub(crate) const PROBING_BEGINS_WITH: ByteCount = ByteCount::new(1024);
/// Packets that may wait for an Ethernet device by default (`txqueuelen`).
pub(crate) const USUAL_QUEUE: u64 = 1000;

// The receiving end alone.

/// So much of its window a round trip must bring for the window to be the limit. A buffer that is tuned offers twice of what a
/// round trip brings, until it cannot grow.
pub(crate) const BROUGHT: f64 = 0.75;
/// A receive buffer that is this full holds what the program has not read.
pub(crate) const NOT_DRAINED: f64 = 0.5;
/// No data for so many round trips: the sender had none to send, or could not.
pub(crate) const SILENCE: f64 = 1.5;
/// The kernel counts that time in ticks, of which so much may be missing.
pub(crate) const TICKS: Span = Span::from_millis(10);

// Devices between the ends.

/// A window of less than this share of the one that was sent has been lowered on its way.
pub(crate) const CLAMPED: f64 = 0.75;
/// Windows up to this never needed a scale, of which 65 535 bytes is the end.
pub(crate) const FAR_BELOW_UNSCALED: ByteCount = ByteCount::from_kib(32);
/// Segments that leave less than this share of the efficiency of full ones are the limit.
pub(crate) const MSS_COSTS: f64 = 0.9;
/// So many timeouts in a row…
pub(crate) const TIMEOUTS: u64 = 2;
/// …and so long without progress: full segments do not arrive.
pub(crate) const SILENT_FOR: Span = Span::from_secs(1);

// The machines.

/// Kept from running for this share of the time by its quota, a program is short of processor time.
pub(crate) const THROTTLED: f64 = 0.2;
/// The same of a processor that the hypervisor took away.
pub(crate) const STOLEN: f64 = 0.25;
/// A processor that is busy for this share of the time has no more to give.
pub(crate) const BUSY_CORE: f64 = 0.9;
/// Reading or writing a file for this share of the time is what a program does.
pub(crate) const FILE_BUSY: f64 = 0.5;
/// This share of a rate that something holds packets to is all of it; headers and waiting take the rest.
pub(crate) const NEAR_A_RATE: f64 = 0.9;
/// So many packets that a host dropped itself matter…
pub(crate) const OWN_DROPS_AT_LEAST: u64 = 10;
/// …if they are this share of what was sent again.
pub(crate) const OWN_DROPS: f64 = 0.5;

// Windows above TCP.

/// Of what the window lets through, a transfer held by it reaches from so much…
///
/// Published: of 171 Mbit/s, scp had 119 on average and rsync over ssh 161.
pub(crate) const HELD_FROM: f64 = 0.65;
/// …to so much: the round-trip time under load varies.
pub(crate) const HELD_TO: f64 = 1.1;

// Shares of the whole transfer.

/// A transfer is looked at second by second…
pub(crate) const SECOND: Span = Span::from_secs(1);
/// …or by so many round trips, where that is longer.
pub(crate) const SECOND_ROUND_TRIPS: u64 = 2;
/// …in at most so many pieces.
pub(crate) const SECONDS_AT_MOST: u64 = 600;
/// Another limit that held for this share of the time is worth telling.
pub(crate) const ALSO: f64 = 0.15;
/// A ceiling that differs from the deciding one by at most this share of it, or a limit that held for as much of the time less
/// this share, is as good as it. A choice, not measured: predictions are held to three percent, and round trips vary by more.
pub(crate) const CLOSE: f64 = 0.1;
