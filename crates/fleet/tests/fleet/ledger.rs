//! Runs in an archive, the incidents that they show, and who hears of them: on both databases.

use std::time::{Duration, Instant};

use fullpipe_fleet::plan::{
    EchoMinute, MeshHost, PollRequest, Slot, SlotOutcome, SlotPurpose, SlotReport,
};
use fullpipe_fleet::{
    FleetIncident, FleetLedger, FleetStatus, PairStatusKind, WEBHOOK, fleet_status,
};
use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_store::{ArchiveLocation, NewDocument, Store};
use fullpipe_testkit::{Postgres, require};
use fullpipe_units::{BitRate, ByteCount, Span};
use serde_json::Value;

const DAY: u64 = 86_400;
const START: u64 = 1_800_000_000 / DAY * DAY;

/// Names that would break a statement, a page or a line if they could.
const NAMES: [&str; 6] = [
    "alpha",
    "beta'; DROP TABLE fleet_slot; --",
    "<script>alert(1)</script>",
    "delta\n\"},{\"x\":\"",
    "ε\u{202e}psilon\u{7f}",
    "zeta",
];

struct World {
    store: Store,
    now: u64,
    /// Hosts that have gone silent.
    silent: Vec<&'static str>,
    /// Receiver into which runs are slow since then.
    slow: Option<(&'static str, u64)>,
    triggered: Vec<Slot>,
}

impl World {
    fn new(location: &ArchiveLocation) -> Self {
        let mut store = Store::create(location).unwrap();
        let mut ledger = FleetLedger::new(&mut store);
        for (number, name) in NAMES.into_iter().enumerate() {
            ledger.keep_invite(name, "", 1, START + 900).unwrap();
            let host = MeshHost {
                name: name.to_owned(),
                site: format!("site{}", number / 2),
                reach: Some("192.0.2.1:5201".to_owned()),
            };
            ledger.enrol_host(name, &host, name, START).unwrap();
        }
        Self {
            store,
            now: START,
            silent: Vec::new(),
            slow: None,
            triggered: Vec::new(),
        }
    }

    fn ledger(&mut self) -> FleetLedger<'_> {
        FleetLedger::new(&mut self.store)
    }

    fn status(&mut self) -> FleetStatus {
        let now = self.now;
        fleet_status(&mut self.ledger(), now).unwrap()
    }

    fn open(&mut self) -> Vec<FleetIncident> {
        let incidents = self.ledger().incidents(u64::MAX >> 1).unwrap();
        incidents
            .into_iter()
            .filter(|incident| incident.ended.is_none())
            .collect()
    }

    /// Lets hours pass in which hosts ask for their slots and do what these say.
    fn pass_hours(&mut self, hours: u64) {
        for _ in 0..hours * 2 {
            let now = self.now;
            let triggered = self.ledger().plan_changes(now).unwrap();
            assert_eq!(
                self.ledger().plan_changes(now).unwrap(),
                0,
                "after {triggered}"
            );
            self.ledger().plan_turns(now).unwrap();
            for name in NAMES {
                if !self.silent.contains(&name) {
                    self.poll(name);
                }
            }
            self.now += 1800;
        }
    }

    fn poll(&mut self, name: &str) {
        let now = self.now;
        let asked = PollRequest {
            ..PollRequest::default()
        };
        let answer = self.ledger().answer_poll(name, &asked, now * 1000).unwrap();
        let own = answer.orders.into_iter().map(|order| order.slot);
        let mut reports = Vec::new();
        for slot in own.filter(|slot| slot.client == name && slot.starts < now + 1800) {
            let document = self.document(&slot);
            let kept = self
                .ledger()
                .keep_slot_document(name, &slot.id, &document)
                .unwrap();
            reports.push(SlotReport {
                slot: slot.id.clone(),
                outcome: SlotOutcome::Done,
                why: String::new(),
                document: Some(kept.unwrap().id),
                bytes: ByteCount::new(1),
            });
            if slot.purpose != SlotPurpose::Rotation {
                self.triggered.push(slot);
            }
        }
        let asked = PollRequest { reports, ..asked };
        self.ledger().answer_poll(name, &asked, now * 1000).unwrap();
    }

    fn document(&self, slot: &Slot) -> NewDocument {
        let (_, receiver) = slot.ends_of_data();
        let is_slow = self
            .slow
            .is_some_and(|(host, since)| host == receiver && slot.starts > since);
        let wobble = u64::from(slot.id.as_bytes()[0]) % 16;
        let mbps = if is_slow { 200 } else { 900 } + wobble;
        let facts = StoredFacts {
            direction: slot.direction,
            steady: Some(BitRate::from_mbps(mbps)),
            rtt_idle: Some(Span::from_millis(20)),
            limit: Some(if is_slow { "loss" } else { "capacity" }.to_owned()),
            cause: Some(if is_slow { "policer" } else { "link" }.to_owned()),
            valid: true,
            ..StoredFacts::default()
        };
        NewDocument {
            head: StoredDocument {
                kind: "measurement".to_owned(),
                started: "2027-01-15T08:00:00Z".to_owned(),
                facts: vec![facts],
                ..StoredDocument::default()
            },
            body: slot.id.clone().into_bytes(),
        }
    }
}

