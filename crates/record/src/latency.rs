use crate::prelude::*;
use crate::{RttMethod, RttReport, RttStats};

/// One echo request during a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Echo {
    /// When it was sent, since the first.
    pub at: Span,
    /// Round-trip time of the request; `None` if no answer came.
    pub rtt: Option<Span>,
    /// Delay that this host added to that, and which is not in it: the time from the program to the
    /// wire and back, where the kernel stamped both passages.
    pub host: Option<Span>,
}

/// When there was load during echo requests, on their clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LoadTime {
    /// When data began to flow.
    pub began: Span,
    /// From when on it counted.
    pub from: Span,
    /// When it ended.
    pub to: Span,
    /// When the queues that it had filled were empty again, where that was seen.
    pub settled: Option<Span>,
}

/// Echo requests of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EchoPhase {
    /// Requests.
    pub sent: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Round-trip times.
    pub rtt: Option<RttStats>,
    /// Mean difference between the round-trip times of one answered request and the next (the
    /// magnitude of RFC 3393's variation, of round trips).
    pub jitter: Option<Span>,
    /// Delay that this host added, which is not in the round-trip times.
    pub host: Option<RttStats>,
}

impl EchoPhase {
    /// The phase of `echoes`, in the order in which they were sent.
    fn from_echoes(echoes: &[Echo]) -> Self {
        let rtts = echo_rtts(echoes);
        Self {
            sent: echoes.len() as u64,
            lost: (echoes.len() - rtts.len()) as u64,
            jitter: mean_jitter(&rtts),
            rtt: RttStats::from_samples(rtts),
            host: RttStats::from_samples(echoes.iter().filter_map(|echo| echo.host).collect()),
        }
    }
}

/// Echo requests on a flow of their own, before, during and after a load.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EchoReport {
    /// When there was load.
    pub load: LoadTime,
    /// Answered before data flowed.
    pub before: EchoPhase,
    /// While data flowed and counted, without the first two round trips, in which no queue can have
    /// been filled.
    pub during: EchoPhase,
    /// When the queues had emptied.
    pub after: EchoPhase,
    /// The requests, evenly thinned out where they are many.
    pub samples: Vec<Echo>,
}

impl EchoReport {
    /// Samples that are kept.
    pub const MAX_SAMPLES: usize = 500;

    /// Fewer answers than this in a part of the load do not stand for it.
    const MIN_OF_PART: usize = 5;

    /// Returns the report of `echoes`, in the order in which they were sent, about a `load`.
    fn from_echoes(echoes: &[Echo], load: LoadTime) -> Self {
        let [before, during, after] = split_phases(echoes, load);
        let step = echoes.len().div_ceil(Self::MAX_SAMPLES).max(1);
        Self {
            load,
            before: EchoPhase::from_echoes(&before),
            during: EchoPhase::from_echoes(&during),
            after: EchoPhase::from_echoes(&after),
            samples: echoes.iter().step_by(step).copied().collect(),
        }
    }
}

impl RttReport {
    /// Returns the median round-trip time under load after a `ramp` that lasted so long since data
    /// began to flow: no queue need have stood in it. That of the whole load where too few requests
    /// were answered later.
    pub(crate) fn loaded_after(&self, ramp: Span) -> Option<Span> {
        let later = self.echoes.as_ref().map(|echoes| {
            let part = echoes.load.began + ramp..=echoes.load.to;
            let sent_in = echoes.samples.iter().filter(|echo| part.contains(&echo.at));
            sent_in.filter_map(|echo| echo.rtt).collect::<Vec<_>>()
        });
        let later = later
            .filter(|rtts| rtts.len() >= EchoReport::MIN_OF_PART)
            .and_then(median);
        later.or_else(|| self.loaded.map(|rtt| rtt.median))
    }
}

/// Echo requests before, during and after a `load`.
fn split_phases(echoes: &[Echo], load: LoadTime) -> [Vec<Echo>; 3] {
    let chosen = |wanted: &dyn Fn(&Echo) -> bool| {
        echoes.iter().filter(|echo| wanted(echo)).copied().collect()
    };
    let before: Vec<Echo> = chosen(&|echo| echo.at + echo.rtt.unwrap_or_default() < load.began);
    let ramp = echo_rtts(&before).into_iter().min().unwrap_or_default() * 2;
    let from = load.from.max(load.began + ramp);
    let during = chosen(&|echo| (from..=load.to).contains(&echo.at));
    [
        before,
        during,
        chosen(&|echo| load.settled.is_some_and(|settled| echo.at >= settled)),
    ]
}

