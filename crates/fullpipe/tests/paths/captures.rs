//! Figures of captures against what the path did to the packets, as the lab wrote it next to the
//! files, and against those of other programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::oracles::{agrees_with_tcptrace, agrees_with_tshark, traced, tshark_fields};
use crate::common::{fullpipe, run};
use fullpipe_testkit::{document, load_slot, path, require, valid_within};
use serde_json::Value;
use tempfile::TempDir;

const TIMEOUT: u64 = 90;

/// Round-trip time of the path in seconds.
const RTT: f64 = 0.04;

/// Time for which a full packet is being sent: 1538 B at 40 Mbit/s, in seconds.
const FULL_PACKET: f64 = 0.000_308;

const PATH: &str = "name = \"true\"\ntitle = \"A path of a test\"\n\n\
                    [path]\nrate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1MiB\"\n";

/// A run of a scenario, with its captures.
struct Captured {
    folder: TempDir,
    report: Value,
}

impl Captured {
    /// Runs steps of these names, each of two seconds and with a line of its own. Packets are
    /// counted in any run.
    fn of(steps: &[(&str, &str)]) -> Self {
        let step = |(name, line): &(&str, &str)| {
            format!("\n[[step]]\nname = \"{name}\"\nduration = \"2s\"\n{line}\n")
        };
        let scenario = format!("{PATH}{}", steps.iter().map(step).collect::<String>());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("true.toml");
        fs::write(&file, &scenario).unwrap();
        let [file, captures] = [file.as_path(), folder.path()].map(|path| path.to_str().unwrap());
        let command = ["lab", "run", file, "--json", "--capture", captures];
        let report = document(&run(&mut fullpipe(&command), TIMEOUT))["lab"][0].clone();
        Self { folder, report }
    }

    /// The same, where times are judged.
    fn valid(steps: &[(&str, &str)]) -> Self {
        valid_within(3, || {
            let captured = Self::of(steps);
            let is_unfit = |step: &&Value| step["measured"].is_null();
            let steps = captured.report["steps"].as_array().unwrap().iter();
            let unfit = steps
                .filter(is_unfit)
                .map(|step| step["missed"].to_string())
                .collect();
            (captured, unfit)
        })
    }

    /// Returns a file of the last run of `step`, which is the valid one if any is.
    fn file(&self, step: &str, end: &str) -> PathBuf {
        let steps = self.report["steps"].as_array().unwrap();
        let runs = &steps.iter().find(|one| one["name"] == step).unwrap()["runs"];
        self.folder.path().join(format!(
            "true-{step}-{}-{end}",
            runs.as_array().unwrap().len()
        ))
    }

    fn step(&self, step: &str) -> Transfer {
        let files = ["sender.pcap", "receiver.pcap"].map(|end| self.file(step, end));
        let truth: Value =
            serde_json::from_str(&fs::read_to_string(self.file(step, "truth.json")).unwrap())
                .unwrap();
        assert_eq!(
            (&truth["kind"], truth["path_truth"]["capacity"].as_u64()),
            (&"path-truth".into(), Some(40_000_000))
        );
        Transfer {
            both: traced(&[&files[0], &files[1]]),
            alone: files.map(|file| traced(&[&file])),
            truth: truth["path_truth"].clone(),
        }
    }
}

/// The transfer of a step by its captures and by the truth.
struct Transfer {
    /// Both captures together; the connection with most data is the first of the pairs.
    both: Value,
    /// The capture of the sender, and that of the receiver.
    alone: [Value; 2],
    truth: Value,
}

impl Transfer {
    /// Returns the connection with most data in one of the captures.
    fn flow(&self, capture: usize) -> &Value {
        let number = &self.both["pairs"][0]["numbers"][capture];
        let flows = self.alone[capture]["flows"].as_array().unwrap();
        flows.iter().find(|flow| flow["number"] == *number).unwrap()
    }

