use std::cmp::Reverse;

use fullpipe_model::kernel;
use fullpipe_record::{
    At, Buffer, Cause, Change, Commands, Evidence, Forecast, HostSettings, Limit, Remedy, Scope, Verdict,
};
use fullpipe_units::{BitRate, ByteCount};

use crate::figures::Figures;
use crate::manual::{ManualRemedy, manual};
use crate::outlook::Outlook;
use crate::thresholds::{GAIN, MAX_STREAMS, NEXT_SIZE};

/// What would lift the limit that `verdict` names, best first: by the rate to expect, then by how little it reaches.
///
/// Each prediction is [`fullpipe_model::predict()`] over the settings and the load as changed. It is an interval from
/// the present rate upwards where the bandwidth was not told or an end's settings are not known, and `None` where
/// nothing can be said. Remedies that would bring no gain are left out. A change of `tcp_wmem` is for the sending host
/// and one of `tcp_rmem` for the receiving one, whichever end the remedy is listed at.
///
/// `commands` are left empty. Nothing follows from a verdict of [`Limit::Unknown`].
pub fn remedies(evidence: &Evidence, verdict: &Verdict) -> Vec<Remedy> {
    let advice = Advice { evidence, verdict, outlook: Outlook::new(evidence, verdict) };
    let mut remedies = advice.by_settings();
    remedies.retain(|remedy| advice.gains(remedy));
    // A remedy that a setting carries out needs nobody's hand.
    let manual = advice.manual().into_iter().filter(|prose| remedies.iter().all(|remedy| remedy.id != prose.id));
    let manual: Vec<Remedy> = manual.collect();
    remedies.extend(manual);
    remedies.sort_by_key(|remedy| (Reverse(remedy.predicted.map(|forecast| forecast.bits_per_second)), remedy.scope));
    remedies
}

pub(crate) struct Advice<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) verdict: &'a Verdict,
    pub(crate) outlook: Option<Outlook<'a>>,
}