fn check_incident(location: &ArchiveLocation) {
    let mut world = World::new(location);
    world
        .ledger()
        .keep_setting(WEBHOOK, "https://example.org/hook", true)
        .unwrap();
    world.pass_hours(5 * 24);
    assert_eq!(world.open(), [], "nothing has changed");
    assert!(world.triggered.is_empty(), "{:?}", world.triggered);
    let usual = world.status();
    assert_eq!(usual.pairs.len(), 30);
    assert!(
        usual
            .pairs
            .iter()
            .all(|pair| pair.kind == PairStatusKind::Usual),
        "{usual:?}"
    );

    let receiver = NAMES[2];
    let begun = world.now;
    world.slow = Some((receiver, begun));
    world.pass_hours(30);
    let [incident] = &world.open()[..] else {
        panic!("{:?}", world.open())
    };
    let start = format!("all pairs into {receiver} since ");
    assert!(incident.sentence.starts_with(&start), "{incident:?}");
    assert!(
        incident.sentence.ends_with(": loss/policer"),
        "{incident:?}"
    );
    assert!(
        (begun..begun + DAY).contains(&incident.since),
        "{incident:?}"
    );
    assert!(
        incident
            .changed
            .iter()
            .all(|pair| pair.receiver == receiver)
    );
    assert_eq!((incident.changed.len(), incident.unmeasured), (5, 0));
    // Two runs and a diagnosis for each of the pairs, and of four at once at most.
    let triggered = |purpose| {
        world
            .triggered
            .iter()
            .filter(move |slot| slot.purpose == purpose)
    };
    assert!((2..=10).contains(&triggered(SlotPurpose::Change).count()));
    assert!(triggered(SlotPurpose::Diagnosis).count() >= 1);
    let slots = world.triggered.clone();
    for slot in &slots {
        let same = slots
            .iter()
            .filter(|other| other.ends_of_data() == slot.ends_of_data());
        assert!(same.count() <= 3, "once for each change: {slots:?}");
    }
    let incident = incident.clone();
    check_announcements(&mut world, &incident);

    world.slow = None;
    let restored = world.now;
    while !world.open().is_empty() {
        assert!(world.now < restored + 2 * DAY, "{:?}", world.open());
        world.pass_hours(1);
    }
    let now = world.now;
    let said = world.ledger().incidents_to_announce(now).unwrap();
    let [said] = &said[..] else {
        panic!("{said:?}")
    };
    let body: Value = serde_json::from_str(&said.body).unwrap();
    assert_eq!(
        (&body["state"], &body["incident"]),
        (&"ended".into(), &incident.id.clone().into())
    );
    world.silent = vec![NAMES[5]];
    world.pass_hours(2);
    let status = world.status();
    let silent = status
        .pairs
        .iter()
        .filter(|pair| [&pair.sender, &pair.receiver].contains(&&NAMES[5].to_owned()));
    for pair in silent {
        assert_eq!(
            (pair.kind, pair.why),
            (PairStatusKind::Unknown, Some("a host is silent"))
        );
    }
    assert_eq!(status.incidents.len(), 1, "the one that is over");
    assert!(status.slots["done"] > 20, "{:?}", status.slots);
}

/// Each is made once, whoever asks; one that nobody confirms is made again.
fn check_announcements(world: &mut World, incident: &FleetIncident) {
    let now = world.now;
    let said = world.ledger().incidents_to_announce(now).unwrap();
    let [said] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(world.ledger().incidents_to_announce(now).unwrap(), []);
    assert_eq!(world.ledger().incidents_to_announce(now + 30).unwrap(), []);
    let again = world.ledger().incidents_to_announce(now + 90).unwrap();
    assert_eq!(again, std::slice::from_ref(said));
    world.ledger().note_announced(said).unwrap();
    assert_eq!(world.ledger().incidents_to_announce(now + 300).unwrap(), []);
    assert_eq!(said.url, "https://example.org/hook");
    let body: Value = serde_json::from_str(&said.body).unwrap();
    assert_eq!(body["text"], incident.sentence);
    assert_eq!(
        (&body["state"], &body["cause"]),
        (&"open".into(), &"loss/policer".into())
    );
    assert_eq!(body["pairs"].as_array().map(Vec::len), Some(5));
}

