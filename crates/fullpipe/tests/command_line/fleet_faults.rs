//! A fleet with a real PostgreSQL and two controllers, whose programs are killed at any moment.

mod tests_alone {
    use std::fs;
    use std::path::PathBuf;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use fullpipe_testkit::{
        Postgres, Running, free_port, random_bytes, require, wait_for_listener, within,
    };
    use tempfile::TempDir;

    use crate::common::{fullpipe, run};
    use crate::fleet::CONTROLLER;

    /// Programs that are killed.
    const KILLS: usize = 30;

    /// Longest time after that until each slot has its end, and each result is handed over.
    const SETTLED: Duration = Duration::from_mins(5);

    /// Slots that are done by then, at least.
    const DONE: u64 = 8;

    /// Hosts of the fleet.
    const HOSTS: usize = 4;

    /// Fails in the database unless the query finds nothing.
    fn assert_none(server: &Postgres, what: &str, query: &str) {
        let sql = format!(
            "SET search_path TO fullpipe; DO $$ BEGIN IF EXISTS ({query}) THEN RAISE EXCEPTION '{what}'; END IF; END $$"
        );
        server.execute("fleet", &sql);
    }

    struct Fleet {
        folder: TempDir,
        url: String,
        ports: [u16; 2],
        reach: [u16; HOSTS],
        controllers: [Option<Running>; 2],
        agents: [Option<Running>; HOSTS],
    }

    impl Fleet {
        fn start_controller(&mut self, number: usize) {
            let port = self.ports[number];
            let mut command = fullpipe(&CONTROLLER);
            command
                .arg(format!("--port={port}"))
                .args(["--store", &self.url]);
            self.controllers[number] = Some(Running::start(&mut command));
        }

        fn state(&self, host: usize) -> PathBuf {
            self.folder.path().join(format!("host{host}"))
        }

        fn start_agent(&mut self, host: usize, invite: &[&str]) {
            let mut command = fullpipe(&["fleet", "agent"]);
            command
                .arg(format!("https://127.0.0.1:{}", self.ports[host % 2]))
                .args(invite)
                .arg("--state")
                .arg(self.state(host));
            let log = fs::File::options()
                .create(true)
                .append(true)
                .open(self.folder.path().join(format!("host{host}.log")));
            command.stdout(log.unwrap());
            self.agents[host] = Some(Running::start(&mut command));
        }

        fn join(&mut self, host: usize) {
            let words = ["fleet", "invite", "--store", &self.url];
            let code = run(&mut fullpipe(&words), 60).stdout;
            let code = String::from_utf8(code).unwrap().trim().to_owned();
            let (name, reach) = (format!("host{host}"), self.reach[host]);
            let reach = format!("127.0.0.1:{reach}");
            let invite = ["--invite", &code, "--name", &name, "--reach", &reach];
            self.start_agent(host, &invite);
        }

        /// Identifiers of the documents in an archive.
        fn documents(archive: &str) -> Vec<String> {
            let words = [
                "store",
                "list",
                "--json",
                "--limit=100000",
                "--store",
                archive,
            ];
            let listed = run(&mut fullpipe(&words), 60);
            assert!(listed.status.success(), "{listed:?}");
            let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
            let stored = listed["stored"].as_array().unwrap();
            let ids = stored
                .iter()
                .map(|head| head["id"].as_str().unwrap().to_owned());
            ids.collect()
        }

        /// Returns the number of slots that have a result.
        fn done_slots(&self) -> u64 {
            let words = ["fleet", "status", "--json", "--store", &self.url];
            let status = run(&mut fullpipe(&words), 60).stdout;
            let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
            status["slots"]["done"].as_u64().unwrap_or(0)
        }

        /// Returns true if the controllers have each result that an agent keeps.
        fn has_all(&self) -> bool {
            let kept = Self::documents(&self.url);
            (0..HOSTS).all(|host| {
                let own = self.state(host).join("agent.db").display().to_string();
                Self::documents(&own).iter().all(|id| kept.contains(id))
            })
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_or_met_while_programs_are_killed() {
        require!(Postgres);
        let mut server = Postgres::start();
        let mut fleet = Fleet {
            folder: tempfile::tempdir().unwrap(),
            url: server.database("fleet"),
            ports: [free_port(), free_port()],
            reach: std::array::from_fn(|_| free_port()),
            controllers: [None, None],
            agents: [None, None, None, None],
        };
        for number in 0..2 {
            fleet.start_controller(number);
            wait_for_listener(fleet.ports[number]);
        }
        for host in 0..HOSTS {
            fleet.join(host);
            let archive = fleet.state(host).join("agent.db");
            if !within(Duration::from_mins(1), || archive.exists()) {
                let agent = fleet.agents[host].take().unwrap();
                panic!("{:?}", agent.finish(Duration::from_secs(1)));
            }
        }
        sleep(Duration::from_mins(1));
        for byte in random_bytes(KILLS) {
            match usize::from(byte) % (2 + HOSTS + 1) {
                number @ 0..2 => {
                    fleet.controllers[number] = None;
                    sleep(Duration::from_millis(u64::from(byte) * 4));
                    fleet.start_controller(number);
                }
                6 => {
                    server.crash();
                    sleep(Duration::from_millis(u64::from(byte) * 4));
                    server.run();
                }
                host => {
                    fleet.agents[host - 2] = None;
                    sleep(Duration::from_millis(u64::from(byte) * 4));
                    fleet.start_agent(host - 2, &[]);
                }
            }
            sleep(Duration::from_secs(3));
        }
        let begun = Instant::now();
        while fleet.done_slots() < DONE || !fleet.has_all() {
            assert!(begun.elapsed() < SETTLED, "results are not handed over");
            sleep(Duration::from_secs(2));
        }
        assert_none(
            &server,
            "a document of two slots",
            "SELECT document FROM fleet_slot WHERE document <> '' GROUP BY document HAVING count(*) > 1",
        );
        assert_none(
            &server,
            "a slot is done without a document",
            "SELECT 1 FROM fleet_slot WHERE outcome = 'done' AND document NOT IN (SELECT id FROM document)",
        );
        assert_none(
            &server,
            "a slot has no end",
            "SELECT 1 FROM fleet_slot WHERE outcome IS NULL AND ends < extract(epoch FROM now()) - 300",
        );
        let loads = "SELECT s.id, client, server, started AS from_ns, started + duration_ns AS to_ns
                     FROM fleet_slot s JOIN document d ON d.id = s.document JOIN fact f ON f.document = d.id";
        assert_none(
            &server,
            "two loads met at a host",
            &format!(
                "WITH load AS ({loads}) SELECT 1 FROM load a JOIN load b ON a.id < b.id
                 AND a.from_ns < b.to_ns AND b.from_ns < a.to_ns
                 AND (a.client IN (b.client, b.server) OR a.server IN (b.client, b.server))"
            ),
        );
    }
}
