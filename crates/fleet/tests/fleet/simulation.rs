//! Agents and controllers over a month, with every fault, in virtual time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::time::Instant;

use fullpipe_fleet::plan::{
    AgentChanges, AgentClock, AgentPolicy, AgentSlot, AgentSlotState, AgentStep, MAX_OFFSET_MS,
    MeshHost, MeshSettings, PollAnswer, Slot, SlotOutcome, SlotReport, SlotTicket,
};
use fullpipe_fleet::{Agent, AgentStorage, FleetLedger};
use fullpipe_record::StoredDocument;
use fullpipe_store::{ArchiveLocation, NewDocument, Store, StoreError};
use fullpipe_units::{ByteCount, Span};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

const DAY: u64 = 86_400;

/// When the fleet starts, in seconds since 1970.
const START: u64 = 1_800_000_000;

/// Seconds from one poll of an agent to the next, if nothing happens.
const HEARTBEAT: u64 = 1200;

/// Seconds from one look of the controllers at the plan to the next.
const PLANNING: u64 = 900;

/// What there is on a disk, which may be full, or be the last that a dying program sees.
#[derive(Debug, Default)]
struct DiskContent {
    slots: BTreeMap<String, AgentSlot>,
    documents: BTreeMap<String, NewDocument>,
    is_full: bool,
    /// What the last write changed.
    changed: Vec<AgentSlot>,
    /// Writes until the next crash, and whether that one is done.
    crash_in: Option<(u32, bool)>,
}

#[derive(Debug, Clone, Default)]
struct MemoryDisk(Rc<RefCell<DiskContent>>);

fn crash() -> StoreError {
    StoreError::Missing("the program died".to_owned())
}

impl AgentStorage for MemoryDisk {
    fn slots(&mut self) -> Result<Vec<AgentSlot>, StoreError> {
        Ok(self.0.borrow().slots.values().cloned().collect())
    }

    fn keep(
        &mut self,
        changes: &AgentChanges,
        document: Option<&NewDocument>,
    ) -> Result<(), StoreError> {
        let mut disk = self.0.borrow_mut();
        if *changes == AgentChanges::default() && document.is_none() {
            return Ok(());
        }
        let dies = match &mut disk.crash_in {
            Some((0, is_kept)) => Some(*is_kept),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        };
        if dies.is_some() {
            disk.crash_in = None;
        }
        if disk.is_full || dies == Some(false) {
            return Err(crash());
        }
        disk.changed.clone_from(&changes.kept);
        for id in &changes.dropped {
            disk.slots.remove(id);
        }
        for slot in &changes.kept {
            disk.slots.insert(slot.order.slot.id.clone(), slot.clone());
        }
        if let Some(document) = document {
            disk.documents
                .insert(document.head.id.clone(), document.clone());
        }
        if dies.is_some() { Err(crash()) } else { Ok(()) }
    }
}

/// A host of the simulated fleet.
struct SimulatedHost {
    name: String,
    disk: MemoryDisk,
    /// `None` while its program does not run.
    agent: Option<Agent<MemoryDisk>>,
    /// Number of starts of the program: events of an earlier one are void.
    start: u32,
    /// Difference of its clock to the true time, which somebody set, in milliseconds.
    offset_ms: i64,
    /// Parts in a million by which its clock is fast.
    drift: i64,
    has_network: bool,
    runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Plan,
    Poll {
        host: usize,
        start: u32,
    },
    Answer {
        host: usize,
        start: u32,
        answer: usize,
    },
    Step {
        host: usize,
        start: u32,
    },
    RunEnds {
        host: usize,
        start: u32,
    },
    HandOver {
        host: usize,
        start: u32,
    },
    Start {
        host: usize,
    },
    Fault,
    Network {
        host: usize,
    },
    Disk {
        host: usize,
    },
    Clock {
        host: usize,
    },
    Controllers {
        up: bool,
    },
}

/// What truly became of a slot.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Truth {
    was_heard: bool,
    had_ticket: bool,
    /// The disk of its client says that it runs.
    was_begun: bool,
    /// Start and end of the load, in true milliseconds.
    began: Option<u64>,
    ended: Option<u64>,
    /// The clock of its client was wrong when it should have begun, or not compared.
    had_wrong_clock: bool,
}

