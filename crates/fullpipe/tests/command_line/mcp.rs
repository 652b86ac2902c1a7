//! `fullpipe mcp`, driven by the client of the protocol's own library, and by hostile ones.

use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use fullpipe_record::{Content, Document};
use fullpipe_sys::{NetNamespace, ends_within};
use fullpipe_testkit::{Running, free_port, load_slot, require, wait_for_listener, within};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rmcp::model::{CallToolRequestParams, CallToolResult, Tool};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::common::{fullpipe, run};

const CAPTURE: &str = "../trace/tests/captures/rto-stalls.pcap.gz";

/// A trace of a path, in the form of Mahimahi.
const TRACE: &str = "1\n2\n3\n4\n5\n";

/// A client of a server that is its child.
struct Session {
    client: RunningService<RoleClient, ()>,
    child: Child,
}

impl Session {
    async fn start(command: &mut Command) -> Self {
        let mut child = piped(command);
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(child.stdin.take().unwrap()));
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(child.stdout.take().unwrap()));
        let client = ().serve((output.unwrap(), input.unwrap())).await.unwrap();
        Self { client, child }
    }

    async fn tools(&self) -> Vec<Tool> {
        self.client.list_all_tools().await.unwrap()
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> CallToolResult {
        let arguments = arguments.as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.client.call_tool(call).await.unwrap()
    }

    /// The text of a call that succeeds, and its document if the command has one.
    async fn succeeds(&self, tool: &'static str, arguments: Value) -> (String, Option<Content>) {
        let result = self.call(tool, arguments).await;
        let text = text_of(&result);
        assert_eq!(result.is_error, Some(false), "{text}");
        let document = result.structured_content.map(Document::from_value);
        (text, document.map(|document| document.unwrap().content))
    }

    /// The sentence of a call that is refused.
    async fn refuses(&self, tool: &'static str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        let text = text_of(&result);
        assert_eq!(result.is_error, Some(true), "{text}");
        text
    }

    /// Ends as clients do: closes standard input, and waits.
    async fn end(mut self) {
        self.client.cancel().await.unwrap();
        assert!(ends_within(&mut self.child, Duration::from_secs(20)));
        assert!(self.child.wait().unwrap().success());
    }
}

fn piped(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|block| block.text.as_str()).collect()
}

fn within_two_minutes<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_mins(2), work).await })
        .expect("the server answers")
}

/// A folder for a server, beside another that is none of its business.
struct Folders(TempDir);

impl Folders {
    fn new() -> Self {
        let folders = Self(tempfile::tempdir().unwrap());
        for name in ["inside", "outside"] {
            fs::create_dir(folders.0.path().join(name)).unwrap();
            fs::write(folders.path(name).join("link.up"), TRACE).unwrap();
            fs::copy(CAPTURE, folders.path(name).join("capture")).unwrap();
        }
        symlink(
            folders.path("outside").join("capture"),
            folders.path("inside").join("away"),
        )
        .unwrap();
        folders
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server of the one folder, with an archive that is named from where it runs.
    fn server(&self, arguments: &[&str]) -> Command {
        let mut command = fullpipe(&["mcp"]);
        command.arg(self.path("inside")).args(arguments);
        command
            .current_dir(&self.0)
            .env("FULLPIPE_STORE", "archive/of runs.db");
        command
    }

    fn archive(&self) -> PathBuf {
        self.path("archive/of runs.db")
    }
}

fn names(tools: &[Tool]) -> Vec<&str> {
    tools.iter().map(|tool| &*tool.name).collect()
}

/// What clients see of the tools; a flag that is new is seen here before it is offered.
#[test]
fn every_tool_is_listed_with_the_schema_of_its_arguments() {
    within_two_minutes(async {
        let folders = Folders::new();
        let reading = Session::start(&mut folders.server(&[])).await;
        let tools = reading.tools().await;
        let usual = [
            "calc", "explain", "trace", "diagnose", "simulate", "history", "report",
        ];
        assert_eq!(names(&tools), usual);
        let read_only = |tool: &Tool| tool.annotations.as_ref().unwrap().read_only_hint;
        assert!(tools.iter().all(|tool| read_only(tool) == Some(true)));
        reading.end().await;
        let all = Session::start(&mut folders.server(&["--allow", "measure,apply"])).await;
        let tools = all.tools().await;
        assert!(
            tools[usual.len()..]
                .iter()
                .all(|tool| read_only(tool) == Some(false))
        );
        let mut seen = String::new();
        for tool in &tools {
            assert!(!tool.description.as_ref().unwrap().is_empty());
            let schema = &tool.input_schema;
            writeln!(seen, "{} {}", tool.name, schema["required"]).unwrap();
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(!property["description"].as_str().unwrap().is_empty());
                writeln!(seen, "  {name}: {}", property["type"].as_str().unwrap()).unwrap();
            }
        }
        insta::assert_snapshot!(seen);
        all.end().await;
    });
}

