//! The plan, of `cases/lab.toml`: cases with one planted limit each.

use std::collections::BTreeMap;
use std::fmt;

use fullpipe_model::predict;
use fullpipe_record::{
    Buffer, Change, Direction, HostSettings, LegalVerdict, Limit, Path, Request, Writer,
};
use fullpipe_scenario::{PathSpec, parse_path_flag};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Deserialize;

use super::plant::Plant;
use crate::process::RunError;

const PLAN: &str = include_str!("../../cases/lab.toml");

/// A transfer with one planted limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// Name of the expected verdict and the parameters of this variant:
    /// `receive-window/so-rcvbuf 20M×150ms cubic`.
    pub(crate) name: String,
    /// Verdict that the diagnosis must reach, because the case causes this limit on purpose.
    pub(crate) expected: LegalVerdict,
    /// The path between the hosts.
    pub(crate) path: Path,
    /// Changes of this machine's settings at the host that sends.
    pub(crate) sender: Vec<Change>,
    /// Changes at the host that receives.
    pub(crate) receiver: Vec<Change>,
    /// The load.
    pub(crate) request: Request,
    /// The plant, where path, settings and load do not plant the limit.
    pub(crate) plant: Option<Plant>,
}

/// Cases of a short bench: one of each kind, and a middlebox.
const SHORT: [&str; 12] = [
    "receive-window/tcp-rmem-max 100M×40ms cubic",
    "receive-window/window-scale-stripped 100M×40ms cubic",
    "receiver-application/slow-reader 100M×40ms cubic",
    "send-buffer/tcp-wmem-max 100M×40ms cubic",
    "sender-application/rate-limited 100M×40ms bbr",
    "congestion-window/ramp-up 100M×150ms cubic",
    "capacity/link 100M×40ms bbr",
    "loss/random 100M×40ms cubic",
    "pacing/max-pacing-rate 100M×40ms cubic",
    "cpu/stolen 20M×40ms cubic sender",
    "mtu/mss-clamped 12M×25ms cubic",
    "application-window/ssh-channel 200M×150ms cubic",
];

/// Verdicts with ceilings that follow from figures, which are drawn from a seed.
const DRAWN: [&str; 6] = [
    "receive-window/so-rcvbuf",
    "send-buffer/tcp-wmem-max",
    "capacity/link",
    "sender-application/rate-limited",
    "loss/random",
    "pacing/max-pacing-rate",
];

impl Case {
    /// Returns whether it has nothing that virtual time lacks: no processor, and nothing that is
    /// planted in a host.
    pub(crate) fn is_modelled(&self) -> bool {
        self.plant.is_none() && self.expected.limit_kind() != Limit::Cpu
    }

    /// Returns whether a short bench runs it.
    pub(crate) fn is_short(&self) -> bool {
        SHORT.contains(&self.name.as_str())
    }
}

/// The file of the plan.
#[derive(Deserialize)]
struct Plan {
    ways: BTreeMap<String, [Way; 3]>,
    planted: Vec<PlantedVerdict>,
    /// Verdicts, or their kinds, and the reason why they are not planted.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test reads it"))]
    unplanted: BTreeMap<String, String>,
}

/// How a verdict is planted; the keys are described in the file.
#[derive(Deserialize)]
struct PlantedVerdict {
    verdict: String,
    #[serde(default = "usual_ways")]
    ways: String,
    #[serde(default = "usual_controls")]
    controls: Vec<String>,
    #[serde(default)]
    many: bool,
    #[serde(flatten)]
    common: toml::Table,
    #[serde(default = "one_variant")]
    variants: Vec<toml::Table>,
}

fn usual_ways() -> String {
    "usual".to_owned()
}

fn usual_controls() -> Vec<String> {
    ["cubic", "bbr"].map(str::to_owned).to_vec()
}

fn one_variant() -> Vec<toml::Table> {
    vec![toml::Table::new()]
}

/// The keys of a case.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the table")]
struct Variant {
    suffix: String,
    mbps: Option<u64>,
    path: String,
    spared: Option<String>,
    spared_path: String,
    only_for: Option<Direction>,
    asked_by: Option<String>,
    is_served: bool,
    window: Option<f64>,
    buffer: Option<f64>,
    wmem: Option<f64>,
    rmem: Option<f64>,
    rmem_mib: Option<u64>,
    scales: Option<bool>,
    rate: Option<f64>,
    pacing: Option<f64>,
    pacing_of_path: Option<f64>,
    block: Option<u64>,
    block_ms: Option<u64>,
    seconds: Option<u64>,
    round_trips: Option<f64>,
    min_seconds: u64,
    interval_of_round_trip: bool,
    streams: Option<u16>,
    writer: Option<Writer>,
    rx_copy: bool,
    sendfile: bool,
    plant: Option<Plant>,
}

