//! Each ceiling on the rate, by the textbook and by the running kernel.

use std::iter;

use fullpipe_record::TooBig;

use crate::connection::ConnectionTerms;
use crate::loss::{self, CongestionControl, SeenLosses};
use crate::prelude::*;
use crate::{LikelyFactor, queue, window};

/// A ceiling without its words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CeilingFigures {
    pub(crate) kind: Limit,
    pub(crate) textbook: BitRate,
    pub(crate) kernel_model: BitRate,
    pub(crate) low: BitRate,
    pub(crate) high: BitRate,
    /// Of each stream.
    pub(crate) window: Option<ByteCount>,
    /// The rate to which each stream was stated to be held, with its name in a formula.
    pub(crate) stated: Option<(BitRate, &'static str)>,
}

impl CeilingFigures {
    /// A ceiling that a rule gives.
    fn by_rule(kind: Limit, textbook: BitRate, kernel_model: BitRate) -> Self {
        let rule = LikelyFactor::by_rule();
        Self {
            kind,
            textbook,
            kernel_model,
            low: kernel_model.scale_by(rule.low.get()),
            high: kernel_model.scale_by(rule.high.get()),
            window: None,
            stated: None,
        }
    }
}

/// Every ceiling of a connection; `None` where what is known of the path sets none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ConnectionCeilings {
    receive_window: CeilingFigures,
    /// The others that a rule gives.
    others: [Option<CeilingFigures>; 10],
    loss: Option<CeilingFigures>,
}

impl ConnectionCeilings {
    pub(crate) fn from_connection(connection: &ConnectionTerms) -> Self {
        let [offered, pacing, flow_cap, read_rate, cpu_rate] = stated_rates(connection.request);
        Self {
            receive_window: receive_window(connection),
            others: [
                Some(send_buffer(connection)),
                capacity_ceiling(connection),
                offered,
                pacing,
                flow_cap,
                read_rate,
                cpu_rate,
                program_ceiling(connection),
                policer_ceiling(connection),
                black_hole(connection),
            ],
            loss: loss_ceiling(connection),
        }
    }

    pub(crate) fn iter_figures(&self) -> impl Iterator<Item = &CeilingFigures> {
        self.without_chance().chain(&self.loss)
    }

    /// The ceilings that a rule gives.
    fn without_chance(&self) -> impl Iterator<Item = &CeilingFigures> {
        iter::once(&self.receive_window).chain(self.others.iter().flatten())
    }

    /// The one with the lowest `kernel_model` rate.
    pub(crate) fn lowest_figures(&self) -> &CeilingFigures {
        self.iter_figures()
            .min_by_key(|figures| figures.kernel_model)
            .unwrap_or(&self.receive_window)
    }

    /// Returns the least of one of their figures.
    pub(crate) fn least_rate(&self, rate: impl Fn(&CeilingFigures) -> BitRate) -> BitRate {
        self.iter_figures()
            .map(rate)
            .min()
            .unwrap_or(window::UNBOUNDED)
    }

    /// Returns the rate that all of them together leave, by one of their figures: the least, and
    /// less where loss cuts at the same height.
    pub(crate) fn combined_rate(&self, rate: impl Fn(&CeilingFigures) -> BitRate) -> BitRate {
        let by_rule = self
            .without_chance()
            .map(&rate)
            .min()
            .unwrap_or(window::UNBOUNDED);
        match self.loss.as_ref().map(rate) {
            Some(by_chance) => {
                BitRate::from_bps_f64(loss::smooth_min(by_chance.as_f64(), by_rule.as_f64()))
            }
            None => by_rule,
        }
    }
}

fn receive_window(connection: &ConnectionTerms) -> CeilingFigures {
    let buffer = connection.receive;
    let advertised = match connection.request.receive_buffer() {
        Buffer::Window(wanted) => wanted.min(buffer.max_window()),
        Buffer::Automatic | Buffer::Request(_) => buffer.max_window(),
    };
    let windows = StreamWindows {
        textbook: connection.arriving_window(advertised),
        kernel_model: connection.allowed_in_flight(),
    };
    let used = connection.share_of_window_used(windows.kernel_model);
    per_stream(
        connection,
        Limit::ReceiveWindow,
        &windows,
        used,
        LikelyFactor::by_rule(),
    )
}