    /// Returns a figure of what the sender sent, as one of the captures has it.
    fn sent(&self, capture: usize, figure: &str) -> u64 {
        self.flow(capture)["ends"][0][figure].as_u64().unwrap()
    }

    fn evidence(&self, capture: usize) -> &Value {
        &self.alone[capture]["transfers"][0]["diagnosis"]["evidence"]
    }

    /// Returns the data packets of that connection which had one of these fates.
    fn data_of(&self, fates: &[&str]) -> impl Iterator<Item = &Value> {
        let address = self.flow(0)["ends"][0]["address"].as_str().unwrap();
        let port: u64 = address.rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!(self.truth["directions"][0]["left_out"], 0);
        let fates: BTreeSet<String> = fates.iter().map(|&fate| fate.to_owned()).collect();
        self.truth["directions"][0]["packets"]
            .as_array()
            .unwrap()
            .iter()
            .filter(move |packet| {
                let segment = &packet["segment"];
                let has_data = segment["payload"].as_u64().is_some_and(|bytes| bytes > 0);
                has_data
                    && segment["ports"][0] == port
                    && fates.contains(packet["fate"].as_str().unwrap())
            })
    }

    /// Returns the bytes of data that the path lost.
    fn lost(&self) -> u64 {
        let lost = self.data_of(&["lost", "policed", "overflowed", "aqm-dropped"]);
        lost.map(|packet| packet["segment"]["payload"].as_u64().unwrap())
            .sum()
    }

    /// Asserts that one of the captures shows the round-trip time and the rate of the path, if it
    /// states one.
    fn times_and_rates_agree(&self, capture: usize) {
        let last = self.evidence(capture)["sender_samples"]
            .as_array()
            .unwrap()
            .last()
            .unwrap();
        let least = last["tcp"]["min_rtt"].as_f64().unwrap();
        let most = (RTT + FULL_PACKET) * 1.01;
        assert!((RTT * 0.99..most).contains(&least), "{least} s of {RTT} s");
        let bursts = &self.flow(capture)["ends"][0]["bursts"];
        let capacity = self.truth["capacity"].as_f64().unwrap();
        let error = bursts["rate"].as_f64().map(|rate| rate / capacity - 1.0);
        assert!(
            error.is_none_or(|error| error.abs() < 0.02),
            "{bursts} of {capacity}"
        );
        assert!(
            capture == 0 || error.is_some(),
            "the receiver sees the rate of the path: {}",
            self.flow(capture)
        );
    }

    /// Asserts that both captures show what the path lost, and each where it was taken.
    fn losses_agree(&self) {
        let lost = self.lost();
        let direction = &self.both["pairs"][0]["directions"][0];
        assert!(lost > 0, "nothing was lost");
        assert_eq!(direction["lost_bytes"], lost, "{direction}");
        let points = [0, 1].map(|capture| self.flow(capture)["point"].as_str().unwrap().to_owned());
        assert_eq!(points, ["first", "second"]);
        // What was lost is sent again, but for losses when the connection was closed; and what
        // comes twice was sent again though it was not lost.
        let unrepaired = self.sent(0, "unique_bytes") - self.sent(1, "unique_bytes");
        let again = self.sent(0, "retransmitted_bytes");
        assert_eq!(
            again + unrepaired,
            lost + self.sent(1, "retransmitted_bytes"),
            "{}",
            self.flow(0)
        );
    }
}

#[test]
fn losses_are_those_of_the_path_to_the_byte() {
    require!(Lab);
    let _slot = load_slot();
    let captured = Captured::of(&[
        ("random", "path = { loss = \"0.3%\" }"),
        ("queue", "path = { queue = \"100KiB\" }"),
        ("policer", "path = { policer = \"20Mbit/s 64KiB\" }"),
        ("codel", "path = { aqm = \"codel 5ms 100ms\" }"),
    ]);
    for step in ["random", "queue", "policer", "codel"] {
        let transfer = captured.step(step);
        transfer.losses_agree();
        transfer.times_and_rates_agree(1);
    }
    let queue = captured.step("queue");
    let full = |packet: &Value| {
        packet["queue"]
            .as_u64()
            .is_some_and(|bytes| (98_000..=102_400).contains(&bytes))
    };
    assert!(
        queue.data_of(&["overflowed"]).all(full),
        "the queue is full at each loss"
    );
}

