//! `fullpipe copy`, over ssh and to its server, next to scp, rsync and curl over emulated paths, in turn:
//! `fullpipe lab compare` moves the files, and the results of its rounds are summed up here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use fullpipe_record::{Content, Document, ProgramRun};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::process::{Process, RunError, last_words};
use crate::statistics::{Ratio, ratio};
use crate::{INTERRUPTED, say};

mod compression;
mod fairness;
mod files;
mod loopback;
mod paths;
mod picture;
mod scene;

/// This program's own, over ssh.
const OURS: &str = "copy";

/// The same to its server of a shared folder.
const TO_SERVER: &str = "copy-server";

/// The same on a QUIC connection.
const BY_QUIC: &str = "by QUIC";

/// The programs that it is held against: those over ssh, and those with servers of their own. Of the latter, one
/// encrypts, too.
const RIVALS: [&str; 5] = ["scp", "rsync", "rsyncd", "curl", "curl-h2"];
const WITH_SERVERS: [&str; 3] = ["rsyncd", "curl", "curl-h2"];

/// rclone over the same server of ssh as scp: a command for `lab compare`, which does not know it.
const RCLONE: &str = "rclone";
const RCLONE_WORDS: [&str; 6] = [
    RCLONE,
    "copyto",
    "--config",
    "",
    "{file}",
    ":sftp,host={host},port=2222,user=root,key_file=/run/compare/user_key:{copy}",
];

/// Time after which a transfer, or a comparison, is ended.
const MAX_TRANSFER: Duration = Duration::from_mins(20);
const MAX_COMPARISON: Duration = Duration::from_hours(3);

/// Time that our file takes over a path that loses packets, at its capacity.
const LOSSY_TIME: Span = Span::from_secs(10);

/// Time that the queue of a path holds at least; one round trip, if that is longer.
const MIN_QUEUE: Span = Span::from_millis(20);
/// Multiple of that without BBR: of many slow connections, the last takes long for its last chunk.
const LONGER: f64 = 3.0;

/// Files of the tree of small ones, and those of them that scp copies, as it needs round trips for each.
const SMALL_FILES: usize = 10_000;
const SMALL_FILES_OF_SCP: usize = 200;

/// Bytes of a small file.
const SMALL_FILE: usize = 4096;

const HEAD: &str = "\
Medians over the rounds, with their 95 % intervals (bootstrap): the rate of the
whole command and its steady part in Mbit/s, its time, and how many times as fast
as each other program ours was in the same round: to its server as those that have
one (rsyncd, curl), and over ssh as the others. Shells that sshd starts find an
empty home, so that no time is that of a .bashrc.
";

/// Paths and rounds.
#[derive(Debug, Args)]
pub(crate) struct Copying {
    /// Only paths whose name contains this; may be given again
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Transfers of each program over each path
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100), value_name = "N")]
    rounds: u16,
    /// Size of the file over the path without loss, and over loopback
    #[arg(long, default_value = "2GB", value_parser = size, value_name = "BYTES")]
    size: ByteCount,
    /// Write a page with a chart of all paths that were measured
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The program [default: next to this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
}

fn size(text: &str) -> Result<ByteCount, String> {
    text.parse().map_err(|error: fullpipe_units::ParseError| error.to_string())
}

/// A path, with the sizes of the files that ours and the others move.
#[derive(Clone)]
struct Cell {
    name: String,
    rate: BitRate,
    rtt: Span,
    loss: f64,
    ours: ByteCount,
    rivals: ByteCount,
    /// Ours may not use BBR, and moves its file alone.
    no_bbr: bool,
}

/// The part of a path's rate that is left to data: of each Ethernet frame of MTU 1500, with its preamble and gap, and
/// with timestamps in TCP's header.
const DATA: f64 = 1448.0 / 1538.0;