fn send_buffer(connection: &ConnectionTerms) -> CeilingFigures {
    let windows = StreamWindows {
        textbook: connection.send,
        kernel_model: connection.send,
    };
    per_stream(
        connection,
        Limit::SendBuffer,
        &windows,
        connection.sending_share().get(),
        connection.send_fill(),
    )
}

fn capacity_ceiling(connection: &ConnectionTerms) -> Option<CeilingFigures> {
    let rate = connection.path.forward.rate?;
    let payload = connection.payload_capacity()?;
    let fills = match connection.control {
        CongestionControl::Bbr => connection.sending_share().get() * delivered_share(connection),
        _ => 1.0,
    };
    let rule = LikelyFactor::by_rule();
    Some(CeilingFigures {
        low: payload.scale_by(fills * rule.low.get() * drop_tail_utilisation(connection).get()),
        high: payload.scale_by(rule.high.get()).min(rate),
        ..CeilingFigures::by_rule(Limit::Capacity, rate, payload.scale_by(fills))
    })
}

/// What a policer passes. Its drops keep the congestion window down, and only a deep bucket lets all
/// of its rate be used; what was dropped by then was sent twice.
fn policer_ceiling(connection: &ConnectionTerms) -> Option<CeilingFigures> {
    let policer = connection.path.forward.effects.policer?;
    let payload = connection.payload_share().get();
    let used = queue::policed_rate(
        connection.control,
        policer.rate,
        policer.burst,
        connection.rtt,
        connection.mss,
    );
    let [rate, used] = [policer.rate, used].map(|rate| rate.scale_by(payload));
    Some(CeilingFigures {
        high: rate.scale_by(LikelyFactor::by_rule().high.get()),
        ..CeilingFigures::by_rule(Limit::Loss, policer.rate, used)
    })
}

/// Nothing passes a link that swallows full segments, unless the sender finds out by itself.
fn black_hole(connection: &ConnectionTerms) -> Option<CeilingFigures> {
    let narrow = connection.path.forward.effects.narrow?;
    let swallows =
        narrow.too_big == TooBig::Swallowed && connection.mss + connection.headers > narrow.mtu;
    swallows.then(|| CeilingFigures::by_rule(Limit::Mtu, BitRate::ZERO, BitRate::ZERO))
}

/// One window of the programs' protocol for each of its rounds. Programs that wait longer than the
/// path does are what limits the rate.
fn program_ceiling(connection: &ConnectionTerms) -> Option<CeilingFigures> {
    let window = connection.request.stated_load().app_window?.bytes;
    let of_all = window * u64::from(connection.request.streams);
    let path_round = connection.path.rtt() + connection.pause();
    let kind = if connection.pause() > connection.rtt {
        Limit::SenderApplication
    } else {
        Limit::ApplicationWindow
    };
    Some(CeilingFigures {
        window: Some(window),
        ..CeilingFigures::by_rule(
            kind,
            window::rate_of_window(of_all, path_round),
            window::rate_of_window(of_all, connection.program_round()?),
        )
    })
}

/// Rates of payload to which something holds each stream. The kernel paces payload too: it counts a
/// packet before its headers are added (`tcp_update_skb_after_send`), but for the discipline `fq`,
/// which counts them.
fn stated_rates(request: &Request) -> [Option<CeilingFigures>; 5] {
    let load = request.stated_load();
    [
        (
            Limit::SenderApplication,
            request.rate,
            "asked of the program",
        ),
        (Limit::Pacing, request.pacing, "maximum pace"),
        (Limit::Capacity, load.flow_cap, "for each flow"),
        (
            Limit::ReceiverApplication,
            load.read_rate,
            "read by the program",
        ),
        (Limit::Cpu, load.cpu_rate, "of one processor"),
    ]
    .map(|(kind, each, name)| {
        let all = each?.scale_by(f64::from(request.streams));
        Some(CeilingFigures {
            stated: Some((each?, name)),
            ..CeilingFigures::by_rule(kind, all, all)
        })
    })
}

/// The share of what BBR sends that arrives: it fills the link with what is then lost, too, unless
/// that is lost before.
fn delivered_share(connection: &ConnectionTerms) -> f64 {
    1.0 - connection
        .path
        .forward
        .loss
        .unwrap_or(Ratio::ZERO)
        .get()
        .min(1.0)
}

