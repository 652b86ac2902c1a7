//! The remedies that several limits share, and the prediction of each.

pub(crate) mod manual_remedy;
pub(crate) mod outlook;

use fullpipe_model::improvement::{WindowConstraint, can_tolerate_loss, tolerate_loss};
use fullpipe_model::loss::CongestionControl;
use fullpipe_model::{USUAL_RELAY_RTT, kernel};
use fullpipe_record::{
    Commands, DeviceReport, Forecast, HostSettings, RESTORABLE_QDISCS, RttForecast, RunnerUp,
};

use crate::advice::outlook::{longest_of_bbr, usual_of_bbr};
use crate::prelude::*;
use crate::signals::SenderView;
use crate::thresholds::{MAX_STREAMS, NEXT_SIZE_FACTOR};

pub(crate) use manual_remedy::ManualRemedy;
pub(crate) use outlook::ChangeOutlook;

/// The evidence and the verdict for which remedies are sought.
pub(crate) struct RemedyAdvice<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) figures: &'a SenderView<'a>,
    pub(crate) outlook: Option<ChangeOutlook<'a>>,
    pub(crate) verdict: LegalVerdict,
    runner_up: Option<RunnerUp>,
}

/// Multiple of the present rate that a change must promise to be worth making.
const MIN_GAIN: f64 = 1.02;

impl<'a> RemedyAdvice<'a> {
    pub(crate) fn new(figures: &'a SenderView<'a>, legal: LegalVerdict, verdict: &Verdict) -> Self {
        let outlook = ChangeOutlook::new(figures, legal);
        Self {
            evidence: figures.evidence,
            figures,
            outlook,
            verdict: legal,
            runner_up: verdict.runner_up,
        }
    }

    /// Returns the remedies for a window or a buffer of the hosts: the change that removes the
    /// constraint, alone and with the larger buffers that the path then needs; and more
    /// connections.
    pub(crate) fn for_window(&self, constraint: WindowConstraint) -> Vec<Option<Remedy>> {
        let switch: Vec<Change> = constraint.removing_change(None).into_iter().collect();
        let first = switch.clone();
        let (alone, first) = match constraint {
            WindowConstraint::FixedBuffer => {
                let tuned = self.let_the_kernel_tune(switch, Scope::Socket);
                (vec![Some(tuned), self.larger_request()], first)
            }
            WindowConstraint::NoScaling => (vec![self.enable_window_scaling(switch)], first),
            WindowConstraint::NoAutotuning => {
                let tuned = self.let_the_kernel_tune(switch, Scope::Namespace);
                (vec![Some(tuned)], first)
            }
            WindowConstraint::ReceiveMaximum | WindowConstraint::SendMaximum => {
                (Vec::new(), self.first_size(constraint))
            }
        };
        let own = alone.into_iter().chain([self.raise_limits(first)]);
        let own: Vec<Remedy> = own.flatten().collect();
        let with_bbr = own.iter().find_map(|remedy| self.without_queue(remedy));
        let others = [self.parallel_streams(), self.relay_remedy()];
        let own = own.into_iter().map(Some);
        std::iter::once(with_bbr).chain(own).chain(others).collect()
    }

    /// Returns `remedy` with a congestion control that keeps the queue of the bottleneck short;
    /// `None` where the remedy fills no queue, or the sender has no such control.
    pub(crate) fn without_queue(&self, remedy: &Remedy) -> Option<Remedy> {
        if !fills_a_queue(remedy)
            || self.figures.is_bbr()
            || !can_tolerate_loss(self.evidence.sender.as_ref()?)
        {
            return None;
        }
        let bbr_maximum = self
            .outlook
            .as_ref()
            .and_then(|outlook| outlook.maximum_under(CongestionControl::Bbr, SEND));
        let mut changes = remedy.changes.clone();
        let mut why = remedy.why.clone();
        for change in &mut changes {
            if let (Change::TcpWmemMax(size), Some((maximum, reason))) = (change, &bbr_maximum) {
                *size = *maximum;
                why = format!("A tcp_wmem of {size} is {reason}.");
            }
        }
        changes.push(tolerate_loss());
        let why = format!(
            "{why} BBR paces at what the path carries and bounds the queue: at most as much as is on the way."
        );
        let id = format!("{}-with-bbr", remedy.id);
        Some(self.build_remedy(&id, remedy.scope, remedy.at, changes, why))
    }