struct World {
    now_ms: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    random: Pcg64,
    archive: Store,
    hosts: Vec<SimulatedHost>,
    places: BTreeMap<String, usize>,
    answers: Vec<PollAnswer>,
    is_up: bool,
    has_faults: bool,
    truth: BTreeMap<String, Truth>,
    runs: Vec<(u64, u64, usize, usize)>,
    documents: Vec<String>,
    faults: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(
        count: usize,
        of_site: usize,
        seed: u64,
        settings: &MeshSettings,
    ) -> (Self, tempfile::TempDir) {
        // A file in memory where there is one: the statements are the same.
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let folder = folder.unwrap();
        let file = ArchiveLocation::File(folder.path().join("fleet.db"));
        let mut archive = Store::create(&file).unwrap();
        let mut ledger = FleetLedger::new(&mut archive);
        ledger.keep_settings(settings).unwrap();
        let mut hosts = Vec::new();
        for number in 0..count {
            let name = format!("host{number:04}");
            let code = format!("code{number}");
            ledger.keep_invite(&code, "", 1, START + 900).unwrap();
            let host = MeshHost {
                name: name.clone(),
                site: format!("site{:03}", number / of_site),
                reach: Some(format!("192.0.2.1:{number}")),
            };
            ledger.enrol_host(&code, &host, &name, START).unwrap();
            hosts.push(SimulatedHost {
                name,
                disk: MemoryDisk::default(),
                agent: None,
                start: 0,
                offset_ms: 0,
                drift: 0,
                has_network: true,
                runs: None,
            });
        }
        let places = hosts.iter().enumerate();
        let places = places
            .map(|(place, host)| (host.name.clone(), place))
            .collect();
        let mut world = Self {
            now_ms: START * 1000,
            events: BinaryHeap::new(),
            count: 0,
            random: Pcg64::seed_from_u64(seed),
            archive,
            hosts,
            places,
            answers: Vec::new(),
            is_up: true,
            has_faults: true,
            truth: BTreeMap::new(),
            runs: Vec::new(),
            documents: Vec::new(),
            faults: BTreeMap::new(),
        };
        for host in 0..count {
            let after = world.random_below(60_000);
            world.hosts[host].drift = world.random_below(21).cast_signed() - 10;
            world.schedule(after, Event::Start { host });
        }
        world.schedule(70_000, Event::Plan);
        world.schedule(600_000, Event::Fault);
        (world, folder)
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn is_chance(&mut self, one_in: u64) -> bool {
        self.has_faults && self.random_below(one_in) == 0
    }

    fn schedule(&mut self, after_ms: u64, event: Event) {
        self.count += 1;
        self.events
            .push(Reverse((self.now_ms + after_ms, self.count, event)));
    }

    fn run_until(&mut self, end: u64) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at < end * 1000
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                return;
            };
            self.now_ms = at;
            self.carry_out(&event);
        }
    }

    fn clock(&self, host: usize) -> AgentClock {
        let host = &self.hosts[host];
        let elapsed = (self.now_ms - START * 1000).cast_signed();
        let drift = elapsed % (DAY.cast_signed() * 1000) * host.drift / 1_000_000;
        AgentClock {
            wall_ms: (self.now_ms.cast_signed() + host.offset_ms + drift).cast_unsigned(),
            steady_ms: elapsed.cast_unsigned(),
        }
    }

    fn is_current(&self, host: usize, start: u32) -> bool {
        self.hosts[host].start == start && self.hosts[host].agent.is_some()
    }

    fn carry_out(&mut self, event: &Event) {
        match *event {
            Event::Plan => self.plan(),
            Event::Start { host } => self.start_agent(host),
            Event::Fault => self.make_fault(),
            Event::Network { host } => self.hosts[host].has_network = true,
            Event::Disk { host } => self.hosts[host].disk.0.borrow_mut().is_full = false,
            Event::Clock { host } => self.hosts[host].offset_ms = 0,
            Event::Controllers { up } => self.is_up = up,
            Event::Poll { host, start } if self.is_current(host, start) => self.poll(host, true),
            Event::Answer {
                host,
                start,
                answer,
            } if self.is_current(host, start) => self.take_answer(host, answer),
            Event::Step { host, start } if self.is_current(host, start) => self.step(host),
            Event::RunEnds { host, start } if self.is_current(host, start) => self.end_run(host),
            Event::HandOver { host, start } if self.is_current(host, start) => {
                self.hand_over(host);
            }
            _ => {}
        }
    }

    fn plan(&mut self) {
        if self.is_up {
            let now = self.now_ms / 1000;
            // Two controllers.
            for _ in 0..2 {
                let mut ledger = FleetLedger::new(&mut self.archive);
                ledger.plan_turns(now).unwrap();
                ledger.close_overdue(now).unwrap();
            }
        }
        self.schedule(PLANNING * 1000, Event::Plan);
    }

    fn start_agent(&mut self, host: usize) {
        if self.hosts[host].agent.is_some() {
            return;
        }
        let simulated = &mut self.hosts[host];
        simulated.start += 1;
        simulated.runs = None;
        let restored = Agent::restored(
            &simulated.name,
            AgentPolicy {
                bytes_per_day: ByteCount::new(u64::MAX),
                ..AgentPolicy::default()
            },
            simulated.disk.clone(),
        );
        match restored {
            Ok(agent) => {
                simulated.agent = Some(agent);
                let start = simulated.start;
                self.schedule(10, Event::Poll { host, start });
                self.schedule(20, Event::HandOver { host, start });
                self.schedule(3000, Event::Step { host, start });
            }
            Err(_) => self.schedule(600_000, Event::Start { host }),
        }
    }

    /// Ends the program of a host, which is started again later.
    fn kill_agent(&mut self, host: usize) {
        let simulated = &mut self.hosts[host];
        simulated.agent = None;
        simulated.start += 1;
        if let Some(slot) = simulated.runs.take() {
            // The test ends with the agent.
            let (now, truth) = (self.now_ms, self.truth.entry(slot).or_default());
            let began = truth.began.unwrap_or(now);
            self.runs.retain(|run| run.0 != began || run.2 != host);
        }
        *self.faults.entry("ends of an agent").or_default() += 1;
        let is_full = self.hosts[host].disk.0.borrow().is_full;
        let wait = if is_full { 600_000 } else { 120_000 };
        let after = 10_000 + self.random_below(wait);
        self.schedule(after, Event::Start { host });
    }

    fn poll(&mut self, host: usize, is_regular: bool) {
        let start = self.hosts[host].start;
        if is_regular {
            let after = (HEARTBEAT - 60) * 1000 + self.random_below(120_000);
            self.schedule(after, Event::Poll { host, start });
        }
        if !self.is_up || !self.hosts[host].has_network || self.is_chance(50) {
            return;
        }
        let clock = self.clock(host);
        let Some(agent) = &self.hosts[host].agent else {
            return;
        };
        let request = agent.poll_request(clock);
        let times = if self.is_chance(50) { 2 } else { 1 };
        for _ in 0..times {
            let mut ledger = FleetLedger::new(&mut self.archive);
            let name = &self.hosts[host].name;
            let answer = ledger.answer_poll(name, &request, self.now_ms).unwrap();
            if self.is_chance(50) {
                continue;
            }
            self.answers.push(answer);
            let answer = self.answers.len() - 1;
            // A long way, but none that makes clocks look wrong.
            let after = 5 + self.random_below(200);
            self.schedule(
                after,
                Event::Answer {
                    host,
                    start,
                    answer,
                },
            );
        }
    }

    fn take_answer(&mut self, host: usize, answer: usize) {
        let answer = std::mem::take(&mut self.answers[answer]);
        let clock = self.clock(host);
        let start = self.hosts[host].start;
        let Some(agent) = &mut self.hosts[host].agent else {
            return;
        };
        let mut has_given = false;
        let mut taken = agent.take_answer(&answer, clock);
        for slot in agent.unticketed(clock) {
            has_given = true;
            taken = taken.and_then(|()| {
                agent.give_ticket(&SlotTicket {
                    ticket: format!("ticket of {}", slot.id),
                    slot: slot.id,
                })
            });
        }
        let disk = self.hosts[host].disk.clone();
        for order in &answer.orders {
            if order.slot.client == self.hosts[host].name
                && disk.0.borrow().slots.contains_key(&order.slot.id)
            {
                let truth = self.truth.entry(order.slot.id.clone()).or_default();
                truth.was_heard = true;
                truth.had_ticket |= order.ticket.is_some();
            }
        }
        if taken.is_err() {
            return self.kill_agent(host);
        }
        if has_given {
            self.poll(host, false);
        }
        self.schedule(1, Event::Step { host, start });
    }

    fn step(&mut self, host: usize) {
        let clock = self.clock(host);
        let start = self.hosts[host].start;
        let disk = self.hosts[host].disk.clone();
        disk.0.borrow_mut().changed.clear();
        let Some(agent) = &mut self.hosts[host].agent else {
            return;
        };
        let step = agent.next_step(clock);
        for slot in &disk.0.borrow().changed {
            self.note_change(host, slot);
        }
        match step {
            Err(_) => self.kill_agent(host),
            Ok(AgentStep::Wait(until)) => {
                if let Some(until) = until {
                    let after = (until * 1000)
                        .saturating_sub(clock.wall_ms)
                        .clamp(1, HEARTBEAT * 1000);
                    self.schedule(after, Event::Step { host, start });
                }
            }
            Ok(AgentStep::Run(order)) => self.begin_run(host, &order.slot),
        }
    }

    /// Notes what truly was when the agent of a host wrote this.
    fn note_change(&mut self, host: usize, slot: &AgentSlot) {
        let wall_ms = self.clock(host).wall_ms;
        let truth = self.truth.entry(slot.order.slot.id.clone()).or_default();
        match &slot.state {
            AgentSlotState::Ended(report) if report.outcome == SlotOutcome::Refused => {
                // What an answer took on its way is not known to the agent.
                truth.had_wrong_clock = wall_ms.abs_diff(self.now_ms) > MAX_OFFSET_MS - 210
                    || report.why.contains("not been compared");
            }
            AgentSlotState::Running => truth.was_begun = true,
            _ => {}
        }
    }

    fn begin_run(&mut self, host: usize, slot: &Slot) {
        let server = self.places[&slot.server];
        let start = self.hosts[host].start;
        self.hosts[host].runs = Some(slot.id.clone());
        let truth = self.truth.entry(slot.id.clone()).or_default();
        assert!(truth.began.is_none(), "a slot runs once");
        truth.began = Some(self.now_ms);
        let is_served = self.hosts[server].agent.is_some() && self.hosts[server].has_network;
        let takes = if is_served && self.hosts[host].has_network {
            let load = slot.load.duration.as_secs_f64() as u64 * 1000;
            load + 2000 + self.random_below(6000)
        } else {
            1000
        };
        if takes > 1000 {
            self.runs
                .push((self.now_ms, self.now_ms + takes, host, server));
        }
        self.schedule(takes, Event::RunEnds { host, start });
    }

    fn end_run(&mut self, host: usize) {
        let start = self.hosts[host].start;
        let Some(slot) = self.hosts[host].runs.take() else {
            return;
        };
        let began = self.truth[&slot].began.unwrap_or_default();
        let is_whole = self.now_ms - began > 1000;
        let document = is_whole.then(|| self.document(&slot));
        let report = SlotReport {
            slot: slot.clone(),
            outcome: if is_whole {
                SlotOutcome::Done
            } else {
                SlotOutcome::NoShow
            },
            why: if is_whole {
                String::new()
            } else {
                "the other end cannot be reached".to_owned()
            },
            document: document.as_ref().map(|document| document.head.id.clone()),
            bytes: ByteCount::new(625_000_000),
        };
        let Some(agent) = &mut self.hosts[host].agent else {
            return;
        };
        let kept = agent.end_run(report, document.as_ref());
        let disk = self.hosts[host].disk.0.borrow();
        // Also of an agent that died just behind that.
        if let Some(document) = document
            && disk.documents.contains_key(&document.head.id)
        {
            self.documents.push(document.head.id);
            self.truth.entry(slot).or_default().ended = Some(self.now_ms);
        }
        drop(disk);
        if kept.is_err() {
            return self.kill_agent(host);
        }
        self.schedule(1, Event::Step { host, start });
        self.schedule(2, Event::HandOver { host, start });
    }

    fn document(&mut self, slot: &str) -> NewDocument {
        let id = uuid::Uuid::from_u128(u128::from(self.random.next_u64()) << 64 | 1).to_string();
        NewDocument {
            head: StoredDocument {
                id,
                kind: "measurement".to_owned(),
                started: "2026-11-28T00:00:00Z".to_owned(),
                ..StoredDocument::default()
            },
            body: format!("{{\"slot\":\"{slot}\"}}").into_bytes(),
        }
    }

    fn hand_over(&mut self, host: usize) {
        let start = self.hosts[host].start;
        let Some(agent) = &self.hosts[host].agent else {
            return;
        };
        let waiting = agent.documents_to_hand_over();
        if waiting.is_empty() {
            return;
        }
        let mut is_late = false;
        for (slot, document) in waiting {
            if !self.is_up || !self.hosts[host].has_network || self.is_chance(50) {
                is_late = true;
                continue;
            }
            let document = self.hosts[host].disk.0.borrow().documents[&document].clone();
            let times = if self.is_chance(50) { 2 } else { 1 };
            for _ in 0..times {
                let mut ledger = FleetLedger::new(&mut self.archive);
                let name = &self.hosts[host].name;
                let kept = ledger.keep_slot_document(name, &slot, &document).unwrap();
                assert!(kept.is_some(), "a slot that ran is known");
            }
            if self.is_chance(50) {
                is_late = true;
                continue;
            }
            if let Some(agent) = &mut self.hosts[host].agent {
                agent.note_handed_over(&slot);
            }
        }
        if is_late {
            self.schedule(300_000, Event::HandOver { host, start });
        }
        self.poll(host, false);
    }

    fn make_fault(&mut self) {
        let next = 400_000 + self.random_below(400_000);
        self.schedule(next, Event::Fault);
        if !self.has_faults {
            return;
        }
        let host = self.random_below(self.hosts.len() as u64) as usize;
        let hour = 3_600_000;
        let long = hour / 10 + self.random_below(3 * hour);
        let fault = match self.random_below(20) {
            0..8 => {
                let crash = (self.random_below(6) as u32, self.random_below(2) == 0);
                self.hosts[host].disk.0.borrow_mut().crash_in = Some(crash);
                "crashes at a write"
            }
            8..11 => {
                self.kill_agent(host);
                "kills"
            }
            11..14 => {
                self.hosts[host].has_network = false;
                self.schedule(long, Event::Network { host });
                "hosts without network"
            }
            14..16 => {
                self.hosts[host].disk.0.borrow_mut().is_full = true;
                self.schedule(long, Event::Disk { host });
                "full disks"
            }
            16..19 => {
                let jump = self.random_below(60_000).cast_signed() - 30_000;
                self.hosts[host].offset_ms = jump;
                self.schedule(long, Event::Clock { host });
                "clocks that jump"
            }
            _ if self.random_below(5) == 0 => {
                self.is_up = false;
                self.schedule(2 * hour, Event::Controllers { up: true });
                "controllers away for two hours"
            }
            _ => return,
        };
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Runs without faults until all is handed over.
    fn settle(&mut self) {
        self.has_faults = false;
        let end = self.now_ms / 1000 + 6 * 3600;
        self.run_until(end);
    }
}