impl Cell {
    fn all(size: ByteCount) -> Vec<Self> {
        let clean = Self {
            name: "clean".to_owned(),
            rate: BitRate::from_mbps(1000),
            rtt: Span::from_millis(98),
            loss: 0.0,
            ours: size,
            rivals: size,
            no_bbr: false,
        };
        let lossy = [100, 500].into_iter().flat_map(|mbps| {
            // The others would take hours for a file that shows what ours does.
            [(1e-4, 100), (1e-3, 30), (1e-2, 10)].map(|(loss, rivals)| Self {
                name: format!("loss-{loss:e}-{mbps}"),
                rate: BitRate::from_mbps(mbps),
                rtt: Span::from_millis(100),
                loss,
                ours: BitRate::from_mbps(mbps).bytes_in(LOSSY_TIME),
                rivals: ByteCount::new(rivals * 1_000_000),
                no_bbr: false,
            })
        });
        let lossy: Vec<Self> = lossy.collect();
        let no_bbr = |cell: &Self| Self {
            name: format!("no-bbr-{}", cell.name),
            ours: cell.ours.scaled(LONGER),
            no_bbr: true,
            ..cell.clone()
        };
        let no_bbr = lossy.iter().map(no_bbr);
        std::iter::once(clean).chain(lossy.clone()).chain(no_bbr).chain(paths::twelve()).collect()
    }

    fn capacity(&self) -> BitRate {
        self.rate.scaled(DATA * (1.0 - self.loss))
    }

    fn scenario(&self) -> String {
        let loss = if self.loss > 0.0 { format!("loss = '{:e}'\n", self.loss) } else { String::new() };
        // A shorter queue would empty while another process has the link's processor.
        let queue = if self.rtt < MIN_QUEUE { MIN_QUEUE.to_string() } else { "1bdp".to_owned() };
        format!(
            "name = 'copying'\ntitle = '{}'\n[path]\nrate = '{}'\nrtt = '{}'\nqueue = '{queue}'\n{loss}\
             [[step]]\nname = 'defaults'\n",
            self.name, self.rate, self.rtt
        )
    }

    /// Returns the groups of programs that move a file of the same size in one comparison.
    fn groups(&self) -> Vec<(Vec<&'static str>, ByteCount)> {
        if self.ours == self.rivals {
            return vec![([OURS, TO_SERVER].into_iter().chain(RIVALS).collect(), self.ours)];
        }
        vec![(vec![OURS, TO_SERVER], self.ours), (RIVALS.to_vec(), self.rivals)]
    }
}

/// The bench at work.
struct Bench<'b> {
    fullpipe: &'b Path,
    rounds: u16,
    stop: &'b AtomicBool,
    folder: tempfile::TempDir,
}