/// A path that a limit is planted on, in Mbit/s and milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Way(u64, u64);

/// Share of what the path carries that a planted limit leaves, if not said otherwise.
const LEFT: f64 = 0.45;
/// The same where chance decides: so little that a test sees many losses.
const LEFT_BY_CHANCE: f64 = 0.2;

/// Rate of a program that works on each of its blocks with the whole of a processor.
const WHOLE_PROCESSOR: BitRate = BitRate::from_mbps(40);
/// Share of a quota that samples and the calls themselves take.
const QUOTA_OVERHEAD: f64 = 0.01;

impl Case {
    /// Returns the rate that the limit leaves.
    fn rate_left(&self) -> BitRate {
        self.path.forward.rate.unwrap_or_default().scale_by(LEFT)
    }

    /// Returns the time that something must take of each block, so that the program moves what the
    /// limit leaves: of each stream, or with `is_alone` of all together.
    pub(crate) fn time_of_block(&self, is_alone: bool) -> Span {
        let streams = if is_alone { 1 } else { self.request.streams };
        let part = self.rate_left().scale_by(1.0 / f64::from(streams));
        part.time_for(self.request.block)
    }

    /// Returns the share of a processor that leaves so much of a program's rate, and the time of
    /// its work on a block with the whole processor.
    pub(crate) fn quota(&self) -> (Ratio, Span) {
        let share = self.rate_left().relative_to(WHOLE_PROCESSOR) + QUOTA_OVERHEAD;
        (
            Ratio::new(share),
            WHOLE_PROCESSOR.time_for(self.request.block),
        )
    }
}

impl Way {
    fn rate(self) -> BitRate {
        BitRate::from_mbps(self.0)
    }

    fn rtt(self) -> Span {
        Span::from_millis(self.1)
    }

    /// This share of bandwidth × round-trip time.
    fn bdp(self, share: f64) -> ByteCount {
        self.rate().bytes_in(self.rtt()).scale_by(share)
    }

    fn path(self, more: &str) -> Result<Path, RunError> {
        let separator = if more.is_empty() { "" } else { "," };
        let text = format!("rate={}M,rtt={}ms{separator}{more}", self.0, self.1);
        parse_path_flag(&text, &PathSpec::demo_path()).map_err(RunError::failed)
    }

    /// Returns a delay that is 25 ms longer for one and a half round trips, and then as it was, in
    /// turn, while slow start lasts: `HyStart` ends it where all round trips of a round are longer
    /// by an eighth, 16 ms at most.
    fn wavering(self) -> String {
        const LONGER: u64 = 25;
        const UNTIL: u64 = 6000;
        let (least, phase) = (self.1 / 2, self.1 * 3 / 2);
        let delay = |turn: u64| least + LONGER * (turn % 2);
        let turns =
            (1..=UNTIL / phase).map(|turn| format!("{}ms delay={}ms", turn * phase, delay(turn)));
        format!("changes={}", turns.collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M×{}ms", self.0, self.1)
    }
}

/// A place in the plan, from which cases are made.
#[derive(Clone, Copy)]
struct Spot<'p> {
    verdict: LegalVerdict,
    way: Way,
    control: &'p str,
    streams: u16,
    direction: Direction,
    /// Share of what the path carries that the limit leaves to a stream.
    left: f64,
    left_by_chance: f64,
}

impl Plan {
    fn read() -> Result<Self, RunError> {
        toml::from_str(PLAN).map_err(RunError::failed)
    }

    fn ways(&self, planted: &PlantedVerdict) -> Result<[Way; 3], RunError> {
        let ways = self.ways.get(&planted.ways);
        ways.copied()
            .ok_or_else(|| RunError::Failed(format!("there are no ways `{}`", planted.ways)))
    }
}

impl PlantedVerdict {
    /// Returns one upload over a way.
    fn spot<'p>(&'p self, way: Way, control: &'p str) -> Result<Spot<'p>, RunError> {
        let verdict = LegalVerdict::from_name(&self.verdict);
        let unknown = || RunError::Failed(format!("there is no verdict `{}`", self.verdict));
        Ok(Spot {
            verdict: verdict.ok_or_else(unknown)?,
            way,
            control,
            streams: 1,
            direction: Direction::Upload,
            left: LEFT,
            left_by_chance: LEFT_BY_CHANCE,
        })
    }

