//! What the evidence says of an end's processors, its file and its network device.

use fullpipe_model::framing;
use fullpipe_record::{At, Cause, CoreTime, CpuSample, IpVersion, Limit, Machine, QdiscReport};
use fullpipe_units::{ByteCount, Ratio, Span};

use crate::figures::Figures;
use crate::finding::Finding;
use crate::thresholds::{BUSY_CORE, FILE_BUSY, NEAR_A_RATE, OWN_DROPS, OWN_DROPS_AT_LEAST, STOLEN, THROTTLED};

/// The end whose machine `found` may be the doing of, as its programs were too slow.
fn suspect<'a>(figures: &Figures<'a>, found: &Finding) -> Option<(&'a Machine, At)> {
    let evidence = figures.evidence;
    match found.kind {
        Limit::SenderApplication => Some((&evidence.sender_machine, At::Sender)),
        Limit::ReceiverApplication | Limit::ReceiveWindow => Some((&evidence.receiver_machine, At::Receiver)),
        _ => None,
    }
}

/// A program as slow as `found` says because of the file that it reads or writes, or for want of processor time.
pub(crate) fn behind(figures: &Figures, found: &Finding) -> Option<Finding> {
    let (machine, at) = suspect(figures, found)?;
    storage(figures, machine, at).or_else(|| processor(figures, machine, at))
}

fn storage(figures: &Figures, machine: &Machine, at: At) -> Option<Finding> {
    let file = machine.storage?;
    let last = figures.evidence.sender_samples.iter().map(|sample| sample.at).max()?;
    let busy = Ratio::of(file.busy.as_secs_f64(), last.as_secs_f64() * f64::from(figures.streams()));
    let kind = if at == At::Sender { Limit::SenderApplication } else { Limit::ReceiverApplication };
    (busy.get() >= FILE_BUSY).then(|| Finding::new(kind, Cause::Storage, at, busy))
}

/// The processors of an end, if they had no more time to give for most of the judged part.
pub(crate) fn processor(figures: &Figures, machine: &Machine, at: At) -> Option<Finding> {
    let (from, to) = figures.judged();
    let spent = Spent::between(&machine.processors, from, to)?;
    let (cause, share) = spent.limit()?;
    Some(Finding::new(Limit::Cpu, cause, at, share))
}

/// What the processors did over some time, as shares of it.
struct Spent {
    /// The program, of one processor.
    user: f64,
    /// The kernel on its behalf, of one processor.
    system: f64,
    throttled: f64,
    waited: f64,
    /// Of the processor that was busiest.
    core_busy: f64,
    core_user: f64,
    /// The greatest share that the hypervisor took of a processor.
    stolen: f64,
}

impl Spent {
    fn between(snapshots: &[CpuSample], from: Span, to: Span) -> Option<Self> {
        let first = snapshots.iter().rev().find(|snapshot| snapshot.at <= from).or(snapshots.first())?;
        let last = snapshots.iter().find(|snapshot| snapshot.at >= to).or(snapshots.last())?;
        let elapsed = last.at.saturating_sub(first.at).as_secs_f64();
        if elapsed <= 0.0 {
            return None;
        }
        let share = |of: fn(&CpuSample) -> Span| of(last).saturating_sub(of(first)).as_secs_f64() / elapsed;
        let cores = last.cores.iter().zip(&first.cores);
        let cores: Vec<Core> = cores.map(|(last, first)| Core::between(first, last)).collect();
        let busiest = cores.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        Some(Self {
            user: share(|snapshot| snapshot.user),
            system: share(|snapshot| snapshot.system),
            throttled: share(|snapshot| snapshot.throttled.unwrap_or_default()),
            waited: share(|snapshot| snapshot.waited.unwrap_or_default()),
            core_busy: busiest.map_or(0.0, |core| core.busy),
            core_user: busiest.map_or(0.0, |core| core.user),
            stolen: cores.iter().map(|core| core.stolen).fold(0.0, f64::max),
        })
    }

    /// Withheld time first, since it shows as little of it being used; then a program that fills a processor; then a
    /// processor that is full while the program waits for it; then a program that never rests, and runs for most of the
    /// time, whichever processors it is moved between.
    fn limit(&self) -> Option<(Cause, Ratio)> {
        let own = self.user + self.system;
        let by_kind = |user: f64, system: f64| if user > system { Cause::User } else { Cause::System };
        let found = if self.throttled >= THROTTLED {
            (Cause::Stolen, self.throttled)
        } else if self.stolen >= STOLEN {
            (Cause::Stolen, self.stolen)
        } else if own >= BUSY_CORE {
            (by_kind(self.user, self.system), own)
        } else if self.core_busy >= BUSY_CORE && own + self.waited >= BUSY_CORE {
            (by_kind(self.core_user, self.core_busy - self.core_user), self.core_busy)
        } else if own >= self.waited && own + self.waited >= BUSY_CORE {
            (by_kind(self.user, self.system), own + self.waited)
        } else {
            return None;
        };
        Some((found.0, Ratio::new(found.1.min(1.0))))
    }
}

/// What one processor did over some time, as shares of it.
struct Core {
    busy: f64,
    user: f64,
    stolen: f64,
}

impl Core {
    fn between(first: &CoreTime, last: &CoreTime) -> Self {
        let spent = |of: fn(&CoreTime) -> Span| of(last).saturating_sub(of(first)).as_secs_f64();
        let (user, system, interrupts) =
            (spent(|core| core.user), spent(|core| core.system), spent(|core| core.interrupts));
        let (stolen, idle) = (spent(|core| core.stolen), spent(|core| core.idle));
        let all = user + system + interrupts + stolen + idle;
        let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
        Self { busy: share(user + system + interrupts), user: share(user), stolen: share(stolen) }
    }
}

/// Capacity or loss that is the sending host's own queue: it dropped what was sent again, or holds it to a rate.
pub(crate) fn own_queue(figures: &Figures, found: &Finding) -> Option<Finding> {
    if !matches!(found.kind, Limit::Capacity | Limit::Loss | Limit::CongestionWindow | Limit::Unknown) {
        return None;
    }
    let device = figures.evidence.sender_machine.device.as_ref()?;
    // A discipline counts what those within it drop too.
    let dropped = device.qdiscs.iter().map(|qdisc| qdisc.dropped).max().unwrap_or(0).max(device.dropped_out);
    let again = figures.sent_again_in_all().unwrap_or(0);
    if dropped >= OWN_DROPS_AT_LEAST && dropped as f64 >= again as f64 * OWN_DROPS {
        return Some(Finding { kind: Limit::Capacity, cause: Cause::HostQueue, at: At::Sender, ..found.clone() });
    }
    let holds = device.qdiscs.iter().any(|qdisc| qdisc_holds(figures, qdisc));
    holds.then(|| Finding { kind: Limit::Pacing, cause: Cause::Qdisc, at: At::Sender, ..found.clone() })
}

/// Whether a queueing discipline that made packets wait passes as much as its rate allows.
fn qdisc_holds(figures: &Figures, qdisc: &QdiscReport) -> bool {
    let waited = qdisc.overlimits > 0 || qdisc.kind == "fq";
    let headers = framing::tcp_headers(IpVersion::V4, figures.timestamps());
    // What a discipline counts: packets as IP has them.
    let efficiency = figures.mss.map_or(Ratio::ONE, |mss| framing::efficiency(mss, headers, ByteCount::ZERO));
    let passes = figures.rate.scaled(1.0 / efficiency.get());
    waited && qdisc.rate.is_some_and(|rate| passes >= rate.scaled(NEAR_A_RATE))
}