#[test]
fn every_tool_that_reads_can_be_called() {
    require!(Landlock);
    within_two_minutes(async {
        let folders = Folders::new();
        fs::create_dir(folders.path("archive")).unwrap();
        let simulated = fullpipe(&["simulate", "--path", "rate=10M,rtt=10ms", "-t1", "--json"]);
        let document = run(&mut { simulated }, 60).stdout;
        fs::write(folders.path("inside/result.json"), document).unwrap();
        let session = Session::start(&mut folders.server(&[])).await;
        let (text, found) = session
            .succeeds("calc", json!({"bandwidth": "1G", "rtt": "100ms"}))
            .await;
        assert!(text.contains("11.92 MiB"), "{text}");
        assert!(matches!(found, Some(Content::Calculation { .. })));
        let (text, found) = session
            .succeeds("explain", json!({"verdict": "loss/policer"}))
            .await;
        assert!(text.contains("policer") && found.is_none(), "{text}");
        let (text, found) = session
            .succeeds("trace", json!({"files": ["capture"], "top": 3}))
            .await;
        assert!(text.contains("retransmi"), "{text}");
        assert!(matches!(found, Some(Content::Capture { .. })));
        let (text, found) = session
            .succeeds("diagnose", json!({"from": ["result.json"]}))
            .await;
        assert!(text.contains("The pipe is full"), "{text}");
        assert!(matches!(found, Some(Content::Diagnosis { .. })));
        let path = "rtt=10ms,trace=mahimahi link.up";
        let (text, found) = session
            .succeeds("simulate", json!({"path": path, "time": 1}))
            .await;
        assert!(text.contains("Mbit/s"), "{text}");
        assert!(matches!(found, Some(Content::Measurement { .. })));
        let (text, _) = session
            .succeeds("report", json!({"sources": ["result.json"]}))
            .await;
        assert!(text.contains("capacity"), "{text}");
        assert!(
            session
                .refuses("history", json!({"host": "far"}))
                .await
                .contains("archive")
        );
        let mut create = fullpipe(&["store", "create"]);
        create.env("FULLPIPE_STORE", folders.archive());
        assert!(run(&mut create, 20).status.success());
        let (_, found) = session.succeeds("history", json!({"host": "far"})).await;
        assert!(matches!(found, Some(Content::History { .. })));
        session.end().await;
    });
}

/// The whole document is a megabyte.
#[test]
fn an_answer_is_no_longer_than_an_assistant_reads() {
    require!(Landlock);
    within_two_minutes(async {
        let session = Session::start(&mut fullpipe(&["mcp"])).await;
        let result = session
            .call("simulate", json!({"path": "rate=100M,rtt=20ms"}))
            .await;
        let document = result.structured_content.clone().unwrap();
        assert!(document.to_string().len() < 50_000);
        let text = text_of(&result);
        assert!(
            text.contains("Lists of the document have at most"),
            "{text}"
        );
        let Content::Measurement { measurement, .. } =
            Document::from_value(document).unwrap().content
        else {
            panic!("{text}");
        };
        assert!(measurement.limit.is_some() && measurement.intervals.len() >= 8);
        session.end().await;
    });
}

#[test]
fn what_was_not_permitted_is_refused() {
    require!(Landlock);
    within_two_minutes(async {
        let folders = Folders::new();
        let session = Session::start(&mut folders.server(&[])).await;
        let host = json!({"host": "127.0.0.1"});
        for tool in [
            "measure",
            "diagnose_host",
            "try_remedy",
            "host_apply",
            "host_undo",
        ] {
            let why = session.refuses(tool, host.clone()).await;
            assert!(
                why.contains("not permitted") && why.contains("--allow"),
                "{why}"
            );
        }
        for (tool, arguments, named) in [
            ("calc", json!({"html": "page"}), "no argument \"html\""),
            ("calc", json!({"batch": "link.up"}), "no argument \"batch\""),
            (
                "trace",
                json!({"interface": "lo"}),
                "no argument \"interface\"",
            ),
            ("trace", json!({"redact": "new"}), "no argument \"redact\""),
            (
                "diagnose",
                json!({"target": "127.0.0.1"}),
                "no argument \"target\"",
            ),
            (
                "diagnose",
                json!({"command": ["id"]}),
                "no argument \"command\"",
            ),
            ("history", json!({"host": "--store=x"}), "neither a flag"),
            ("calc", json!({"rtt": {"is": 1}}), "rtt takes"),
            ("calc", json!({"rtt": "nonsense"}), "nonsense"),
            ("calc", json!({}), "two"),
        ] {
            let why = session.refuses(tool, arguments).await;
            assert!(why.contains(named), "{why}");
        }
        session.end().await;
        let measuring = Session::start(&mut folders.server(&["--allow", "measure"])).await;
        for (target, named) in [
            ("192.0.2.1", "may not be measured"),
            ("localhost.example.org", "may not be measured"),
            ("ssh://127.0.0.1", "neither a flag nor a URL"),
            ("http://127.0.0.1/", ""),
            ("--ssh=id", ""),
        ] {
            let why = measuring
                .refuses("diagnose_host", json!({"target": target}))
                .await;
            assert!(why.contains(named), "{why}");
        }
        let why = measuring
            .refuses("measure", json!({"host": "127.0.0.1", "ssh": "id"}))
            .await;
        assert!(why.contains("no argument"), "{why}");
        measuring.end().await;
    });
}