    /// Returns the cases at a spot.
    fn cases(&self, spot: Spot<'_>) -> Result<Vec<Case>, RunError> {
        let mut cases = Vec::new();
        for variant in &self.variants {
            let mut keys = self.common.clone();
            keys.extend(variant.clone());
            let variant: Variant = keys.try_into()?;
            cases.extend(variant.case(spot)?);
        }
        Ok(cases)
    }
}

impl Variant {
    /// Returns the case at a spot; `None` if the spot has none.
    fn case(self, spot: Spot<'_>) -> Result<Option<Case>, RunError> {
        let direction = match self.asked_by.as_deref() {
            Some("either") if spot.control == "cubic" => Direction::Upload,
            Some("either") => Direction::Download,
            Some("receiver") if spot.direction == Direction::Upload => Direction::Download,
            _ => spot.direction,
        };
        let asked = if self.asked_by.as_deref() == Some("receiver") {
            spot.direction
        } else {
            direction
        };
        let is_elsewhere = self.mbps.is_some_and(|mbps| mbps != spot.way.0);
        if is_elsewhere || self.only_for.is_some_and(|only| only != asked) {
            return Ok(None);
        }
        let spot = Spot { direction, ..spot };
        let mut case = spot.bare(&self.suffix)?;
        case.path = spot.way.path(&spot.filled(&self.path)?)?;
        let spared = spot.way.path(&self.spared_path)?;
        match self.spared.as_deref() {
            Some("forward") => case.path.forward = spared.forward,
            Some(_) => case.path.reverse = spared.reverse,
            None => {}
        }
        self.change_hosts(&mut case, spot);
        self.change_request(&mut case.request, spot);
        case.plant = match self.plant {
            Some(Plant::Prepared(host, command)) => {
                Some(Plant::Prepared(host, spot.filled(&command)?))
            }
            plant => plant,
        };
        Ok(Some(case))
    }

    fn change_hosts(&self, case: &mut Case, spot: Spot<'_>) {
        let bdp = |share: f64| spot.way.bdp(spot.left * share);
        if let Some(share) = self.wmem {
            case.sender = vec![Change::TcpWmemMax(bdp(share))];
        }
        if let Some(share) = self.rmem {
            case.receiver = vec![Change::TcpRmemMax(bdp(share))];
        }
        if let Some(mebibytes) = self.rmem_mib {
            case.receiver = vec![Change::TcpRmemMax(ByteCount::from_mib(mebibytes))];
        }
        let scaling = self.scales.map(Change::WindowScaling);
        case.receiver.extend(scaling);
    }

    fn change_request(&self, request: &mut Request, spot: Spot<'_>) {
        let rate = spot.way.rate();
        if let Some(share) = self.window {
            request.buffer = Buffer::Window(spot.way.bdp(spot.left * share));
        }
        if let Some(share) = self.buffer {
            request.buffer = Buffer::Request(spot.way.bdp(spot.left * share));
        }
        request.rate = self.rate.map(|share| rate.scale_by(spot.left * share));
        let pacing = self.pacing.map(|share| spot.left * share);
        request.pacing = pacing
            .or(self.pacing_of_path)
            .map(|share| rate.scale_by(share));
        let block = self.block.map(ByteCount::new);
        let filled = self.block_ms.map(Span::from_millis);
        let filled = filled.map(|pause| rate.scale_by(spot.left).bytes_in(pause));
        request.block = block.or(filled).unwrap_or(ByteCount::ZERO);
        let seconds = self.seconds.map(Span::from_secs);
        let trips = self.round_trips.map(|count| spot.way.rtt().scale_by(count));
        let duration = seconds.or(trips).unwrap_or(request.duration);
        request.duration = duration.max(Span::from_secs(self.min_seconds));
        if self.interval_of_round_trip {
            request.interval = spot.way.rtt().max(Span::from_millis(100));
        }
        if self.is_served {
            request.direction = Direction::Download;
        }
        request.streams = self.streams.unwrap_or(request.streams);
        request.writer = self.writer.unwrap_or(request.writer);
        // What is discarded in the kernel is taken in chunks of any size.
        request.rx_copy = self.rx_copy;
        request.sendfile = self.sendfile;
    }
}