    /// Returns the first buffer to raise: as large as the path needs where its bandwidth was
    /// stated, else several times its present size.
    fn first_size(&self, constraint: WindowConstraint) -> Vec<Change> {
        let for_the_path = self
            .outlook
            .as_ref()
            .and_then(|outlook| outlook.maximum_for_the_path(constraint));
        let size = for_the_path.or_else(|| {
            let present = self.present_size(constraint == WindowConstraint::ReceiveMaximum)?;
            Some(whole_mebibytes(present * NEXT_SIZE_FACTOR))
        });
        constraint.removing_change(size).into_iter().collect()
    }

    /// Returns the buffer of the settings, or the buffer that the samples show.
    fn present_size(&self, receiving: bool) -> Option<ByteCount> {
        let samples = self.evidence.sender_samples.iter();
        if receiving {
            let of_host = self.receiver_settings().map(|host| host.tcp_rmem.max);
            of_host.or_else(|| samples.filter_map(|sample| sample.tcp.snd_wnd).max())
        } else {
            let buffers = samples.filter_map(|sample| Some(sample.memory?.sndbuf));
            let sender = self.evidence.sender.as_ref();
            sender
                .map(|host| host.tcp_wmem.max)
                .or_else(|| buffers.max())
        }
    }

    /// Returns a remedy of `first`, and whatever buffer would then stop the transfer short of the
    /// path's capacity; `None` where that is no change of a buffer's largest size.
    fn raise_limits(&self, first: Vec<Change>) -> Option<Remedy> {
        let changes = match &self.outlook {
            Some(outlook) => outlook.with_buffers_for_the_path(first),
            None => first,
        };
        let (size, constraint) = changes.iter().find_map(|change| match change {
            Change::TcpWmemMax(size) => Some((size, SEND)),
            Change::TcpRmemMax(size) => Some((size, WindowConstraint::ReceiveMaximum)),
            _ => None,
        })?;
        let (id, setting, at) = match constraint {
            SEND => ("raise-tcp-wmem", "tcp_wmem", At::Sender),
            _ => ("raise-tcp-rmem", "tcp_rmem", At::Receiver),
        };
        let why = match self
            .outlook
            .as_ref()
            .and_then(|outlook| outlook.maximum_under(outlook.congestion_control(), constraint))
        {
            Some((_, reason)) => format!("A {setting} of {size} is {reason}."),
            None => format!(
                "A {setting} of {size} allows several times as much in flight; how much of that helps depends on the \
                 bandwidth of the path, which is not known."
            ),
        };
        Some(self.build_remedy(id, Scope::Namespace, at, changes, why))
    }

    fn let_the_kernel_tune(&self, changes: Vec<Change>, scope: Scope) -> Remedy {
        let why = "A buffer of fixed size fits one path only; left alone, the kernel lets it grow as the path needs.";
        self.build_remedy(
            "let-the-kernel-tune",
            scope,
            self.verdict.limit_place(),
            changes,
            why.to_owned(),
        )
    }

    /// Returns the request under which both ends hold what the path takes, no larger than the hosts
    /// are known to grant.
    fn larger_request(&self) -> Option<Remedy> {
        let Buffer::Request(present) = self.evidence.request.buffer else {
            return None;
        };
        let wanted = self.request_for_the_path();
        let wanted = wanted.unwrap_or(present * NEXT_SIZE_FACTOR);
        let (size, bound) = self.granted_request(wanted);
        let why = format!("A request of {size} instead of {present} allows more in flight{bound}.");
        (size > present).then(|| self.request_remedy(size, why))
    }

    /// Returns the ways to a larger window where the kernel leaves small what it may tune: a buffer
    /// that it need not tune, and others that share its small windows.
    pub(crate) fn for_stalled_autotuning(&self) -> Vec<Option<Remedy>> {
        let request = self.request_for_the_path().map(|wanted| {
            let (size, bound) = self.granted_request(wanted);
            let why = format!(
                "A request of {size} is granted at once, and does not wait for the kernel's tuning{bound}."
            );
            self.request_remedy(size, why)
        });
        vec![request, self.parallel_streams(), self.relay_remedy()]
    }

    /// Returns the request of so many bytes in whole mebibytes, as far as the hosts are known to
    /// grant it, and a clause if that is less.
    fn granted_request(&self, wanted: ByteCount) -> (ByteCount, &'static str) {
        let wanted = whole_mebibytes(wanted);
        let granted = [
            self.receiver_settings().map(kernel::rmem_max),
            self.evidence.sender.as_ref().map(kernel::wmem_max),
        ];
        let size = granted.into_iter().flatten().fold(wanted, ByteCount::min);
        let bound = if size < wanted {
            ", and is the most that rmem_max and wmem_max grant"
        } else {
            ""
        };
        (size, bound)
    }

    fn request_remedy(&self, size: ByteCount, why: String) -> Remedy {
        let changes = vec![Change::SocketBuffer(Buffer::Request(size))];
        let at = self.verdict.limit_place();
        self.build_remedy("larger-socket-buffer", Scope::Socket, at, changes, why)
    }

