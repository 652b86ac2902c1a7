//! The path that a measurement had, as far as it shows.

use fullpipe_diagnose::diagnose;
use fullpipe_model::framing;
use fullpipe_record::{Cause, Framing, Inferred, IpVersion, TcpInfo, least_rtt};
use fullpipe_scenario::{PathSpec, ReadFile, parse_path_flag_with};
use fullpipe_units::count_noun;

use crate::prelude::*;

/// Returns the path of `measurement`, with what was inferred or assumed of it. `stated` has keys of
/// `--path`, which are not inferred.
///
/// # Errors
/// A sentence that names what neither the measurement shows nor `stated` has.
pub(crate) fn path_of(
    measurement: &Measurement,
    stated: Option<&str>,
    files: ReadFile<'_>,
) -> Result<(Path, Vec<Inferred>), String> {
    let stated: Vec<&str> = stated
        .into_iter()
        .flat_map(|text| text.split(','))
        .collect();
    let names: Vec<&str> = stated
        .iter()
        .filter_map(|pair| pair.split('=').next())
        .map(str::trim)
        .collect();
    let seen = PathInference::from_measurement(measurement);
    let mut inferred = Vec::new();
    for key in KEYS {
        if !names.contains(&key) {
            let (value, why) = seen.infer_key(key)?;
            inferred.push(Inferred {
                key: key.to_owned(),
                value,
                why,
            });
        }
    }
    let pairs = inferred
        .iter()
        .map(|one| format!("{}={}", one.key, one.value));
    let flag: Vec<String> = pairs
        .chain(stated.iter().map(|pair| (*pair).to_owned()))
        .collect();
    let path = parse_path_flag_with(&flag.join(","), &PathSpec::demo_path(), files);
    Ok((path.map_err(|error| format!("--path: {error}"))?, inferred))
}

/// Returns no loss of the path, with its reason: a queue dropped what was sent again.
fn dropped_at(again: SegCount, queue: &str) -> (String, String) {
    let again = count_noun(again, "segment");
    let why = format!("{again} sent again: taken for dropped at the {queue}");
    ("0".to_owned(), why)
}

/// Returns the limit of a measurement as it is recorded, or else as it is judged now.
pub(crate) fn limit_of(measurement: &Measurement) -> Verdict {
    measurement.limit.clone().unwrap_or_else(|| {
        diagnose(&Evidence::from_measurement(
            measurement,
            None,
            Framing::default(),
        ))
    })
}

/// Fails if `verdict` is of a limit that is not modelled.
///
/// # Errors
/// A sentence that names it.
pub(crate) fn check_modelled(verdict: &Verdict, request: &Request) -> Result<(), String> {
    let is_modelled = match (verdict.kind, verdict.cause) {
        (Limit::SenderApplication, cause) => cause == Cause::RateLimited && request.rate.is_some(),
        (Limit::Pacing, cause) => cause != Cause::Qdisc,
        (Limit::Capacity, cause) => cause != Cause::Shared,
        (Limit::Cpu | Limit::ReceiverApplication | Limit::ApplicationWindow | Limit::Mtu, _) => {
            false
        }
        _ => true,
    };
    if is_modelled {
        Ok(())
    } else {
        let name = verdict.name();
        Err(format!(
            "the transfer was limited by {name}, which is not modelled"
        ))
    }
}

/// The keys of a path that are inferred.
const KEYS: [&str; 5] = ["rate", "rtt", "queue", "loss", "mtu"];

/// A measurement, and what follows from it.
struct PathInference<'m> {
    measurement: &'m Measurement,
    verdict: Verdict,
    capacity: Option<BitRate>,
}

impl<'m> PathInference<'m> {
    fn from_measurement(measurement: &'m Measurement) -> Self {
        let verdict = limit_of(measurement);
        let mut seen = Self {
            measurement,
            verdict,
            capacity: None,
        };
        let is_full = seen.verdict.kind == Limit::Capacity;
        seen.capacity = is_full.then(|| seen.on_wire());
        seen
    }

    /// Returns the value of a key, and the reason for it.
    fn infer_key(&self, key: &str) -> Result<(String, String), String> {
        match key {
            "rate" => self.path_rate(),
            "rtt" => self.path_rtt(),
            "queue" => Ok(self.path_queue()),
            "loss" => self.path_loss(),
            _ => Ok(self.path_mtu()),
        }
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.measurement.sending_end().samples.iter()
    }