/// Returns how many packets of the transfer brought data that was missing below others to the
/// receiver, and how many of those the path had held back, packet by packet.
fn late_and_overtaken(transfer: &Transfer, file: &Path) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap();
    let held_back: BTreeSet<(u32, u16)> = transfer
        .data_of(&["reordered"])
        .map(|packet| &packet["segment"])
        .map(|segment| {
            (
                number(&segment["sequence"]) as u32,
                number(&segment["identification"]) as u16,
            )
        })
        .collect();
    let (mut seen, mut highest, mut late, mut overtaken) = (BTreeSet::new(), None, 0, 0);
    let address = transfer.flow(1)["ends"][0]["address"].as_str().unwrap();
    let filter = format!(
        "tcp.srcport == {} && tcp.len > 0",
        address.rsplit(':').next().unwrap()
    );
    for [sequence, id] in tshark_fields(file, &filter, ["tcp.seq_raw", "ip.id"]) {
        let (sequence, id) = (
            sequence.parse::<u32>().unwrap(),
            u16::from_str_radix(&id[2..], 16).unwrap(),
        );
        if !seen.insert(sequence) {
            continue;
        }
        if highest.is_some_and(|highest: u32| sequence.wrapping_sub(highest).cast_signed() < 0) {
            late += 1;
            overtaken += u64::from(held_back.contains(&(sequence, id)));
        } else {
            highest = Some(sequence);
        }
    }
    (late, overtaken)
}

#[test]
fn packets_that_overtook_others_are_distinguished_from_repairs() {
    require!(Lab, Tshark);
    let _slot = load_slot();
    // Over a short round trip losses leave a rate at which many packets pass, and enough of them
    // are late.
    let captured = Captured::of(&[(
        "mixed",
        "path = { rtt = \"10ms\", loss = \"0.3%\", reorder = \"5% 3ms\" }",
    )]);
    let transfer = captured.step("mixed");
    transfer.losses_agree();
    let (late, overtaken) = late_and_overtaken(&transfer, &captured.file("mixed", "receiver.pcap"));
    assert!(
        late > 50 && (1..late).contains(&overtaken),
        "{late} late, {overtaken} overtaken"
    );
    assert_eq!(transfer.sent(1, "late_packets"), late);
    let reordered = transfer.sent(1, "reordered_packets");
    let wrong = reordered.abs_diff(overtaken);
    assert!(
        wrong as f64 <= 0.005 * late as f64,
        "{reordered} of {late} late packets, {overtaken} in truth"
    );
    assert_eq!(
        transfer.both["pairs"][0]["directions"][0]["reordered_packets"],
        reordered
    );
}

/// Returns the most in flight in each tenth of a second of the transfer's evidence, but for the
/// first.
fn flights(evidence: &Value) -> Vec<f64> {
    let mut most = Vec::new();
    for sample in evidence["sender_samples"].as_array().unwrap() {
        let bytes = |name: &str| sample["tcp"][name].as_f64().unwrap_or_default();
        let flight = bytes("bytes_sent") - bytes("bytes_acked") - bytes("bytes_retrans");
        let tenth = (sample["at"].as_f64().unwrap() * 10.0) as usize;
        most.resize(most.len().max(tenth + 1), 0.0_f64);
        most[tenth] = most[tenth].max(flight);
    }
    most.split_off(1)
}

/// Errors of the flights at the receiver by those at the sender, in ascending order.
fn errors(transfer: &Transfer) -> Vec<f64> {
    let [near, far] = [0, 1].map(|capture| flights(transfer.evidence(capture)));
    let mut errors: Vec<f64> = near
        .iter()
        .zip(&far)
        .map(|(near, far)| far / near - 1.0)
        .collect();
    errors.sort_unstable_by(f64::total_cmp);
    assert!(errors.len() > 15, "{errors:?}");
    errors
}