impl Spot<'_> {
    /// Returns a transfer over the bare way that fills it: every buffer is large enough.
    fn bare(self, suffix: &str) -> Result<Case, RunError> {
        let Self {
            verdict,
            way,
            control,
            streams,
            direction,
            ..
        } = self;
        // A few round trips more than slow start and thirty of steady state.
        let seconds = way.rtt().scale_by(45.0).as_secs_f64().ceil().max(5.0);
        let mut words = vec![
            verdict.name().to_owned(),
            way.to_string(),
            control.to_owned(),
        ];
        if direction == Direction::Download {
            words.push("download".to_owned());
        }
        if streams > 1 {
            words.push(format!("{streams} streams"));
        }
        words.extend((!suffix.is_empty()).then(|| suffix.to_owned()));
        Ok(Case {
            name: words.join(" "),
            expected: verdict,
            path: way.path("")?,
            sender: vec![Change::TcpWmemMax(ByteCount::from_mib(32))],
            receiver: vec![Change::TcpRmemMax(ByteCount::from_mib(32))],
            request: Request {
                duration: Span::from_secs_f64(seconds),
                congestion: Some(control.to_owned()),
                discard: true,
                streams,
                direction,
                ..Request::default()
            },
            plant: None,
        })
    }

    /// Returns a text with the figures of the spot in place of their names.
    fn filled(self, text: &str) -> Result<String, RunError> {
        if !text.contains('{') {
            return Ok(text.to_owned());
        }
        let Way(mbps, rtt) = self.way;
        let saved = self
            .way
            .rate()
            .scale_by(1.0 - LEFT)
            .bytes_in(Span::from_secs(4));
        let lost: Vec<String> = (150..170).map(|packet| packet.to_string()).collect();
        let figures = [
            (
                "{kbit}",
                (self.way.rate().scale_by(LEFT).bps() / 1000).to_string(),
            ),
            ("{two_fifths}", (mbps * 400).to_string()),
            (
                "{bucket}",
                self.way.bdp(0.1).get().max(16 << 10).to_string(),
            ),
            ("{saved}", saved.get().to_string()),
            ("{field}", (self.way.bdp(self.left).get() >> 7).to_string()),
            ("{late}", (rtt * 5 / 2).to_string()),
            ("{lost}", lost.join(" ")),
            ("{wavering}", self.way.wavering()),
        ];
        let mut filled = text.to_owned();
        for (name, figure) in &figures {
            filled = filled.replace(name, figure);
        }
        if filled.contains('{') {
            let share = self.least_loss()?;
            filled = filled.replace("{loss}", &format!("{share:.7}"));
            let passes_from = (share * f64::from(u32::MAX)) as u32;
            filled = filled.replace("{passes_from}", &passes_from.to_string());
        }
        Ok(filled)
    }

    /// Returns the least loss, in steps of a tenth, that leaves no more than the share of what the
    /// path carries.
    fn least_loss(self) -> Result<f64, RunError> {
        const NO_MORE_THAN: f64 = 0.03;
        let host = HostSettings::of_linux_6_18();
        let case = self.bare("")?;
        let mut share = 1e-6;
        loop {
            let path = self.way.path(&format!("loss={share:.7}"))?;
            let expected = predict(&path, &host, &host, &case.request);
            let rate = |kind| {
                let ceiling = expected.find_ceiling(kind);
                ceiling.map_or(BitRate::ZERO, |ceiling| ceiling.kernel_model)
            };
            let left = rate(Limit::Capacity).scale_by(self.left_by_chance);
            if share > NO_MORE_THAN || rate(Limit::Loss) <= left {
                return Ok(share);
            }
            share *= 1.1;
        }
    }
}

/// Returns every case: the plan, and what is drawn from `seed`.
///
/// # Errors
/// Fails if a path of the plan cannot be, which is a mistake in the plan.
pub(crate) fn cases(seed: u64) -> Result<Vec<Case>, RunError> {
    let plan = Plan::read()?;
    let mut cases = Vec::new();
    for planted in &plan.planted {
        let ways = plan.ways(planted)?;
        for control in &planted.controls {
            for way in ways {
                cases.extend(planted.cases(planted.spot(way, control)?)?);
            }
        }
        if planted.many {
            cases.extend(many(planted, planted.spot(ways[1], "reno")?)?);
        }
    }
    cases.extend(drawn(&plan, seed)?);
    Ok(cases)
}