impl Copying {
    /// Prints what comes out. The exit code does not depend on it.
    pub(crate) fn run(&self, fullpipe: &Path, stop: &AtomicBool) -> ExitCode {
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(error) => {
                say(true, &format!("fullpipe-bench: cannot make a folder: {error}\n"));
                return ExitCode::FAILURE;
            }
        };
        let bench = Bench { fullpipe, rounds: self.rounds, stop, folder };
        say(false, HEAD);
        let ended = self.carry_out(&bench);
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(RunError::Interrupted) => ExitCode::from(INTERRUPTED),
            Err(RunError::Failed(why)) => {
                say(true, &format!("fullpipe-bench: {why}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn carry_out(&self, bench: &Bench<'_>) -> Result<(), RunError> {
        let mut measured = Vec::new();
        for cell in Cell::all(self.size).into_iter().filter(|cell| self.includes(&cell.name)) {
            let results = bench.cell(&cell)?;
            say(false, &cell_text(&cell, &results));
            measured.push((cell, results));
        }
        if let Some(file) = &self.html {
            std::fs::write(file, picture::page(&measured)).map_err(RunError::failed)?;
        }
        if self.includes("small-files") {
            say(false, &bench.small_files()?);
        }
        if self.includes(loopback::NAME) {
            say(false, &loopback::run(bench.fullpipe, self.size, self.rounds, bench.stop)?);
        }
        for case in compression::CASES.iter().filter(|case| self.includes(case.name)) {
            say(false, &case.run(bench.fullpipe, self.rounds, bench.stop)?);
        }
        for case in fairness::CASES.iter().filter(|case| self.includes(case.name)) {
            say(false, &case.run(bench.fullpipe, self.rounds, bench.stop)?);
        }
        Ok(())
    }

    fn includes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

/// The runs of each program, round by round; of a round without a valid run, why.
type Results = BTreeMap<String, Vec<Result<ProgramRun, String>>>;

impl Bench<'_> {
    /// Lets all programs move their files over a path.
    fn cell(&self, cell: &Cell) -> Result<Results, RunError> {
        let mut results = Results::new();
        for round in 0..usize::from(self.rounds) {
            if cell.no_bbr {
                self.command(cell, cell.ours, OURS, &["sh", "-euc", &ours(self.fullpipe, "--no-bbr")], &mut results)?;
                continue;
            }
            for (mut programs, size) in cell.groups() {
                let turn = round % programs.len();
                programs.rotate_left(turn);
                let with = programs.join(",");
                self.compare(&cell.scenario(), size, &["--with", &with], &mut results)?;
            }
            let script = ours(self.fullpipe, "--transport quic");
            self.command(cell, cell.ours, BY_QUIC, &["sh", "-euc", &script], &mut results)?;
            self.command(cell, cell.rivals, RCLONE, &RCLONE_WORDS, &mut results)?;
        }
        Ok(results)
    }

    /// Lets a command that `lab compare` does not know move the file once, and adds what came of it under `name`.
    fn command(
        &self,
        cell: &Cell,
        size: ByteCount,
        name: &str,
        words: &[&str],
        results: &mut Results,
    ) -> Result<(), RunError> {
        let mut of_command = Results::new();
        self.compare(&cell.scenario(), size, &[&["--"], words].concat(), &mut of_command)?;
        results.entry(name.to_owned()).or_default().extend(of_command.into_values().flatten());
        Ok(())
    }

    /// Lets `fullpipe lab compare` move a file once, and adds what came of it.
    fn compare(
        &self,
        scenario: &str,
        size: ByteCount,
        arguments: &[&str],
        results: &mut Results,
    ) -> Result<(), RunError> {
        let file = self.folder.path().join("path.toml");
        std::fs::write(&file, scenario).map_err(RunError::failed)?;
        let mut command = Command::new(self.fullpipe);
        command.args(["lab", "compare"]).arg(&file).args(["--json", "--no-store", "--size", &size.get().to_string()]);
        command.args(["--timeout", &MAX_TRANSFER.as_secs().to_string()]).args(arguments);
        let ended = Process::start(&mut command)?.finish(MAX_COMPARISON, self.stop)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let document: Result<Document, _> = serde_json::from_str(&ended.stdout);
        let Ok(Document { content: Content::Programs { programs: report }, .. }) = document else {
            return Err(RunError::Failed(last_words(&ended.stderr, "fullpipe lab compare printed no result")));
        };
        for left_out in report.left_out {
            results.entry(left_out.program).or_default().push(Err(left_out.why));
        }
        for row in report.batches.into_iter().flat_map(|batch| batch.rows) {
            results.entry(row.program).or_default().push(last_valid(row.runs));
        }
        Ok(())
    }

    /// Copies a tree of small files, and says how much longer others take.
    fn small_files(&self) -> Result<String, RunError> {
        let cell = Cell { name: "small-files".to_owned(), ..Cell::all(ByteCount::ZERO).swap_remove(0) };
        let programs = small_file_programs(self.fullpipe);
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut text = format!("\n{SMALL_FILES} files of {SMALL_FILE} bytes at {}, times in s\n", cell.rtt);
        for round in 0..usize::from(self.rounds) {
            for turn in 0..programs.len() {
                let (name, script) = &programs[(turn + round) % programs.len()];
                let mut results = Results::new();
                let size = ByteCount::new((SMALL_FILES * SMALL_FILE) as u64);
                // The tree is made in the first round, whose time does not count.
                let arguments = ["--rounds", "2", "--", "sh", "-euc", script];
                self.compare(&cell.scenario(), size, &arguments, &mut results)?;
                match results.remove("command").and_then(|mut runs| runs.pop()) {
                    Some(Ok(ProgramRun { took: Some(took), .. })) => {
                        times.entry(*name).or_default().push(took.as_secs_f64());
                    }
                    Some(Err(why)) => drop(writeln!(text, "  {name}: {why}")),
                    _ => drop(writeln!(text, "  {name}: no time is known")),
                }
            }
        }
        Ok(text + &small_files_text(&times))
    }
}

/// Returns the script of the shell by which ours copies a file with these options.
fn ours(fullpipe: &Path, options: &str) -> String {
    let program = fullpipe.display();
    format!("{program} copy {options} -e '{{ssh}}' --far-path {program} {{file}} {{host}}:{{copy}}")
}

/// Returns the run of the last round that counts, or else why there is none.
fn last_valid(mut runs: Vec<ProgramRun>) -> Result<ProgramRun, String> {
    let last_round = runs.last().map_or(0, |run| run.round);
    runs.retain(|run| run.round == last_round);
    let why = |run: &ProgramRun| run.failed.clone().unwrap_or_else(|| run.validity.broken.join(", "));
    let last = runs.last().map_or_else(|| "it did not run".to_owned(), why);
    runs.into_iter().rev().find(ProgramRun::counts).ok_or(last)
}

/// Returns the names of the ways to copy many small files, with scripts of the shell. Each makes the tree unless it is
/// there, copies it to a new folder, and counts what arrived.
fn small_file_programs(fullpipe: &Path) -> Vec<(&'static str, String)> {
    let (program, from, to) = (fullpipe.display(), "/run/compare/from/tree", "/run/compare/to/tree-$$");
    let make = format!(
        "test -e {from}-made || {{ mkdir -p {from} {from}-one {from}-some; \
         split -b {SMALL_FILE} -a 4 /run/compare/from/file {from}/; \
         cp {from}/aaaa {from}-one; cp $(ls -d {from}/* | head -n {SMALL_FILES_OF_SCP}) {from}-some; \
         touch {from}-made; }}"
    );
    let script = |copy: String, count: usize| format!("{make}; {copy}; test $(ls {to} | wc -l) = {count}");
    let scp = |part: &str, count| script(scp_of(&format!("{from}-{part}"), to), count);
    vec![
        (OURS, script(format!("{program} copy -e '{{ssh}}' --far-path {program} {from}/ {{host}}:{to}"), SMALL_FILES)),
        ("tar | ssh tar", {
            let far = format!("mkdir {to} && tar -C {to} -xf -");
            script(format!("tar -C {from} -cf - . | {{ssh}} {{host}} \"{far}\""), SMALL_FILES)
        }),
        (SCP_ONE, scp("one", 1)),
        (SCP_SOME, scp("some", SMALL_FILES_OF_SCP)),
    ]
}

const SCP_ONE: &str = "scp -r of 1 file";
const SCP_SOME: &str = "scp -r of 200 files";

/// Returns the command by which scp copies a folder. Its options are those of the ssh of the lab.
fn scp_of(from: &str, to: &str) -> String {
    format!("scp -q -r -F /run/compare/ssh.conf {from} {{host}}:{to}")
}

/// Returns the text of a path.
fn cell_text(cell: &Cell, results: &Results) -> String {
    let mut text = format!(
        "\n{}: {} × {}, loss {:e}, which carries {}; our file has {}, theirs {}\n",
        cell.name,
        cell.rate,
        cell.rtt,
        cell.loss,
        cell.capacity(),
        cell.ours,
        cell.rivals
    );
    let figures = |program: &str, of: fn(&ProgramRun) -> Option<f64>| -> Vec<f64> {
        results.get(program).into_iter().flatten().flatten().filter_map(of).collect()
    };
    let whole: fn(&ProgramRun) -> Option<f64> = |run| run.goodput.map(BitRate::as_mbps);
    let steady: fn(&ProgramRun) -> Option<f64> = |run| run.steady.map(BitRate::as_mbps);
    let took: fn(&ProgramRun) -> Option<f64> = |run| run.took.map(Span::as_secs_f64);
    let programs = [OURS, TO_SERVER, BY_QUIC].into_iter().chain(RIVALS).chain([RCLONE]);
    for program in programs.filter(|program| results.contains_key(*program)) {
        let [whole, mut steady, took] = [whole, steady, took].map(|of| shown(ratio(&figures(program, of))));
        if program == BY_QUIC {
            // The connections that are watched are those of TCP.
            steady = shown(None);
        }
        let times = times_as_fast(results, program);
        let _ = writeln!(text, "  {program:<11} whole {whole:<24} steady {steady:<24} {took:<22} s  {times}");
    }
    for (program, runs) in results {
        for why in runs.iter().filter_map(|run| run.as_ref().err()) {
            let _ = writeln!(text, "  {program}: {why}");
        }
    }
    let slower = slower_than(results);
    if !slower.is_empty() {
        let _ = writeln!(text, "  ours is slower, beyond the interval, than: {}", slower.join(", "));
    }
    let of_capacity = figures(OURS, steady).iter().map(|mbps| mbps / cell.capacity().as_mbps()).collect::<Vec<_>>();
    let _ = writeln!(text, "  ours, steady ÷ what the path carries: {}", shown(ratio(&of_capacity)));
    let bound = cell.ours.get() as f64 * 8.0 / (0.95 * cell.capacity().as_f64()) + 2.0;
    let _ = writeln!(text, "  size ÷ (0.95 × what the path carries) + 2 s: {bound:.1} s");
    text
}

/// Returns how many times as fast as another program ours was, by rounds, as text.
fn times_as_fast(results: &Results, program: &str) -> String {
    match program {
        OURS | TO_SERVER => String::new(),
        _ => format!("ours {} ×", shown(advantage(results, program))),
    }
}

/// Returns the programs than which ours was slower beyond the interval, or at all if there is none.
fn slower_than(results: &Results) -> Vec<&'static str> {
    let behind = |ratio: Ratio| ratio.interval.map_or(ratio.median, |[_, high]| high) < 1.0;
    RIVALS.into_iter().chain([RCLONE]).filter(|program| advantage(results, program).is_some_and(behind)).collect()
}

/// Returns how many times as fast as another program ours was that reaches the other host in the same way, by rounds.
fn advantage(results: &Results, program: &str) -> Option<Ratio> {
    let ours = if WITH_SERVERS.contains(&program) { TO_SERVER } else { OURS };
    let rate = |run: &Result<ProgramRun, String>| run.as_ref().ok()?.goodput.map(BitRate::as_f64);
    let of = |program: &str| results.get(program).map(Vec::as_slice).unwrap_or_default();
    let rounds = of(ours).iter().zip(of(program));
    let ratios: Vec<f64> = rounds.filter_map(|(ours, theirs)| Some(rate(ours)? / rate(theirs)?)).collect();
    ratio(&ratios)
}

fn small_files_text(times: &BTreeMap<&str, Vec<f64>>) -> String {
    let mut text = String::new();
    for (name, times) in times {
        let _ = writeln!(text, "  {name:<20} {}", shown(ratio(times)));
    }
    let of = |name| times.get(name).map(Vec::as_slice).unwrap_or_default();
    let against = |others: &[f64]| {
        shown(ratio(&of(OURS).iter().zip(others).map(|(ours, theirs)| theirs / ours).collect::<Vec<_>>()))
    };
    let _ = writeln!(text, "  tar | ssh tar ÷ ours  {}", against(of("tar | ssh tar")));
    let all = of(SCP_ONE).iter().zip(of(SCP_SOME)).map(|(one, some)| {
        let each = (some - one) / (SMALL_FILES_OF_SCP - 1) as f64;
        one + each * (SMALL_FILES - 1) as f64
    });
    let all: Vec<f64> = all.collect();
    let _ = writeln!(
        text,
        "  scp -r of {SMALL_FILES} files, extrapolated from {SMALL_FILES_OF_SCP} and 1: {} s, ÷ ours {}",
        shown(ratio(&all)),
        against(&all)
    );
    text
}

fn shown(ratio: Option<Ratio>) -> String {
    match ratio {
        Some(Ratio { median, interval: Some([low, high]) }) => format!("{median:.2} [{low:.2}, {high:.2}]"),
        Some(Ratio { median, interval: None }) => format!("{median:.2}"),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mbps: u64, seconds: u64) -> ProgramRun {
        let rate = Some(BitRate::from_mbps(mbps));
        ProgramRun { goodput: rate, steady: rate, took: Some(Span::from_secs(seconds)), ..ProgramRun::default() }
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let ours = vec![Ok(run(900, 18)), Ok(run(880, 18)), Err("late".to_owned()), Ok(run(910, 17))];
        let scp = [run(150, 106), run(110, 145), run(1, 1), run(130, 123)].map(Ok).to_vec();
        let results = Results::from([(OURS.to_owned(), ours), ("scp".to_owned(), scp)]);
        let text = cell_text(&Cell::all(ByteCount::new(2_000_000_000))[0], &results);
        assert!(text.contains("ours 7.00 [6.00, 8.00] ×"), "{text}");
        assert!(text.contains("copy: late") && text.contains("whole 900.00 [880.00, 910.00]"), "{text}");
        assert!(text.contains("+ 2 s: 19.9 s"), "{text}");
    }

    #[test]
    fn the_programs_than_which_ours_is_slower_are_named() {
        let rounds = |mbps: [u64; 3]| mbps.map(|mbps| Ok(run(mbps, 10))).to_vec();
        let results = Results::from([
            (OURS.to_owned(), rounds([90, 91, 92])),
            (TO_SERVER.to_owned(), rounds([95, 96, 97])),
            ("scp".to_owned(), rounds([89, 93, 90])),
            ("rsync".to_owned(), rounds([94, 95, 96])),
            ("rsyncd".to_owned(), rounds([98, 99, 99])),
            ("curl".to_owned(), rounds([94, 95, 96])),
        ]);
        assert_eq!(slower_than(&results), ["rsync", "rsyncd"]);
    }

    #[test]
    fn the_time_of_scp_for_all_files_follows_from_a_few() {
        let times = BTreeMap::from([
            (OURS, vec![4.0]),
            ("tar | ssh tar", vec![6.0]),
            (SCP_ONE, vec![2.0]),
            (SCP_SOME, vec![101.5]),
        ]);
        let text = small_files_text(&times);
        assert!(text.contains("extrapolated from 200 and 1: 5001.50 s, ÷ ours 1250.38"), "{text}");
        assert!(text.contains("tar | ssh tar ÷ ours  1.50"), "{text}");
    }

    #[test]
    fn the_paths_have_names_of_their_own_and_are_scenarios() {
        let cells = Cell::all(ByteCount::new(1));
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "clean",
                "loss-1e-4-100",
                "loss-1e-3-100",
                "loss-1e-2-100",
                "loss-1e-4-500",
                "loss-1e-3-500",
                "loss-1e-2-500",
                "no-bbr-loss-1e-4-100",
                "no-bbr-loss-1e-3-100",
                "no-bbr-loss-1e-2-100",
                "no-bbr-loss-1e-4-500",
                "no-bbr-loss-1e-3-500",
                "no-bbr-loss-1e-2-500",
                "twelve-10-4ms-clean",
                "twelve-10-100ms-1e-3",
                "twelve-10-300ms-clean",
                "twelve-50-30ms-1e-4",
                "twelve-100-4ms-1e-3",
                "twelve-100-60ms-clean",
                "twelve-100-300ms-1e-4",
                "twelve-200-20ms-1e-2",
                "twelve-300-150ms-clean",
                "twelve-500-10ms-1e-3",
                "twelve-1000-4ms-clean",
                "twelve-1000-200ms-1e-4"
            ]
        );
        for cell in &cells {
            let scenario = fullpipe_scenario::Scenario::parse("x.toml", &cell.scenario()).unwrap();
            assert_eq!(scenario.path.forward.loss, Some(fullpipe_units::Ratio::new(cell.loss)), "{}", cell.name);
        }
    }
}