fn echo_rtts(echoes: &[Echo]) -> Vec<Span> {
    echoes.iter().filter_map(|echo| echo.rtt).collect()
}

impl RttReport {
    /// From `echoes` during a `load`, in the order in which they were sent. `handshake` is the idle
    /// round-trip time where they have not seen the path idle, `within` the round-trip times of the
    /// connections that carry the load.
    pub fn of_echoes(
        method: RttMethod,
        echoes: &[Echo],
        load: LoadTime,
        handshake: Option<Span>,
        by_load: Vec<Span>,
    ) -> Self {
        let [before, during, after] = split_phases(echoes, load);
        let idle = RttStats::from_samples([echo_rtts(&before), echo_rtts(&after)].concat());
        let idle = idle.or_else(|| RttStats::from_samples(handshake.into_iter().collect()));
        Self {
            responsiveness: Responsiveness::from_rtts(echo_rtts(&during), by_load),
            echoes: Some(EchoReport::from_echoes(echoes, load)),
            ..Self::from_stats(method, idle, RttStats::from_samples(echo_rtts(&during)))
        }
    }

    /// From the kernel's own estimates: of the `handshake`, and of the connections that carry the
    /// load.
    pub fn of_kernel(handshake: Option<Span>, by_load: Vec<Span>) -> Self {
        Self {
            responsiveness: Responsiveness::from_rtts(Vec::new(), by_load.clone()),
            ..Self::from_stats(
                RttMethod::TcpInfo,
                RttStats::from_samples(handshake.into_iter().collect()),
                RttStats::from_samples(by_load),
            )
        }
    }
}

/// By how much the round-trip time under load exceeds the idle one, both as medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inflation {
    /// Loaded less idle; zero where load makes it no longer.
    pub added: Span,
    /// Loaded by idle.
    pub ratio: Ratio,
}

impl Inflation {
    /// From the `idle` round-trip times to the `loaded` ones.
    pub fn from_stats(idle: &RttStats, loaded: &RttStats) -> Self {
        let (idle, loaded) = (idle.median, loaded.median);
        Self {
            added: loaded.saturating_sub(idle),
            ratio: Ratio::from_quotient(loaded.as_secs_f64(), idle.as_secs_f64()),
        }
    }
}

/// Round trips that fit into a minute under load, one after the other.
///
/// After draft-ietf-ippm-responsiveness-09, section 5.3.1.1: the mean of two rates, each a minute
/// by the mean of the fastest 95 % of the round trips of its kind. The draft takes the first from
/// connections of their own (TCP and TLS handshake and a small download, in equal parts) and the
/// second from requests on the connections that carry the load. Here the first is taken from echo
/// requests, and the second from the smoothed round-trip time that the kernel has of the
/// connections that carry the load: no server's time is in it, nor that of a data stream's queue in
/// the sending program. It is therefore greater than what programs give that follow the draft to
/// the letter, and not to be compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Responsiveness {
    /// The mean of those that are known.
    pub per_minute: u64,
    /// By echo requests during the load.
    pub by_echo: Option<u64>,
    /// By the connections that carry the load.
    pub by_load: Option<u64>,
}

impl Responsiveness {
    /// From round-trip times of echo requests, `by_echo`, and of the load itself, `by_load`, each
    /// in any order; `None` where there are none.
    pub fn from_rtts(by_echo: Vec<Span>, by_load: Vec<Span>) -> Option<Self> {
        let [by_echo, by_load] = [by_echo, by_load].map(|rtts| trimmed_mean(rtts).map(per_minute));
        let known: Vec<f64> = [by_echo, by_load].into_iter().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        (!known.is_empty()).then(|| Self {
            per_minute: mean.round() as u64,
            by_echo: by_echo.map(|rate| rate.round() as u64),
            by_load: by_load.map(|rate| rate.round() as u64),
        })
    }
}

/// The figures of a test of responsiveness as draft-ietf-ippm-responsiveness-09 has it: of requests
/// of HTTP/2 while connections carry as much as the path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RpmReport {
    /// Round trips per minute: half of what new connections have, by the mean of their three parts,
    /// and half of what requests on connections under load have. Each part is the mean of the best
    /// 95 % of the round trips of the latest four intervals.
    pub per_minute: u64,
    /// Handshake of TCP, on new connections.
    pub tcp: Span,
    /// Handshake of TLS, for each of its round trips, on new connections.
    pub tls: Span,
    /// From a request to its answer, on new connections.
    pub http: Span,
    /// From a request to its answer, on connections under load.
    pub http_loaded: Span,
    /// Payload that all connections under load moved in the latest four intervals.
    pub goodput: BitRate,
    /// Connections under load at the end.
    pub connections: u16,
    /// Requests that were answered in the latest four intervals, of both kinds.
    pub probes: u32,
    /// How sure the figures are.
    pub confidence: RpmConfidence,
}