    fn latest_value<V>(&self, of: impl Fn(&TcpInfo) -> Option<V>) -> Option<V> {
        self.samples().filter_map(|sample| of(&sample.tcp)).last()
    }

    /// Returns the steady rate as the link counts it.
    fn on_wire(&self) -> BitRate {
        let summary = &self.measurement.summary;
        let payload = summary.steady_or_mean_rate();
        let timestamps = self.latest_value(|tcp| tcp.timestamps).unwrap_or(true);
        let headers = framing::tcp_headers(IpVersion::V4, timestamps);
        let efficiency =
            framing::payload_share(self.mss(), headers, Framing::Ethernet.packet_overhead());
        payload.scale_by(1.0 / efficiency.get())
    }

    fn mss(&self) -> ByteCount {
        const USUAL: ByteCount = ByteCount::new(1448);
        self.latest_value(|tcp| tcp.snd_mss)
            .filter(|mss| *mss > ByteCount::ZERO)
            .unwrap_or(USUAL)
    }

    fn path_rate(&self) -> Result<(String, String), String> {
        let Some(rate) = self.capacity else {
            return Err(format!(
                "the rate of the path does not show, as the transfer was limited by {}: state it, for example with \
                 --path rate=1G",
                self.verdict.kind.name()
            ));
        };
        let why = "the link was full at this rate, as Ethernet counts it";
        Ok((format!("{}bit/s", rate.bps()), why.to_owned()))
    }

    fn idle_rtt(&self) -> Option<Span> {
        let idle = self.measurement.rtt.idle.map(|rtt| rtt.min);
        idle.or_else(|| least_rtt(&self.measurement.sending_end().samples))
            .filter(|rtt| *rtt > Span::ZERO)
    }

    fn path_rtt(&self) -> Result<(String, String), String> {
        let missing = "the round-trip time of the idle path is not in the record: state it, as --path rtt=20ms";
        let rtt = self.idle_rtt().ok_or(missing)?;
        Ok((
            format!("{}ns", rtt.as_nanos()),
            "the least round trip of the idle path".to_owned(),
        ))
    }

    fn retransmitted_segments(&self) -> Option<SegCount> {
        self.measurement.summary.retransmits
    }

    fn path_queue(&self) -> (String, String) {
        match self.queue_delay() {
            Ok(grown) => (
                format!("{}ns", grown.as_nanos()),
                "round trips grew by so much under load".to_owned(),
            ),
            Err(why) => ("1bdp".to_owned(), format!("assumed: {why}")),
        }
    }