/// What became of all slots that began in a time.
struct Account {
    outcomes: BTreeMap<SlotOutcome, u64>,
    wrong: Vec<String>,
}

impl World {
    fn account(&mut self, until: u64) -> Account {
        let mut account = Account {
            outcomes: BTreeMap::new(),
            wrong: Vec::new(),
        };
        let rows = self
            .archive
            .query(
                "SELECT id, outcome, why, document FROM fleet_slot WHERE starts < $1",
                &[until.into()],
            )
            .unwrap();
        for mut row in rows {
            let id = row.next_string();
            let outcome = SlotOutcome::from_name(&row.next_string());
            let (why, document) = (row.next_string(), row.next_string());
            let truth = self.truth.get(&id).cloned().unwrap_or_default();
            let is_right = match outcome {
                Some(SlotOutcome::Done) => truth.ended.is_some() && !document.is_empty(),
                Some(SlotOutcome::Failed) => truth.was_begun && truth.ended.is_none(),
                Some(SlotOutcome::Refused) => truth.began.is_none() && truth.had_wrong_clock,
                Some(SlotOutcome::Late) => truth.began.is_none() && truth.was_heard,
                Some(SlotOutcome::NoShow) if why.ends_with("never heard of it") => !truth.was_heard,
                Some(SlotOutcome::NoShow) if why.ends_with("has not agreed") => {
                    truth.began.is_none() && !truth.had_ticket
                }
                Some(SlotOutcome::NoShow) => truth.began.is_some() && truth.ended.is_none(),
                Some(SlotOutcome::Unknown) => truth.began.is_none() && !truth.was_heard,
                None => false,
            };
            if !is_right {
                account
                    .wrong
                    .push(format!("{id} {outcome:?} {why}: {truth:?}"));
            }
            if let Some(outcome) = outcome {
                *account.outcomes.entry(outcome).or_default() += 1;
            }
        }
        account
    }