    fn request_for_the_path(&self) -> Option<ByteCount> {
        let window = self.outlook.as_ref()?.bdp_of_a_stream()?;
        let receiving = self
            .receiver_settings()
            .map(|host| kernel::request_for_window(host, window, ByteCount::ZERO));
        Some(receiving.unwrap_or_default().max(window))
    }

    /// `None` where both ends are known to offer scaling already: something between them removes
    /// it.
    fn enable_window_scaling(&self, changes: Vec<Change>) -> Option<Remedy> {
        let hosts = [self.evidence.sender.as_ref(), self.receiver_settings()];
        let at = match hosts.map(|host| Some(host?.window_scaling)) {
            [_, Some(false)] => At::Receiver,
            [Some(false), _] => At::Sender,
            [Some(true), Some(true)] => return None,
            [Some(true) | None, _] => At::Receiver,
        };
        let why =
            "Without window scaling at both ends no more than 64 KiB may be in flight.".to_owned();
        Some(self.build_remedy("enable-window-scaling", Scope::Namespace, at, changes, why))
    }

    /// Returns as many connections as reach the path's capacity together, or several times as many
    /// where that is not known.
    pub(crate) fn parallel_streams(&self) -> Option<Remedy> {
        let present = self.outlook.as_ref().map_or(
            self.evidence.request.streams.max(1),
            ChangeOutlook::stream_count,
        );
        let streams = self
            .streams_for_the_path(present)
            .unwrap_or(present.saturating_mul(4))
            .min(MAX_STREAMS);
        let why = format!(
            "Each connection has its own windows and buffers, and recovers on its own: {streams} of them carry more."
        );
        let changes = vec![Change::Streams(streams)];
        (streams > present).then(|| {
            self.build_remedy(
                "parallel-streams",
                Scope::Application,
                At::Sender,
                changes,
                why,
            )
        })
    }

    /// Returns a pair of relays, for hosts whose settings may not be changed; `None` where they
    /// would not help, or where nothing can be predicted.
    fn relay_remedy(&self) -> Option<Remedy> {
        let outlook = self.outlook.as_ref()?;
        let predicted = outlook.forecast_with_relays()?;
        let why = format!(
            "Two relays split the path, one within about {USUAL_RELAY_RTT} of each host: the windows of the hosts then \
             fill the short stretches, and the relays' own the long one (`fullpipe relay`)."
        );
        let remedy = self.build_remedy("relays", Scope::Path, At::Path, Vec::new(), why);
        // Windows that the kernel tunes may fill the queue between the relays.
        let rtt = outlook
            .forecast_rtt(&[])
            .map(|rtt| RttForecast { high: None, ..rtt });
        let gain = predicted.bits_per_second > outlook.present.scale_by(MIN_GAIN);
        gain.then_some(Remedy {
            predicted: Some(predicted),
            rtt,
            ..remedy
        })
    }

    fn streams_for_the_path(&self, present: u16) -> Option<u16> {
        let now = self.outlook.as_ref()?.predict_changes(&[]);
        let capacity = now.find_ceiling(Limit::Capacity)?.kernel_model;
        let of_one = now
            .find_ceiling(self.verdict.limit_kind())
            .map_or(self.outlook.as_ref()?.present, |ceiling| {
                ceiling.kernel_model
            });
        let streams = (f64::from(present) * capacity.relative_to(of_one)).ceil();
        Some(streams.clamp(1.0, f64::from(MAX_STREAMS)) as u16)
    }

    /// `None` where the sender has no BBR, or uses it already.
    pub(crate) fn bbr_remedy(&self) -> Option<Remedy> {
        let can = can_tolerate_loss(self.evidence.sender.as_ref()?) && !self.figures.is_bbr();
        let why = "BBR sends at the rate that it measures, and does not slow down for each loss."
            .to_owned();
        can.then(|| {
            self.build_remedy(
                "congestion-control-bbr",
                Scope::Socket,
                At::Sender,
                vec![tolerate_loss()],
                why,
            )
        })
    }

    /// Returns the kernel's own queueing discipline in place of one that somebody chose; `None`
    /// where that has others within it, or could not be put back.
    pub(crate) fn default_discipline(&self) -> Option<Remedy> {
        let device = self.own_device()?;
        let [chosen] = device.qdiscs.as_slice() else {
            return None;
        };
        let (name, kind) = (&device.name, &chosen.kind);
        let rate = chosen
            .rate
            .map_or_else(String::new, |rate| format!(" with a rate of {rate}"));
        let why = format!(
            "Somebody gave {name} the queueing discipline {kind}{rate}; without it the kernel's own takes its place. \
             The risk: it may be there to leave others their part, or to keep a queue from growing elsewhere."
        );
        let changes = vec![Change::Qdisc {
            device: name.clone(),
            kind: Change::DEFAULT_QDISC.to_owned(),
        }];
        let (id, at) = ("default-queueing-discipline", At::Sender);
        RESTORABLE_QDISCS
            .contains(&kind.as_str())
            .then(|| self.build_remedy(id, Scope::Host, at, changes, why))
    }