/// Returns the rate of the congestion control on the link if the queue is known to be too short for
/// its back-off and the windows are large enough to overflow it.
///
/// The queue lowers only `low`: CUBIC does better than the sawtooth of the formula, several streams
/// seldom back off together, and a link that the window cannot overfill loses nothing.
fn drop_tail_utilisation(connection: &ConnectionTerms) -> Ratio {
    let (Some(bdp), Some(queue)) = (connection.bdp(), connection.path.forward.queue) else {
        return Ratio::ONE;
    };
    if in_flight_at_most(connection) > bdp + queue {
        queue::link_utilisation(connection.control, queue, bdp)
    } else {
        Ratio::ONE
    }
}

/// Returns the bytes that the buffers of all streams allow in flight.
fn in_flight_at_most(connection: &ConnectionTerms) -> ByteCount {
    connection.allowed_in_flight().min(connection.send) * u64::from(connection.request.streams)
}

fn loss_ceiling(connection: &ConnectionTerms) -> Option<CeilingFigures> {
    let share = connection.loss_events()?;
    let kept = connection.window_under(share)?;
    let windows = StreamWindows {
        textbook: loss::mathis_window(share, connection.mss),
        kernel_model: kept,
    };
    let likely = losses_seen(connection, share, kept).likely_rate(connection.control, share);
    Some(per_stream(connection, Limit::Loss, &windows, 1.0, likely))
}

/// Losses below which a transfer says more about chance than about its path, and it is worth
/// saying.
const FEW: f64 = 50.0;

/// The losses that all streams should see in steady state, if they are few.
pub(crate) fn few_losses(connection: &ConnectionTerms) -> Option<f64> {
    let share = connection.loss_events()?;
    let kept = connection.window_under(share)?;
    Some(losses_seen(connection, share, kept).steady).filter(|losses| *losses < FEW)
}

fn losses_seen(connection: &ConnectionTerms, share: Ratio, kept: ByteCount) -> SeenLosses {
    let request = connection.request;
    let streams = f64::from(request.streams);
    let mss = connection.mss.as_f64();
    let mean = kept.as_f64() / mss;
    let segments = match request.bytes {
        Some(bytes) => bytes.as_f64() / mss,
        None => streams * mean * request.duration.as_secs_f64() / connection.rtt.as_secs_f64(),
    };
    // Slow start ends at a bound, or about 1 ÷ p segments on, when the first loss is noticed.
    let bound = slow_start_at_most(connection).as_f64() / mss;
    let peak = bound.min(1.0 / share.get());
    SeenLosses {
        steady: segments * share.get(),
        descent: streams * SeenLosses::descent_losses(connection.control, peak, mean),
    }
}

/// The window at which slow start of each stream ends where nothing is lost at random.
fn slow_start_at_most(connection: &ConnectionTerms) -> ByteCount {
    let streams = u64::from(connection.request.streams).max(1);
    let each = connection.allowed_in_flight().min(connection.send);
    match (connection.bdp(), connection.path.forward.queue) {
        (Some(bdp), Some(queue)) => each.min(ByteCount::new((bdp + queue).get() / streams)),
        _ => each,
    }
}

/// Bytes in flight of each stream, by the textbook and by the running kernel.
struct StreamWindows {
    textbook: ByteCount,
    kernel_model: ByteCount,
}

/// A ceiling of one window per round trip and stream, of which the share `used` of the time. The
/// textbook's round trip is propagation alone; that of the kernel model has the serialisation too.
fn per_stream(
    connection: &ConnectionTerms,
    kind: Limit,
    windows: &StreamWindows,
    used: f64,
    likely: LikelyFactor,
) -> CeilingFigures {
    let streams = u64::from(connection.request.streams);
    let whole =
        window::rate_of_window(windows.kernel_model * streams, connection.rtt).scale_by(used);
    CeilingFigures {
        kind,
        textbook: window::rate_of_window(windows.textbook * streams, connection.path.rtt()),
        kernel_model: whole.scale_by(likely.mid.get()),
        low: whole.scale_by(likely.low.get()),
        high: whole.scale_by(likely.high.get()),
        window: Some(windows.kernel_model.scale_by(likely.mid.get())),
        stated: None,
    }
}