/// By its name, by way of a folder above, by a link, and as what another argument names, which only
/// the kernel sees.
#[test]
fn a_file_outside_the_folders_is_refused() {
    require!(Landlock);
    within_two_minutes(async {
        let folders = Folders::new();
        let session = Session::start(&mut folders.server(&[])).await;
        let outside = folders.path("outside/capture");
        for file in [
            "../outside/capture",
            "away",
            outside.to_str().unwrap(),
            "/etc/passwd",
            "-",
        ] {
            let why = session.refuses("trace", json!({"files": [file]})).await;
            assert!(why.contains("no file below") || file == "-", "{why}");
            session.refuses("diagnose", json!({"from": [file]})).await;
            session.refuses("report", json!({"sources": [file]})).await;
            session.refuses("simulate", json!({"scenario": file})).await;
        }
        let link = folders.path("outside/link.up");
        for file in ["../outside/link.up", link.to_str().unwrap()] {
            let path = format!("rtt=10ms,trace=mahimahi {file}");
            for tool in ["simulate", "calc"] {
                let arguments = json!({"path": path, "rtt": "10ms"});
                let why = session.refuses(tool, arguments).await;
                assert!(!why.contains("Mbit/s"), "{why}");
            }
            let why = session.refuses("simulate", json!({"path": path})).await;
            assert!(why.contains("ermission denied"), "{why}");
        }
        session.end().await;
        let none = Session::start(&mut fullpipe(&["mcp"])).await;
        let why = none.refuses("trace", json!({"files": [outside]})).await;
        assert!(why.contains("fullpipe mcp FOLDER"), "{why}");
        none.end().await;
    });
}

#[test]
fn a_permitted_host_is_measured() {
    let _load = load_slot();
    let port = free_port();
    let mut serve = fullpipe(&["serve", "--bind", "127.0.0.1", "--port"]);
    let _server = Running::start(serve.arg(port.to_string()));
    wait_for_listener(port);
    within_two_minutes(async {
        let loopback = Session::start(&mut fullpipe(&["mcp", "--allow", "measure"])).await;
        let load = json!({"host": "127.0.0.1", "port": port, "time": 1, "bitrate": "10M"});
        let (text, found) = loopback.succeeds("measure", load.clone()).await;
        assert!(text.contains("Mbit/s"), "{text}");
        assert!(matches!(found, Some(Content::Measurement { .. })));
        let host = json!({"target": format!("127.0.0.1:{port}"), "time": 1, "bitrate": "10M"});
        let (_, found) = loopback.succeeds("diagnose_host", host).await;
        assert!(matches!(found, Some(Content::Diagnosis { .. })));
        loopback.end().await;
        let other = ["mcp", "--allow", "measure", "--targets", "192.0.2.1"];
        let other = Session::start(&mut fullpipe(&other)).await;
        let why = other.refuses("measure", load).await;
        assert!(why.contains("may not be measured"), "{why}");
        other.end().await;
    });
}

#[test]
fn settings_are_changed_and_taken_back_where_that_is_permitted() {
    require!(Root);
    let _network = NetNamespace::create().unwrap();
    let own_wmem = || fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem");
    let before = own_wmem().unwrap();
    within_two_minutes(async {
        let session = Session::start(&mut fullpipe(&["mcp", "--allow", "apply"])).await;
        let elsewhere = json!({"settings": ["tcp_wmem=64MiB", "ssh://127.0.0.1"]});
        let why = session.refuses("host_apply", elsewhere).await;
        assert!(why.contains("neither a flag nor a URL"), "{why}");
        assert_eq!(own_wmem().unwrap(), before);
        let settings = json!({"settings": ["tcp_wmem=64MiB"]});
        let (_, found) = session.succeeds("host_apply", settings).await;
        assert!(matches!(found, Some(Content::HostApplied { .. })));
        assert!(own_wmem().unwrap().contains("67108864"));
        let (_, found) = session.succeeds("host_undo", json!({})).await;
        assert!(matches!(found, Some(Content::HostUndone { .. })));
        assert_eq!(own_wmem().unwrap(), before);
        session.end().await;
    });
}