impl Advice<'_> {
    /// What changes of the hosts or of the load would do.
    fn by_settings(&self) -> Vec<Remedy> {
        let found = match (self.verdict.kind, self.verdict.cause) {
            (Limit::SendBuffer | Limit::ReceiveWindow, _) => return self.for_a_window(),
            (Limit::CongestionWindow, _) => return self.for_growth(),
            (Limit::Loss, Cause::Policer) => [self.bbr(), self.parallel_streams(), self.pace_below_the_policer()],
            (Limit::Loss, Cause::ShallowQueue) => {
                [self.bbr(), self.parallel_streams(), self.pace_below_the_bottleneck()]
            }
            (Limit::Loss, _) => [self.bbr(), self.parallel_streams(), None],
            (Limit::SenderApplication, Cause::RateLimited) => [self.higher_rate(), None, None],
            (Limit::Pacing, Cause::MaxPacingRate) => [self.higher_pace(), None, None],
            (Limit::Pacing, Cause::CongestionControl) => [self.bbr(), self.default_pacing_ratios(), None],
            (Limit::Pacing, Cause::Qdisc) => [self.default_discipline(), None, None],
            (Limit::Capacity, Cause::HostQueue) => [self.default_discipline(), self.longer_queue(), None],
            (Limit::Mtu, Cause::BlackHole) => [Some(self.probe_the_mtu()), None, None],
            _ => return Vec::new(),
        };
        found.into_iter().flatten().collect()
    }

    fn for_a_window(&self) -> Vec<Remedy> {
        let mut remedies = match self.verdict.cause {
            // Nothing that a host sets changes what a device between them does to the window.
            _ if self.verdict.at == At::Middlebox => Vec::new(),
            Cause::SoSndbuf | Cause::SoRcvbuf => {
                let tune = vec![Change::SocketBuffer(Buffer::Automatic)];
                vec![
                    Some(self.let_the_kernel_tune(tune.clone(), Scope::Socket)),
                    self.larger_request(),
                    self.raise(tune),
                ]
            }
            Cause::NoWindowScaling => {
                let scale = vec![Change::WindowScaling(true)];
                vec![self.enable_window_scaling(scale.clone()), self.raise(scale)]
            }
            Cause::TcpRmemMax if self.receiver().is_some_and(|host| !host.moderate_rcvbuf) => {
                let tune = vec![Change::ModerateRcvbuf(true)];
                vec![Some(self.let_the_kernel_tune(tune.clone(), Scope::Namespace)), self.raise(tune)]
            }
            Cause::TcpRmemMax => vec![self.raise(self.first_size(Change::TcpRmemMax))],
            _ => vec![self.raise(self.first_size(Change::TcpWmemMax))],
        };
        remedies.push(self.parallel_streams());
        remedies.into_iter().flatten().collect()
    }

    fn for_growth(&self) -> Vec<Remedy> {
        let bbr = self.bbr().filter(|_| self.verdict.cause != Cause::RampUp);
        [Some(self.longer_transfer()), bbr].into_iter().flatten().collect()
    }

    /// The first buffer to raise: as large as the path needs where its bandwidth was told, else several times what is.
    fn first_size(&self, change: fn(ByteCount) -> Change) -> Vec<Change> {
        let receiving = matches!(change(ByteCount::ZERO), Change::TcpRmemMax(_));
        let for_the_path = self
            .outlook
            .as_ref()
            .and_then(|outlook| if receiving { outlook.rmem_for_the_path() } else { outlook.wmem_for_the_path() });
        let larger = || Some(whole_mebibytes(self.present_size(receiving)? * NEXT_SIZE));
        for_the_path.or_else(larger).map(change).into_iter().collect()
    }

    /// The buffer as the settings have it, or as it must be for the windows that were seen.
    fn present_size(&self, receiving: bool) -> Option<ByteCount> {
        let seen = || self.evidence.sender_samples.iter();
        if receiving {
            let window = || seen().filter_map(|sample| sample.tcp.snd_wnd).max();
            self.receiver().map(|host| host.tcp_rmem.max).or_else(window)
        } else {
            let buffer = || seen().filter_map(|sample| Some(sample.memory?.sndbuf)).max();
            self.evidence.sender.as_ref().map(|host| host.tcp_wmem.max).or_else(buffer)
        }
    }

    /// `first`, and whatever buffer would then stop the transfer short of the path's capacity; `None` where that is
    /// no change of a buffer's largest size.
    fn raise(&self, first: Vec<Change>) -> Option<Remedy> {
        let changes = match &self.outlook {
            Some(outlook) => outlook.with_buffers_for_the_path(first),
            None => first,
        };
        let (size, id, setting, at) = changes.iter().find_map(|change| match change {
            Change::TcpWmemMax(size) => Some((size, "raise-tcp-wmem", "tcp_wmem", At::Sender)),
            Change::TcpRmemMax(size) => Some((size, "raise-tcp-rmem", "tcp_rmem", At::Receiver)),
            _ => None,
        })?;
        let why = match self.outlook.as_ref().and_then(Outlook::bdp_of_a_stream) {
            Some(bdp) => format!(
                "The path keeps {bdp} of each stream on the way; a {setting} of {size} holds that, with room to resend \
                 what is lost."
            ),
            None => format!(
                "A {setting} of {size} lets several times as much on the way; how much of that helps depends on the \
                 bandwidth of the path, which is not known."
            ),
        };
        Some(self.remedy(id, Scope::Namespace, at, changes, why))
    }

    fn let_the_kernel_tune(&self, changes: Vec<Change>, scope: Scope) -> Remedy {
        let why = "A buffer of fixed size fits one path only; left alone, the kernel lets it grow as the path needs.";
        self.remedy("let-the-kernel-tune", scope, self.verdict.at, changes, why.to_owned())
    }

    /// The request under which both ends hold what the path takes, no larger than the hosts are known to grant.
    fn larger_request(&self) -> Option<Remedy> {
        let Buffer::Request(present) = self.evidence.request.buffer else { return None };
        let wanted = whole_mebibytes(self.request_for_the_path().unwrap_or(present * NEXT_SIZE));
        let granted = [self.receiver().map(kernel::rmem_max), self.evidence.sender.as_ref().map(kernel::wmem_max)];
        let size = granted.into_iter().flatten().fold(wanted, ByteCount::min);
        let bound = if size < wanted { ", and is the most that rmem_max and wmem_max grant" } else { "" };
        let why = format!("A request of {size} instead of {present} lets more on the way{bound}.");
        let changes = vec![Change::SocketBuffer(Buffer::Request(size))];
        (size > present).then(|| self.remedy("larger-socket-buffer", Scope::Socket, self.verdict.at, changes, why))
    }

    fn request_for_the_path(&self) -> Option<ByteCount> {
        let window = self.outlook.as_ref()?.bdp_of_a_stream()?;
        let receiving = self.receiver().map(|host| kernel::request_for_window(host, window, ByteCount::ZERO));
        Some(receiving.unwrap_or_default().max(window))
    }

    /// `None` where both ends are known to offer scaling already: something between them removes it.
    fn enable_window_scaling(&self, changes: Vec<Change>) -> Option<Remedy> {
        let offers = |host: Option<&HostSettings>| host.map(|host| host.window_scaling);
        let at = match (offers(self.evidence.sender.as_ref()), offers(self.receiver())) {
            (_, Some(false)) => At::Receiver,
            (Some(false), _) => At::Sender,
            (Some(true), Some(true)) => return None,
            (Some(true) | None, _) => At::Receiver,
        };
        let why = "Without window scaling at both ends no more than 64 KiB may be on the way.".to_owned();
        Some(self.remedy("enable-window-scaling", Scope::Namespace, at, changes, why))
    }

    /// As many connections as reach the path's capacity together, or several times as many where that is not known.
    fn parallel_streams(&self) -> Option<Remedy> {
        let present = self.outlook.as_ref().map_or(self.evidence.request.streams.max(1), Outlook::streams);
        let streams = self.streams_for_the_path(present).unwrap_or(present.saturating_mul(4)).min(MAX_STREAMS);
        let why = format!(
            "Each connection has its own windows and buffers, and recovers on its own: {streams} of them carry more."
        );
        let changes = vec![Change::Streams(streams)];
        (streams > present).then(|| self.remedy("parallel-streams", Scope::Application, At::Sender, changes, why))
    }

    fn streams_for_the_path(&self, present: u16) -> Option<u16> {
        let now = self.outlook.as_ref()?.predict(&[]);
        let capacity = now.ceiling(Limit::Capacity)?.kernel_model;
        let of_one =
            now.ceiling(self.verdict.kind).map_or(self.outlook.as_ref()?.present, |ceiling| ceiling.kernel_model);
        let streams = (f64::from(present) * capacity.relative_to(of_one)).ceil();
        Some(streams.clamp(1.0, f64::from(MAX_STREAMS)) as u16)
    }

    /// `None` where the sender has no BBR, or uses it already.
    fn bbr(&self) -> Option<Remedy> {
        const BBR: &str = "bbr";
        let sender = self.evidence.sender.as_ref()?;
        let available = sender.available_congestion_controls.iter().any(|name| name == BBR);
        let used = Figures::of(self.evidence).is_bbr();
        let why = "BBR sends at the rate that it measures, and does not slow down for each loss.".to_owned();
        let changes = vec![Change::CongestionControl(BBR.to_owned())];
        (available && !used).then(|| self.remedy("congestion-control-bbr", Scope::Socket, At::Sender, changes, why))
    }

    fn longer_transfer(&self) -> Remedy {
        let ramp = self.outlook.as_ref().map(|outlook| outlook.predict(&[]).ramp);
        let why = match ramp.filter(|ramp| ramp.rounds > 0) {
            Some(ramp) => format!(
                "At best {} round trips, {}, pass before this path is full; a longer transfer spends less of its time on that.",
                ramp.rounds, ramp.duration
            ),
            None => "The longer a transfer, the less of its time is spent on speeding up.".to_owned(),
        };
        self.remedy("longer-transfer", Scope::Application, At::Sender, Vec::new(), why)
    }

    /// What only a person can do.
    fn manual(&self) -> Vec<Remedy> {
        let advice = manual(self.verdict.kind, self.verdict.cause);
        let made = |ManualRemedy { id, scope, at, why }: &ManualRemedy| {
            let at = at.unwrap_or(self.verdict.at);
            self.remedy(id, *scope, at, Vec::new(), (*why).to_owned())
        };
        // What a setting makes of it can be predicted; what a person makes of it cannot.
        advice.iter().map(made).map(|remedy| Remedy { predicted: None, ..remedy }).collect()
    }

    pub(crate) fn remedy(&self, id: &str, scope: Scope, at: At, changes: Vec<Change>, why: String) -> Remedy {
        let predicted = self.outlook.as_ref().and_then(|outlook| outlook.forecast(&changes));
        let predicted = predicted.map(|forecast| self.bounded(forecast, &changes));
        Remedy { id: id.to_owned(), scope, at, changes, commands: Commands::default(), predicted, why }
    }

    /// `forecast`, no higher than the limit that would be next: the settings that the prediction rests on may not tell of it.
    fn bounded(&self, forecast: Forecast, changes: &[Change]) -> Forecast {
        let next = self.verdict.runner_up.and_then(|next| Some((next.kind, next.bits_per_second?)));
        let Some((_, ceiling)) = next.filter(|(kind, _)| !changes.iter().any(|change| lifts(change, *kind))) else {
            return forecast;
        };
        let bound = |rate: BitRate| rate.min(ceiling);
        let Forecast { bits_per_second, low, high } = forecast;
        Forecast { bits_per_second: bound(bits_per_second), low: bound(low), high: bound(high) }
    }

    /// Whether a change that can be predicted is worth making; what only a person can do always stays.
    fn gains(&self, remedy: &Remedy) -> bool {
        let present = self.outlook.as_ref().map_or(BitRate::ZERO, |outlook| outlook.present);
        let enough = |rate: BitRate| rate > present.scaled(GAIN);
        remedy.changes.is_empty() || remedy.predicted.is_none_or(|forecast| enough(forecast.bits_per_second))
    }

    fn receiver(&self) -> Option<&HostSettings> {
        self.evidence.receiver.as_ref()
    }
}

/// Whether a change has to do with the ceiling `kind`, so that what was seen of that says nothing of the time after it.
fn lifts(change: &Change, kind: Limit) -> bool {
    match change {
        Change::Streams(_) => kind != Limit::Capacity,
        Change::SocketBuffer(_) => matches!(kind, Limit::SendBuffer | Limit::ReceiveWindow),
        Change::TcpWmemMax(_) => kind == Limit::SendBuffer,
        Change::TcpRmemMax(_) | Change::ModerateRcvbuf(_) | Change::WindowScaling(_) => kind == Limit::ReceiveWindow,
        Change::CongestionControl(_) => kind == Limit::Loss,
        _ => false,
    }
}

fn whole_mebibytes(size: ByteCount) -> ByteCount {
    const MIB: ByteCount = ByteCount::from_mib(1);
    MIB * size.get().div_ceil(MIB.get())
}