/// What an agent says of minutes to come, of hosts that there are not, and twice, does no harm.
fn check_echoes(location: &ArchiveLocation) {
    let mut world = World::new(location);
    let minute = |minute: u64, host: &str, ms: u64| EchoMinute {
        host: host.to_owned(),
        minute,
        sent: 60,
        lost: 0,
        rtt_ns: Some(ms * 1_000_000),
    };
    let first = START / 60;
    let say = |world: &mut World, now: u64, echoes: Vec<EchoMinute>| {
        let request = PollRequest {
            echoes,
            ..PollRequest::default()
        };
        for name in NAMES {
            world
                .ledger()
                .answer_poll(name, &request, now * 60_000)
                .unwrap();
        }
    };
    say(
        &mut world,
        first,
        vec![minute(u64::MAX, NAMES[1], 9), minute(first, "nobody", 9)],
    );
    let usual = (0..400)
        .map(|later| minute(first + later, NAMES[1], 20))
        .collect::<Vec<_>>();
    say(&mut world, first + 400, usual.clone());
    say(&mut world, first + 400, usual);
    assert_eq!(world.ledger().plan_changes((first + 400) * 60).unwrap(), 0);
    let longer = (400..420)
        .map(|later| minute(first + later, NAMES[1], 45))
        .collect();
    say(&mut world, first + 420, longer);
    let planned = world.ledger().plan_changes((first + 421) * 60).unwrap();
    assert_eq!(planned, 4 * 3, "four pairs of one host at once");
    let [incident] = &world.open()[..] else {
        panic!("{:?}", world.open())
    };
    let start = format!("all pairs with {} since ", NAMES[1]);
    assert!(incident.sentence.starts_with(&start), "{incident:?}");
    assert!(incident.sentence.ends_with(": round trips"), "{incident:?}");
    assert_eq!(incident.changed.len(), 10);
}

#[test]
fn an_incident_is_found_announced_and_over_on_sqlite() {
    for check in [check_incident, check_echoes] {
        let folder = tempfile::tempdir().unwrap();
        check(&ArchiveLocation::File(folder.path().join("fleet.db")));
    }
}

#[test]
fn an_incident_is_found_announced_and_over_on_postgresql() {
    require!(Postgres);
    let server = Postgres::start();
    check_incident(&server.database("incident").parse().unwrap());
    check_echoes(&server.database("echoes").parse().unwrap());
}

/// Fills an archive with a hundred hosts, of which each pair has its runs, its echoes, and the
/// slots of a month.
fn fill_archive(location: &ArchiveLocation) -> Store {
    let mut world = World::new(location);
    world.pass_hours(5 * 24);
    let now = world.now;
    let mut store = world.store;
    let echo: Vec<String> = (0..100)
        .map(|server| {
            format!("\"host{server:03}\":{{\"minute\":{},\"minutes\":360,\"usual_ns\":2e7,\"spread_ns\":1e5,\"doubts\":0,\"doubted\":0,\"lossy\":0.0,\"evidence\":0.0,\"grown\":0,\"sent\":0,\"lost\":0}}", now / 60)
        })
        .collect();
    let echo = format!("{{{}}}", echo.join(","));
    let statements = [
        "DELETE FROM fleet_pair WHERE watch IS NULL".to_owned(),
        numbered(100, &format!("INSERT INTO fleet_host (name, site, reach, certificate, renewed, seen, turn, offset_ms, program)
             SELECT 'host' || substr('00' || n, -3), 'site', 'x', n, '', {now}, 0, 0, '' FROM number")),
        format!("INSERT INTO fleet_pair (sender, receiver, planned, watch)
             SELECT one.name, other.name, {now}, (SELECT min(watch) FROM fleet_pair) FROM fleet_host AS one, fleet_host AS other
             WHERE one.name <> other.name AND one.name LIKE 'host%' AND other.name LIKE 'host%'"),
        format!("INSERT INTO fleet_watch (client, content) SELECT name, '{echo}' FROM fleet_host WHERE name LIKE 'host%'"),
        numbered(300_000, &format!("INSERT INTO fleet_slot (id, client, server, direction, purpose, starts, ends, load, outcome, why, document, watched)
             SELECT 'slot' || n, 'host' || substr('00' || (n % 100), -3), 'host000', 'upload', 'rotation', {now} - n * 9, {now}, '', 'done', '', '', 1 FROM number")),
    ];
    store
        .transact(|archive| {
            for sql in &statements {
                archive.query(sql, &[])?;
            }
            Ok(())
        })
        .unwrap();
    store
}

fn numbered(count: u32, sql: &str) -> String {
    let numbers = format!(
        "WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < {} )",
        count - 1
    );
    let (head, select) = sql.split_once("SELECT").unwrap();
    format!("{head} {numbers} SELECT {select}")
}

#[test]
fn a_hundred_hosts_take_a_blink() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = fill_archive(&ArchiveLocation::File(folder.path().join("fleet.db")));
    let now = START + 5 * DAY;
    let mut quickest = [Duration::MAX; 2];
    for _ in 0..5 {
        let begun = Instant::now();
        FleetLedger::new(&mut store).plan_changes(now).unwrap();
        quickest[0] = quickest[0].min(begun.elapsed());
        let begun = Instant::now();
        let status = fleet_status(&mut FleetLedger::new(&mut store), now).unwrap();
        quickest[1] = quickest[1].min(begun.elapsed());
        assert!(status.pairs.len() >= 9900, "{}", status.pairs.len());
    }
    crate::show(&format!("changes and status of 9900 pairs: {quickest:?}"));
    assert!(
        quickest
            .iter()
            .all(|time| *time < Duration::from_millis(500)),
        "{quickest:?}"
    );
}