/// Returns the numbers of the children of a process.
fn children_of(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let all: String = lists.collect();
    all.split_whitespace().map(str::to_owned).collect()
}

/// Makes a call that would last for hours, and returns it with the number of its program.
async fn endless_call(
    session: &Session,
) -> (JoinHandle<Result<CallToolResult, ServiceError>>, String) {
    let client = session.client.peer().clone();
    let arguments = json!({"path": "rate=10G,rtt=1ms", "time": "86400"});
    let call = CallToolRequestParams::new("simulate")
        .with_arguments(arguments.as_object().unwrap().clone());
    let call = tokio::spawn(async move { client.call_tool(call).await });
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!call.is_finished(), "it ended by itself: {:?}", call.await);
        if let Some(child) = children_of(session.child.id()).pop() {
            return (call, child);
        }
    }
}

fn is_gone(pid: &str) -> bool {
    // A dead one that nobody has waited for has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

#[test]
fn a_call_ends_when_its_client_cancels_it_or_goes() {
    require!(Landlock);
    within_two_minutes(async {
        let session = Session::start(&mut fullpipe(&["mcp"])).await;
        for _ in 0..2 {
            let (call, child) = endless_call(&session).await;
            // The client cancels a call that is dropped.
            call.abort();
            let ends = tokio::task::spawn_blocking(move || {
                within(Duration::from_secs(20), || is_gone(&child))
            });
            assert!(ends.await.unwrap());
        }
        let (_call, last) = endless_call(&session).await;
        session.end().await;
        assert!(is_gone(&last));
    });
}

#[test]
fn a_call_does_not_outlive_a_server_that_is_killed() {
    require!(Landlock);
    within_two_minutes(async {
        let mut session = Session::start(&mut fullpipe(&["mcp"])).await;
        let (call, child) = endless_call(&session).await;
        session.child.kill().unwrap();
        session.child.wait().unwrap();
        assert!(within(Duration::from_secs(10), || is_gone(&child)));
        assert!(call.await.unwrap().is_err());
    });
}

/// Returns the most memory that a process has had, in kilobytes.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.unwrap().split_whitespace().next();
    words.unwrap().parse().unwrap()
}

/// Returns ten megabytes: as random bytes, as one line without an end, and as messages that are
/// valid JSON, deep, or no messages.
fn garbage() -> [Vec<u8>; 4] {
    let mut random = vec![0; 10 << 20];
    Pcg64Mcg::seed_from_u64(7).fill_bytes(&mut random);
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":["{}"]}}"#,
        "x".repeat(4000)
    );
    let lines = format!("{message}\n[[[[[\nnull\n{{}}\n");
    [
        random,
        vec![b'x'; 10 << 20],
        lines.repeat((10 << 20) / lines.len()).into_bytes(),
        [vec![b'['; 10 << 20], b"\n".to_vec()].concat(),
    ]
}

#[test]
fn garbage_is_survived() {
    for (number, garbage) in garbage().into_iter().enumerate() {
        let mut child = piped(fullpipe(&["mcp"]).stderr(Stdio::null()));
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (answered, answer) = channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            let _ = answered.send(lines.any(|line| line.contains("\"id\":77")));
            // What else it answers is read too.
            lines.for_each(drop);
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        let greeted = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(input, "{hello}\n{greeted}").unwrap();
        input.write_all(&garbage).unwrap();
        let ping = json!({"jsonrpc": "2.0", "id": 77, "method": "ping"});
        writeln!(input, "\n{ping}").unwrap();
        let is_answered = answer.recv_timeout(Duration::from_mins(1));
        assert_eq!(is_answered, Ok(true), "{number}");
        let peak = peak_memory(child.id());
        assert!(peak < 100_000, "{number}: {peak} kB");
        println!("garbage {number}: {peak} kB");
        drop(input);
        assert!(ends_within(&mut child, Duration::from_secs(20)));
        assert!(child.wait().unwrap().success(), "{number}");
    }
}

/// Without a word of the protocol before it.
#[test]
fn garbage_from_the_start_ends_in_a_sentence() {
    for garbage in garbage() {
        let mut command = fullpipe(&["mcp"]);
        // It answers some of this, which nobody reads.
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // It may end before it has read all.
        let _ = input.write_all(&garbage);
        drop(input);
        assert!(ends_within(&mut child, Duration::from_mins(1)));
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{errors}");
        assert!(
            errors.contains("no client of the Model Context Protocol"),
            "{errors}"
        );
    }
}