/// Returns `count` cases for virtual time, each verdict in turn over a way drawn from `seed`
/// between the least and the largest of its own, in rate and in bandwidth × round-trip time.
///
/// # Errors
/// Fails if a path of the plan cannot be, which is a mistake in the plan.
pub(crate) fn drawn_ways(seed: u64, count: usize) -> Result<Vec<Case>, RunError> {
    let (plan, mut random) = (Plan::read()?, Pcg64Mcg::seed_from_u64(seed));
    let mut cases = Vec::new();
    while cases.len() < count {
        for planted in &plan.planted {
            let way = drawn_way(plan.ways(planted)?, &mut random);
            let control = random.next_u64() as usize % planted.controls.len();
            let drawn = planted.cases(planted.spot(way, &planted.controls[control])?)?;
            cases.extend(drawn.into_iter().filter(Case::is_modelled));
        }
    }
    cases.truncate(count);
    for (number, case) in cases.iter_mut().enumerate() {
        case.name = format!("{} {number}", case.name);
    }
    Ok(cases)
}

/// Returns a way between these.
fn drawn_way(ways: [Way; 3], random: &mut Pcg64Mcg) -> Way {
    let mut between = |all: [u64; 3]| {
        let [low, high] = [all.iter().min(), all.iter().max()];
        let [low, high] = [low, high].map(|one| one.copied().unwrap_or(1) as f64);
        log_uniform(random, low, high)
    };
    let mbps = between(ways.map(|way| way.0));
    let product = between(ways.map(|way| way.0 * way.1));
    let rtt = (product / mbps).round().clamp(3.0, 300.0);
    Way(mbps.round() as u64, rtt as u64)
}

/// Returns a number between `low` and `high`, as likely in each part of as large a ratio.
fn log_uniform(random: &mut Pcg64Mcg, low: f64, high: f64) -> f64 {
    let share = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    low * (high / low).powf(share)
}

/// Four streams of the far end's, where the limit holds four as well as one.
fn many(planted: &PlantedVerdict, spot: Spot<'_>) -> Result<Vec<Case>, RunError> {
    const STREAMS: u16 = 4;
    let mut cases = planted.cases(Spot {
        streams: STREAMS,
        direction: Direction::Download,
        left: LEFT / f64::from(STREAMS),
        ..spot
    })?;
    // Some send one file, are of a protocol that only uploads, or are many already.
    cases.retain(|case| {
        let is_one = matches!(
            case.plant,
            Some(Plant::SlowFile(_) | Plant::Iperf2 | Plant::CrossTraffic(_))
        );
        case.request.streams == STREAMS && case.request.writer != Writer::Blocking && !is_one
    });
    Ok(cases)
}