/// How sure the figures of a test of responsiveness are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RpmConfidence {
    /// The goodput became stable too late or never, for round trips of four intervals to follow:
    /// there may have been too little load.
    Low,
    /// The goodput became stable, the round trips did not.
    Medium,
    /// Both became stable.
    High,
}

fn per_minute(rtt: Span) -> f64 {
    60.0 / rtt.max(Span::from_nanos(1)).as_secs_f64()
}

/// Returns the mean of the least 95 % of `values`, of at least one; `None` if there is none.
pub fn trimmed_mean(mut values: Vec<Span>) -> Option<Span> {
    values.sort_unstable();
    let kept = (values.len() * 95 / 100).max(1);
    let sum: Span = values.get(..kept)?.iter().copied().sum();
    Some(sum / kept as u64)
}

/// The mean difference between each of `rtts` and the next.
fn mean_jitter(rtts: &[Span]) -> Option<Span> {
    let changes = rtts
        .windows(2)
        .map(|pair| pair[0].max(pair[1]).saturating_sub(pair[0].min(pair[1])));
    let sum: Span = changes.sum();
    let pairs = rtts.len().checked_sub(1).filter(|&pairs| pairs > 0)?;
    Some(sum / pairs as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    fn echo(at: u64, rtt: Option<u64>) -> Echo {
        Echo {
            at: millis(at),
            rtt: rtt.map(millis),
            host: rtt.map(|_| Span::from_micros(at)),
        }
    }

    #[test]
    fn the_ramp_is_no_part_of_the_load_that_is_judged() {
        let echoes: Vec<Echo> = (0..20)
            .map(|n| echo(n * 10, Some(if n < 12 { 10 } else { 30 })))
            .collect();
        let load = LoadTime {
            began: Span::ZERO,
            from: Span::ZERO,
            to: millis(190),
            settled: None,
        };
        let rtt = RttReport::of_echoes(RttMethod::Icmp, &echoes, load, Some(millis(10)), vec![]);
        assert_eq!(rtt.loaded.map(|loaded| loaded.median), Some(millis(10)));
        assert_eq!(rtt.loaded_after(millis(110)), Some(millis(30)));
    }

    #[test]
    fn phases_are_reported_apart_by_when_requests_were_sent_and_answered() {
        let echoes = [
            echo(0, Some(10)),
            echo(10, Some(14)),
            echo(20, None),
            echo(25, Some(10)), // On its way when data begins to flow.
            echo(40, Some(10)), // Too early to meet a queue.
            echo(50, Some(30)),
            echo(60, None),
            echo(70, Some(34)),
            echo(80, Some(36)),
            echo(90, Some(25)), // Behind what is left of the queue.
            echo(130, Some(10)),
        ];
        let load = LoadTime {
            began: millis(30),
            from: millis(30),
            to: millis(85),
            settled: Some(millis(125)),
        };
        let report = EchoReport::from_echoes(&echoes, load);
        let counts =
            [report.before, report.during, report.after].map(|phase| (phase.sent, phase.lost));
        assert_eq!(counts, [(3, 1), (4, 1), (1, 0)]);
        assert_eq!(report.before.jitter, Some(millis(4)));
        assert_eq!(report.during.jitter, Some(millis(3)));
        assert_eq!(report.after.jitter, None);
        let during = report.during.rtt.unwrap();
        assert_eq!(
            (during.count, during.min, during.median, during.max),
            (3, millis(30), millis(34), millis(36))
        );
        assert_eq!(report.during.host.unwrap().median, Span::from_micros(70));
        assert_eq!(report.samples, echoes);
        let rtt = RttReport::of_echoes(RttMethod::Icmp, &echoes, load, Some(millis(99)), vec![]);
        assert_eq!(
            rtt.idle.map(|idle| (idle.count, idle.median)),
            Some((3, millis(10)))
        );
        assert_eq!(
            rtt.inflation.map(|inflation| inflation.added),
            Some(millis(24))
        );
        assert_eq!(rtt.responsiveness.unwrap().by_load, None);
        let unseen = RttReport::of_echoes(
            RttMethod::Icmp,
            &echoes[5..8],
            load,
            Some(millis(12)),
            vec![millis(40)],
        );
        assert_eq!(
            unseen.idle.map(|idle| (idle.count, idle.median)),
            Some((1, millis(12)))
        );
        assert_eq!(unseen.responsiveness.unwrap().by_load, Some(1_500));
        assert_eq!(
            rtt.loaded_after(millis(30)),
            Some(millis(34)),
            "too few were sent since then"
        );
        let later = EchoReport::from_echoes(
            &echoes,
            LoadTime {
                from: millis(65),
                settled: None,
                ..load
            },
        );
        assert_eq!((later.during.sent, later.after), (2, EchoPhase::default()));
    }

    #[test]
    fn inflation_is_between_medians() {
        let of = |rtts: [u64; 3]| RttStats::from_samples(rtts.map(millis).to_vec()).unwrap();
        let inflation = Inflation::from_stats(&of([50, 50, 51]), &of([90, 100, 130]));
        assert_eq!(
            inflation,
            Inflation {
                added: millis(50),
                ratio: Ratio::new(2.0)
            }
        );
        let none = Inflation::from_stats(&of([50, 50, 51]), &of([25, 25, 25]));
        assert_eq!((none.added, none.ratio), (Span::ZERO, Ratio::new(0.5)));
    }

    #[test]
    fn responsiveness_is_the_mean_of_two_rates_without_the_slowest_round_trips() {
        // 19 of 20 count: 100 ms by echo, which is 600 a minute; 200 ms within, which is 300.
        let with_outlier = |rtt| [vec![millis(rtt); 19], vec![millis(5_000)]].concat();
        assert_eq!(
            Responsiveness::from_rtts(with_outlier(100), with_outlier(200)),
            Some(Responsiveness {
                per_minute: 450,
                by_echo: Some(600),
                by_load: Some(300)
            })
        );
        assert_eq!(
            Responsiveness::from_rtts(vec![millis(80), millis(120)], vec![])
                .map(|known| (known.per_minute, known.by_load)),
            Some((750, None)),
            "95 % of two is one"
        );
        assert_eq!(Responsiveness::from_rtts(vec![], vec![]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_was_seen_adds_up(
            seen in prop::collection::vec((0..100_000_u64, prop::option::of(0..10_000_u64)), 0..1_200),
            times in (0..100_000_u64, 0..100_000_u64, 0..100_000_u64, prop::option::of(0..100_000_u64)),
        ) {
            let mut echoes: Vec<Echo> = seen.into_iter().map(|(at, rtt)| echo(at, rtt)).collect();
            echoes.sort_by_key(|echo| echo.at);
            let (began, from, to, settled) = times;
            let load = LoadTime {
                began: millis(began),
                from: millis(from),
                to: millis(to),
                settled: settled.map(millis),
            };
            let report = EchoReport::from_echoes(&echoes, load);
            prop_assert!(report.samples.len() <= EchoReport::MAX_SAMPLES);
            for phase in [report.before, report.during, report.after] {
                prop_assert!(phase.sent <= echoes.len() as u64);
                prop_assert_eq!(phase.sent - phase.lost, phase.rtt.map_or(0, |rtt| rtt.count));
                if let (Some(rtt), Some(jitter)) = (phase.rtt, phase.jitter) {
                    prop_assert!(jitter <= rtt.max.saturating_sub(rtt.min));
                    let order = [rtt.min, rtt.median, rtt.p90, rtt.p99, rtt.max];
                    prop_assert!(order.is_sorted());
                }
            }
        }

        #[test]
        fn responsiveness_lies_between_the_slowest_and_the_fastest(
            by_echo in prop::collection::vec(1..10_000_u64, 1..200),
            by_load in prop::collection::vec(1..10_000_u64, 0..200),
        ) {
            let all: Vec<u64> = by_echo.iter().chain(&by_load).copied().collect();
            let [least, most] = [all.iter().min(), all.iter().max()].map(|rtt| *rtt.unwrap());
            let spans = |rtts: Vec<u64>| rtts.into_iter().map(millis).collect();
            let rate = Responsiveness::from_rtts(spans(by_echo), spans(by_load)).unwrap().per_minute as f64;
            prop_assert!(rate <= 60_000.0 / least as f64 + 1.0 && rate >= 60_000.0 / most as f64 - 1.0);
        }
    }
}