    /// Returns the number of pairs of loads that met at a host.
    fn overlaps(&self) -> usize {
        let mut by_host: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        for (from, until, client, server) in &self.runs {
            for host in [client, server] {
                by_host.entry(*host).or_default().push((*from, *until));
            }
        }
        let meets = |mut times: Vec<(u64, u64)>| {
            times.sort_unstable();
            times.windows(2).filter(|two| two[0].1 > two[1].0).count()
        };
        by_host.into_values().map(meets).sum()
    }

    /// Returns the number of claims of the plan that overlap, and of documents that are lost or
    /// doubled.
    fn documents_lost_and_doubled(&mut self) -> (usize, usize) {
        let rows = self.archive.query("SELECT id FROM document", &[]).unwrap();
        let kept: Vec<String> = rows.into_iter().map(|mut row| row.next_string()).collect();
        let known: std::collections::BTreeSet<_> = kept.iter().collect();
        let lost = self
            .documents
            .iter()
            .filter(|id| !known.contains(id))
            .count();
        (lost, kept.len().saturating_sub(self.documents.len() - lost))
    }
}

fn simulate(count: usize, days: u64, every_days: u64, seed: u64) {
    let begun = Instant::now();
    let settings = MeshSettings {
        every: Span::from_secs(every_days * DAY),
        ..MeshSettings::default()
    };
    let (mut world, _folder) = World::new(count, 2, seed, &settings);
    world.run_until(START + days * DAY);
    let end = world.now_ms / 1000;
    world.settle();
    let account = world.account(end);
    let (lost, doubled) = world.documents_lost_and_doubled();
    let slots: u64 = account.outcomes.values().sum();
    crate::show(&format!(
        "{count} agents, {days} days, seed {seed}: {slots} slots {:?}; faults {:?}; {} loads, {} overlap; {lost} \
         documents lost, {doubled} doubled; {:.1} s",
        account.outcomes,
        world.faults,
        world.runs.len(),
        world.overlaps(),
        begun.elapsed().as_secs_f64()
    ));
    assert!(
        account.wrong.is_empty(),
        "{} wrong, as {:#?}",
        account.wrong.len(),
        &account.wrong[..3.min(account.wrong.len())]
    );
    assert_eq!((world.overlaps(), lost, doubled), (0, 0, 0));
    let done = account
        .outcomes
        .get(&SlotOutcome::Done)
        .copied()
        .unwrap_or(0);
    assert!(done * 10 > slots * 7, "most slots are of use");
}

#[test]
fn a_month_of_a_hundred_agents_loses_nothing() {
    simulate(100, 30, 7, 1);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn a_day_of_a_thousand_agents_loses_nothing() {
    simulate(1000, 1, 28, 2);
}