#[test]
fn every_edit_of_a_middlebox_is_named_with_its_field_and_direction() {
    require!(Lab);
    let _slot = load_slot();
    let captured = Captured::of(&[
        (
            "there",
            "path = { forward.edits = \"window-scale=2 strip-sack clamp-mss=1200 router=198.18.1.1\", \
             reverse.edits = \"strip-timestamps\" }",
        ),
        (
            "back",
            "path = { forward.edits = \"strip-timestamps router=198.18.1.1 router=198.18.1.2\", \
             reverse.edits = \"strip-window-scale strip-sack clamp-mss=1000\" }",
        ),
        (
            "window",
            "window = \"256KiB\"\npath = { reverse.edits = \"clamp-window=50B\" }",
        ),
    ]);
    for (step, routers) in [("there", [1, 0]), ("back", [2, 0]), ("window", [0, 0])] {
        let transfer = captured.step(step);
        for end in [0, 1] {
            let direction = &transfer.both["pairs"][0]["directions"][end];
            let fields = |value: &Value| {
                value
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(Value::to_string)
                    .collect::<Vec<_>>()
            };
            let edits = transfer.truth["directions"][end]["edits"]
                .as_array()
                .unwrap();
            assert!(
                edits.iter().all(|edit| edit["packets"].as_u64() > Some(0)),
                "{edits:?}"
            );
            let made: BTreeSet<String> = edits
                .iter()
                .flat_map(|edit| fields(&edit["fields"]))
                .collect();
            let changes = direction["changes"].as_array().unwrap();
            let named: BTreeSet<String> = changes
                .iter()
                .map(|change| change["field"].to_string())
                .collect();
            assert_eq!(named, made, "{step}: {direction}");
            assert_eq!(direction["routers"], routers[end], "{step}");
        }
    }
}

#[test]
fn other_programs_read_the_same_from_captures_of_a_path() {
    require!(Lab, Tshark, Tcptrace);
    let _slot = load_slot();
    let captured = Captured::of(&[
        ("free", "window = \"256KiB\""),
        ("lossy", "path = { loss = \"0.5%\" }"),
    ]);
    for end in ["sender.pcap", "receiver.pcap"] {
        agrees_with_tshark(&captured.file("free", end));
        agrees_with_tcptrace(&captured.file("free", end));
        agrees_with_tcptrace(&captured.file("lossy", end));
        // The bytes that were kept suffice for the checksum of a packet without data.
        let statuses = tshark_fields(
            &captured.file("free", end),
            "tcp.len == 0",
            ["tcp.checksum.status"],
        );
        let good = statuses.iter().filter(|[status]| status == "1").count();
        assert!(
            good > 500 && good == statuses.len(),
            "{good} of {}",
            statuses.len()
        );
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn a_receivers_capture_shows_what_the_sender_had_in_flight() {
        require!(Lab);
        let _path = path();
        let captured = Captured::valid(&[
            ("window", "window = \"256KiB\""),
            ("queue", "path = { queue = \"200KiB\" }"),
        ]);
        let [window, queue] = ["window", "queue"].map(|step| captured.step(step));
        for transfer in [&window, &queue] {
            let errors = errors(transfer);
            assert!(errors[errors.len() / 2].abs() < 0.03, "{errors:?}");
            for capture in [0, 1] {
                assert_eq!(
                    transfer.evidence(capture)["capture"]["point"],
                    ["sender", "receiver"][capture]
                );
                transfer.times_and_rates_agree(capture);
            }
        }
        // A flight that changes is seen later at the receiver, by the time that the data waits.
        let errors = errors(&window);
        let at = |share: f64| errors[(share * (errors.len() - 1) as f64) as usize];
        assert!(at(0.05) > -0.1 && at(0.95) < 0.1, "{errors:?}");
    }
}