    /// Returns the time by which the full queue makes round trips longer, or the reason for which
    /// that does not show.
    fn queue_delay(&self) -> Result<Span, &'static str> {
        if self.capacity.is_none() {
            return Err("the transfer did not fill it");
        }
        let loaded = self.measurement.rtt.loaded.map(|rtt| rtt.p99);
        let (loaded, idle) = loaded
            .zip(self.idle_rtt())
            .ok_or("round trips under load are not in the record")?;
        if self.retransmitted_segments() == Some(SegCount::ZERO) {
            return Err("nothing was dropped, so it does not show");
        }
        Some(loaded.saturating_sub(idle))
            .filter(|grown| *grown > Span::ZERO)
            .ok_or("round trips under load are as short as those of the idle path")
    }

    fn path_loss(&self) -> Result<(String, String), String> {
        let missing = "the sender did not state its retransmissions, so that the loss of the path does not show: state \
                       it, as --path loss=0";
        let again = self.retransmitted_segments().ok_or(missing)?;
        match (self.verdict.kind, self.verdict.cause) {
            (Limit::Capacity, _) => Ok(dropped_at(again, "full queue")),
            (Limit::Loss, Cause::Policer) => Err(
                "the bucket of a policer does not show: state it, for example with \
                                                  --path 'policer=50Mbit/s 64KiB,loss=0'"
                    .to_owned(),
            ),
            (Limit::Loss, Cause::ShallowQueue) => Ok(dropped_at(again, "queue")),
            _ => {
                let sent = self
                    .measurement
                    .summary
                    .sent
                    .get()
                    .div_ceil(self.mss().get())
                    + again.get();
                let share = Ratio::from_quotient(again.get() as f64, sent.max(1) as f64);
                Ok((
                    share.get().to_string(),
                    format!("{again} of {sent} segments were sent again"),
                ))
            }
        }
    }

    fn path_mtu(&self) -> (String, String) {
        match self.latest_value(|tcp| tcp.path_mtu) {
            Some(mtu) => (
                mtu.get().to_string(),
                "the sender took it for that of the path".to_owned(),
            ),
            None => (
                "1500".to_owned(),
                "assumed: it is not in the record".to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::simulate_plan;
    use crate::target::Interrupt;
    use fullpipe_record::HostSettings;
    use fullpipe_scenario::parse_path_flag;
    use fullpipe_sim::SimulationPlan;
    use std::sync::atomic::AtomicBool;

    fn measured(path: &str) -> Measurement {
        let path = parse_path_flag(path, &PathSpec::demo_path()).unwrap();
        let host = HostSettings::of_linux_6_18();
        let request = Request {
            duration: Span::from_secs(5),
            ..Request::default()
        };
        simulate_plan(
            SimulationPlan::new(path, [host.clone(), host], request, 3),
            Interrupt(&AtomicBool::new(false)),
        )
        .unwrap()
    }

    fn no_files(_: &str) -> Result<String, String> {
        Err("no files".to_owned())
    }

    #[test]
    fn a_full_link_shows_its_rate_and_its_queue_and_what_it_dropped_is_no_loss() {
        let measurement = measured("rate=20M,rtt=20ms,queue=0.8bdp");
        let (path, inferred) = path_of(&measurement, None, &no_files).unwrap();
        let forward = &path.forward;
        assert!(
            (forward.rate.unwrap().as_mbps() / 20.0 - 1.0).abs() < 0.02,
            "{inferred:?}"
        );
        assert!(
            (forward.queue.unwrap().as_f64() / 40_000.0 - 1.0).abs() < 0.25,
            "{inferred:?}"
        );
        assert_eq!(
            (forward.loss, forward.mtu),
            (Some(Ratio::ZERO), ByteCount::new(1500))
        );
        assert_eq!(
            inferred
                .iter()
                .map(|one| one.key.as_str())
                .collect::<Vec<_>>(),
            KEYS
        );
    }

    #[test]
    fn random_loss_is_the_share_sent_again_and_the_rate_must_be_stated() {
        let measurement = measured("rate=100M,rtt=40ms,loss=2e-3");
        let refused = path_of(&measurement, None, &no_files).unwrap_err();
        assert!(refused.contains("limited by loss: state it"), "{refused}");
        let (path, inferred) = path_of(&measurement, Some("rate=100M"), &no_files).unwrap();
        let loss = path.forward.loss.unwrap().get();
        assert!((1e-3..4e-3).contains(&loss), "{inferred:?}");
        assert!(
            inferred.iter().all(|one| one.key != "rate") && inferred[1].why.starts_with("assumed"),
            "{inferred:?}"
        );
        let (stated, _) = path_of(&measurement, Some("rate=100M,loss=0"), &no_files).unwrap();
        assert_eq!(stated.forward.loss, Some(Ratio::ZERO));
    }

    #[test]
    fn limits_that_are_not_modelled_are_named() {
        let verdict = limit_of(&measured("rate=20M,rtt=20ms"));
        let request = Request::default();
        assert_eq!(check_modelled(&verdict, &request), Ok(()));
        let busy = Verdict {
            kind: Limit::Cpu,
            cause: Cause::System,
            ..verdict.clone()
        };
        let named = check_modelled(&busy, &request).unwrap_err();
        assert!(
            named.starts_with("the transfer was limited by cpu") && named.ends_with("not modelled"),
            "{named}"
        );
        let slow = Verdict {
            kind: Limit::SenderApplication,
            cause: Cause::RateLimited,
            ..verdict
        };
        assert!(check_modelled(&slow, &request).is_err());
        let asked = Request {
            rate: Some(BitRate::from_mbps(1)),
            ..request
        };
        assert_eq!(check_modelled(&slow, &asked), Ok(()));
    }
}