    pub(crate) fn own_device(&self) -> Option<&DeviceReport> {
        self.evidence.sender_machine.device.as_ref()
    }

    /// Returns a remedy that only a person can carry out, whose gain cannot be predicted.
    pub(crate) fn by_a_person(&self, manual: &ManualRemedy) -> Remedy {
        let at = manual.at.unwrap_or(self.verdict.limit_place());
        let remedy = self.build_remedy(
            manual.id,
            manual.scope,
            at,
            Vec::new(),
            manual.why.to_owned(),
        );
        Remedy {
            predicted: None,
            rtt: None,
            ..remedy
        }
    }

    pub(crate) fn build_remedy(
        &self,
        id: &str,
        scope: Scope,
        at: At,
        changes: Vec<Change>,
        why: String,
    ) -> Remedy {
        let predicted = self
            .outlook
            .as_ref()
            .and_then(|outlook| outlook.forecast_rate(&changes));
        let predicted = predicted.map(|forecast| self.bound_forecast(forecast, &changes));
        let rtt = self
            .outlook
            .as_ref()
            .and_then(|outlook| outlook.forecast_rtt(&changes));
        Remedy {
            id: id.to_owned(),
            scope,
            at,
            changes,
            commands: Commands::default(),
            predicted,
            rtt,
            command_time: None,
            why,
        }
    }

    /// Returns `forecast`, no higher than the limit that would be next: the settings behind the
    /// prediction may not include it.
    fn bound_forecast(&self, forecast: Forecast, changes: &[Change]) -> Forecast {
        let next = self
            .runner_up
            .and_then(|next| Some((next.kind, next.bits_per_second?)));
        let Some((_, ceiling)) =
            next.filter(|(kind, _)| !changes.iter().any(|change| lifts_limit(change, *kind)))
        else {
            return forecast;
        };
        Forecast {
            bits_per_second: forecast.bits_per_second.min(ceiling),
            low: forecast.low.min(ceiling),
            high: forecast.high.min(ceiling),
            ..forecast
        }
    }

    /// Returns true if a change that can be predicted is worth making; a remedy that only a person
    /// can carry out always is.
    pub(crate) fn is_worthwhile(&self, remedy: &Remedy) -> bool {
        let present = self
            .outlook
            .as_ref()
            .map_or(BitRate::ZERO, |outlook| outlook.present);
        let enough = present.scale_by(MIN_GAIN);
        remedy.changes.is_empty()
            || remedy
                .predicted
                .is_none_or(|forecast| forecast.bits_per_second > enough)
    }

    pub(crate) fn receiver_settings(&self) -> Option<&HostSettings> {
        self.evidence.receiver.as_ref()
    }
}

/// Returns true if a remedy makes round trips longer than one stream under BBR usually does.
pub(crate) fn fills_a_queue(remedy: &Remedy) -> bool {
    let is_bbr = remedy.changes.contains(&tolerate_loss());
    remedy.rtt.is_some_and(|rtt| {
        let most = if is_bbr {
            longest_of_bbr(rtt.low, 1)
        } else {
            usual_of_bbr(rtt.low)
        };
        rtt.high.is_none_or(|high| high > most)
    })
}

/// Returns true if a change moves the ceiling `kind`, so that its measured figure says nothing
/// about the time after.
fn lifts_limit(change: &Change, kind: Limit) -> bool {
    match change {
        Change::Streams(_) => kind != Limit::Capacity,
        Change::SocketBuffer(_) => matches!(kind, Limit::SendBuffer | Limit::ReceiveWindow),
        Change::TcpWmemMax(_) => kind == Limit::SendBuffer,
        Change::TcpRmemMax(_) | Change::ModerateRcvbuf(_) | Change::WindowScaling(_) => {
            kind == Limit::ReceiveWindow
        }
        Change::CongestionControl(_) => kind == Limit::Loss,
        _ => false,
    }
}

const SEND: WindowConstraint = WindowConstraint::SendMaximum;

fn whole_mebibytes(size: ByteCount) -> ByteCount {
    const MIB: ByteCount = ByteCount::from_mib(1);
    MIB * size.get().div_ceil(MIB.get())
}