/// Cases with ceilings that follow from figures, with figures drawn from `seed`.
fn drawn(plan: &Plan, seed: u64) -> Result<Vec<Case>, RunError> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut between = |low, high| log_uniform(&mut random, low, high);
    let controls = usual_controls();
    let mut cases = Vec::new();
    for number in 0..12 {
        let mbps = between(10.0, 400.0) as u64;
        // No more in flight than the ways of the plan have, and no less than a window that scales.
        let rtt = (between(2e5, 1e6) * 8.0 / (mbps as f64 * 1e3)).clamp(8.0, 200.0) as u64;
        let left = between(0.2, 0.6);
        let wanted = DRAWN[number % DRAWN.len()];
        let planted = plan.planted.iter().find(|one| one.verdict == wanted);
        let planted = planted.ok_or_else(|| RunError::failed("a drawn verdict is not planted"))?;
        let spot = Spot {
            left,
            left_by_chance: left / 2.0,
            ..planted.spot(Way(mbps, rtt), &controls[number % 2])?
        };
        // The first variant is the plain one.
        for mut case in planted.cases(spot)?.into_iter().take(1) {
            case.name = format!("{} drawn {left:.2}", case.name);
            cases.push(case);
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_model::application::find_application;
    use fullpipe_record::At;
    use std::collections::{BTreeMap, BTreeSet};

    fn of_label(cases: &[Case]) -> BTreeMap<String, Vec<&Case>> {
        let mut by_label: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
        for case in cases {
            by_label
                .entry(case.expected.name().to_owned())
                .or_default()
                .push(case);
        }
        by_label
    }

    #[test]
    fn every_cause_has_three_variants_far_apart() {
        for (label, cases) in of_label(&cases(1).unwrap()) {
            // Drawn ones come on top.
            let cases: Vec<_> = cases
                .into_iter()
                .filter(|case| !case.name.contains("drawn"))
                .collect();
            let rates: BTreeSet<u64> = cases
                .iter()
                .filter_map(|case| Some(case.path.forward.rate?.bps()))
                .collect();
            let trips: BTreeSet<u64> = cases
                .iter()
                .map(|case| case.path.rtt().as_micros())
                .collect();
            assert!(cases.len() >= 3, "{label}: {}", cases.len());
            for figures in [rates, trips] {
                let (least, most) = (figures.first().unwrap(), figures.last().unwrap());
                assert!(most >= &(least * 3), "{label}: {figures:?}");
            }
        }
    }

    #[test]
    fn a_verdict_without_a_case_says_why() {
        let (plan, planned) = (Plan::read().unwrap(), cases(1).unwrap());
        for verdict in LegalVerdict::ALL {
            let name = verdict.name();
            let has_cases = planned.iter().any(|case| case.expected.name() == name);
            let kind = name.split('/').next().unwrap();
            let reason = plan.unplanted.get(name).or(plan.unplanted.get(kind));
            assert!(
                has_cases || reason.is_some_and(|why| why.contains(' ')),
                "{name}"
            );
            assert!(!has_cases || !plan.unplanted.contains_key(name), "{name}");
        }
        assert_eq!(planned.len(), 240);
    }

    #[test]
    fn an_ssh_channel_leaves_much_of_its_path() {
        let host = HostSettings::of_linux_6_18();
        let all = cases(1).unwrap();
        let over_ssh = all
            .iter()
            .filter(|case| case.plant == Some(Plant::SshChannel));
        assert_eq!(over_ssh.clone().count(), 3);
        for case in over_ssh {
            let carried = predict(&case.path, &host, &host, &case.request)
                .find_ceiling(Limit::Capacity)
                .unwrap()
                .kernel_model;
            let let_through = find_application("ssh")
                .unwrap()
                .window_ceiling(case.path.rtt())
                .unwrap();
            assert!(
                let_through.relative_to(carried) <= 0.6,
                "{}: {let_through} of {carried}",
                case.name
            );
        }
    }

    #[test]
    fn the_planted_ceiling_is_well_below_every_other() {
        let mut known = 0;
        for case in cases(1).unwrap() {
            let host = HostSettings::of_linux_6_18();
            let end = |changes: &[Change]| host.changed_by(changes);
            let got = predict(
                &case.path,
                &end(&case.sender),
                &end(&case.receiver),
                &case.request,
            );
            let Some(planted) = got.find_ceiling(case.expected.limit_kind()) else {
                continue;
            };
            // What is asked of both buffers binds both; a plant that the model does not know leaves
            // other ceilings alone.
            if matches!(
                case.plant,
                Some(Plant::Iperf2 | Plant::CrossTraffic(_) | Plant::Prepared(..))
            ) {
                continue;
            }
            // The model lets a policer pass its rate from the first byte; a bucket that lasts, it does
            // not know.
            let is_saved_up = case.expected.name() == "capacity/allowance";
            if case.expected.limit_place() == At::Middlebox || is_saved_up {
                continue;
            }
            known += 1;
            for other in got
                .ceilings
                .iter()
                .filter(|ceiling| ceiling.kind != planted.kind)
            {
                let share = planted.kernel_model.relative_to(other.kernel_model);
                assert!(
                    share <= 0.75,
                    "{}: {share:.2} of {}",
                    case.name,
                    other.kind.name()
                );
            }
        }
        assert!(known > 50, "{known}");
    }

    #[test]
    fn the_same_seed_draws_the_same_cases() {
        assert_eq!(cases(7).unwrap(), cases(7).unwrap());
        assert_ne!(cases(7).unwrap(), cases(8).unwrap());
    }

    #[test]
    fn a_short_bench_has_one_of_each_kind() {
        let cases = cases(1).unwrap();
        let kinds = |short: bool| -> BTreeSet<Limit> {
            cases
                .iter()
                .filter(|case| case.is_short() || !short)
                .map(|case| case.expected.limit_kind())
                .collect()
        };
        assert_eq!(kinds(true), kinds(false));
        assert_eq!(
            cases.iter().filter(|case| case.is_short()).count(),
            SHORT.len()
        );
    }

    #[test]
    fn names_are_unique() {
        let cases = cases(1).unwrap();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
    }
}
