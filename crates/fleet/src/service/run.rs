use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use fullpipe_control::{WebClientTls, is_admitted};
use fullpipe_iperf::{SharedKey, TestTicket};
use fullpipe_record::{Direction, Document};
use fullpipe_store::{NewDocument, StoreError};
use fullpipe_sys::end_with_this_thread;
use fullpipe_units::{ByteCount, Span, printable_line};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;
use tokio::net::lookup_host;
use tokio::process::Command;
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};

use super::client::{ClientError, HttpsClient};
use super::echo::FleetEchoes;
use super::host::{AgentFolder, AgentIdentity, JoinedHost, RenewRequest};
use crate::identity::{HostKey, IdentityError};
use crate::plan::{
    AgentClock, AgentPolicy, AgentStep, PollAnswer, PollRequest, Slot, SlotOrder, SlotOutcome,
    SlotPurpose, SlotReport, SlotTicket,
};
use crate::{Agent, AgentDisk};

/// Seconds for which a controller may wait with its answer until there is news.
pub const LONGEST_WAIT: u64 = 50;

/// Shortest and longest time after a controller that cannot be reached.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Time after which the program that serves tests is started again.
const RESTART: Duration = Duration::from_secs(5);

/// Time between two questions whose round trips are to be measured.
const TARGETS: Duration = Duration::from_mins(5);

/// Age of a certificate, in seconds, at which it is renewed: 20 of its 30 days.
const RENEWAL: u64 = 20 * 86_400;

/// Seconds by which clocks may differ: the ticket of a slot is good for so long before its start,
/// and for its load until so long before its end.
const TICKET_MARGIN: u64 = 2;

/// How the sentence begins of a test whose other end is not there.
const NOT_THERE: &str = "cannot connect to";

/// What an agent needs besides what its folder has.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The folder.
    pub folder: AgentFolder,
    /// Who the host is.
    pub identity: AgentIdentity,
    /// Port of a controller whose URL has none.
    pub controller_port: u16,
    /// What the host permits.
    pub policy: AgentPolicy,
    /// File of the program that measures and serves.
    pub program: PathBuf,
    /// Words of the command line with which it serves, without the secret; `None` if other hosts
    /// do not connect to this one.
    pub serves: Option<Vec<String>>,
}

/// Why an agent ends.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Its disk refuses.
    #[error(transparent)]
    Disk(#[from] StoreError),
    /// A file of its folder cannot be used.
    #[error("cannot use the folder of the agent: {0}")]
    Folder(#[from] io::Error),
    /// A certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The controller has sent it away.
    #[error("this host has no place in the fleet: {0}")]
    Revoked(ClientError),
    /// The certificate of the agent cannot be used for TLS.
    #[error("cannot use the certificate of this host: {0}")]
    Tls(#[from] fullpipe_control::TlsError),
}

/// Runs the agent of a host until the future is dropped, its disk refuses, or its controller sends
/// it away. `log` gets a line for what happens.
///
/// # Errors
/// Fails for these reasons.
pub async fn run_agent(
    agent: Agent<AgentDisk>,
    options: AgentOptions,
    log: &dyn Fn(&str),
) -> Result<(), AgentError> {
    let service = AgentService {
        secret: options.folder.ticket_secret()?,
        client: RefCell::new(client_of(&options.identity, options.controller_port)?),
        identity: RefCell::new(options.identity.clone()),
        agent: RefCell::new(agent),
        echoes: Mutex::default(),
        targets_due: Cell::new(0),
        news: Notify::new(),
        orders: Notify::new(),
        options,
        log,
    };
    let serving = async {
        match &service.options.serves {
            Some(words) => service.keep_serving(words).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = service.keep_polling() => ended,
        ended = service.keep_slots() => ended,
        () = serving => Ok(()),
    }
}

fn client_of(identity: &AgentIdentity, port: u16) -> Result<HttpsClient, AgentError> {
    let JoinedHost {
        certificate,
        authority,
    } = &identity.certificates;
    let tls = WebClientTls::with_certificate(
        authority.as_bytes(),
        certificate.as_bytes(),
        identity.key.as_bytes(),
    )?;
    HttpsClient::from_url(&identity.controller, port, tls)
        .map_err(|why| AgentError::Folder(io::Error::other(why)))
}

struct AgentService<'l> {
    options: AgentOptions,
    identity: RefCell<AgentIdentity>,
    client: RefCell<HttpsClient>,
    secret: SharedKey,
    agent: RefCell<Agent<AgentDisk>>,
    echoes: Mutex<FleetEchoes>,
    /// When the controller is asked whose round trips are measured, by the steady clock.
    targets_due: Cell<u64>,
    /// There is something for the controller.
    news: Notify,
    /// There is something from it.
    orders: Notify,
    log: &'l dyn Fn(&str),
}

/// Returns the clocks of this host.
fn clocks() -> AgentClock {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let steady = clock_gettime(ClockId::Boottime);
    AgentClock {
        wall_ms: wall.unwrap_or_default().as_millis() as u64,
        steady_ms: steady.tv_sec as u64 * 1000 + steady.tv_nsec as u64 / 1_000_000,
    }
}

impl AgentService<'_> {
    async fn keep_polling(&self) -> Result<(), AgentError> {
        let mut known = String::new();
        let mut pause = BACKOFF[0];
        loop {
            match self.talk(&mut known).await {
                Ok(()) => pause = BACKOFF[0],
                Err(TalkError::Ends(error)) => return Err(error),
                Err(TalkError::Later(error)) => {
                    (self.log)(&format!(
                        "the controller: {error}; asked again in {} s",
                        pause.as_secs()
                    ));
                    sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF[1]);
                }
            }
        }
    }

    /// Hands documents over, says what there is to say, and takes the slots.
    async fn talk(&self, known: &mut String) -> Result<(), TalkError> {
        self.renew_certificate().await?;
        self.hand_over_documents().await?;
        let client = self.client.borrow().clone();
        self.ask_for_targets(&client).await?;
        let request = PollRequest {
            known: known.clone(),
            echoes: self.echoes.lock().await.oldest_minutes(),
            ..self.agent.borrow().poll_request(clocks())
        };
        let path = format!("/v1/slots?wait={LONGEST_WAIT}");
        let wait = Duration::from_secs(LONGEST_WAIT);
        let asked = client.ask("POST", &path, &request, wait);
        let answer: PollAnswer = tokio::select! {
            answer = asked => answer?,
            () = self.news.notified() => return Ok(()),
        };
        known.clone_from(&answer.version);
        let echoes = self.echoes.lock().await;
        echoes.drop_minutes(request.echoes.len());
        self.take_answer(&answer).map_err(TalkError::Ends)
    }

    /// Asks from time to time whose round trips are to be measured.
    async fn ask_for_targets(&self, client: &HttpsClient) -> Result<(), TalkError> {
        let now = clocks().steady_ms;
        if self.targets_due.get() > now {
            return Ok(());
        }
        let targets = client
            .ask("GET", "/v1/targets", &(), Duration::ZERO)
            .await?;
        let set = self.echoes.lock().await.set_targets(targets).await;
        set.map_err(AgentError::from)?;
        self.targets_due.set(now + TARGETS.as_millis() as u64);
        Ok(())
    }

    fn take_answer(&self, answer: &PollAnswer) -> Result<(), AgentError> {
        let mut agent = self.agent.borrow_mut();
        agent.take_answer(answer, clocks())?;
        for slot in agent.unticketed(clocks()) {
            let ticket = self.ticket(&slot);
            agent.give_ticket(&SlotTicket {
                slot: slot.id,
                ticket,
            })?;
        }
        self.orders.notify_one();
        Ok(())
    }

    /// Returns the ticket of a slot, with its key: this host's agreement that the client makes one
    /// test.
    fn ticket(&self, slot: &Slot) -> String {
        let seconds = slot.load.duration.as_secs_f64().ceil() as u64;
        let ticket = TestTicket {
            slot: slot.id.clone(),
            client: slot.client.clone(),
            opens: slot.starts.saturating_sub(TICKET_MARGIN),
            // A load that begins then ends with the slot.
            closes: slot.ends.saturating_sub(seconds + TICKET_MARGIN),
            seconds,
            streams: slot.load.streams,
            bytes: slot.load.bytes,
            rate: None,
            udp: false,
            direction: Some(slot.direction),
        };
        ticket.seal(&self.secret).to_line()
    }

    async fn hand_over_documents(&self) -> Result<(), TalkError> {
        let waiting = self.agent.borrow().documents_to_hand_over();
        let client = self.client.borrow().clone();
        for (slot, id) in waiting {
            let document = self.agent.borrow_mut().disk().document(&id);
            let document = document.map_err(AgentError::from)?;
            let path = format!("/v1/slots/{slot}/document");
            let kept = client.request("PUT", &path, &document, Duration::ZERO);
            match kept.await {
                // A slot that the controller does not have: nobody waits for that.
                Err(error @ ClientError::Refused { status: 404, .. }) => {
                    (self.log)(&format!("document {id} stays here: {error}"));
                }
                kept => drop(kept?),
            }
            self.agent.borrow_mut().note_handed_over(&slot);
        }
        Ok(())
    }

    /// Gets a new certificate where the one that there is ends within days.
    async fn renew_certificate(&self) -> Result<(), TalkError> {
        let now = clocks().seconds();
        if self.identity.borrow().signed + RENEWAL > now {
            return Ok(());
        }
        let key = HostKey::new().map_err(AgentError::from)?;
        let request = RenewRequest {
            public_key: key.public_key().to_vec(),
        };
        let client = self.client.borrow().clone();
        let certificates = client
            .ask("POST", "/v1/renew", &request, Duration::ZERO)
            .await?;
        let renewed = AgentIdentity {
            certificates,
            key: key.to_pem(),
            signed: now,
            ..self.identity.borrow().clone()
        };
        let client = client_of(&renewed, self.options.controller_port)?;
        let folder = &self.options.folder;
        folder.keep_identity(&renewed).map_err(AgentError::from)?;
        *self.client.borrow_mut() = client;
        *self.identity.borrow_mut() = renewed;
        (self.log)("the certificate of this host is renewed");
        Ok(())
    }

    async fn keep_slots(&self) -> Result<(), AgentError> {
        loop {
            let step = self.agent.borrow_mut().next_step(clocks())?;
            match step {
                AgentStep::Run(order) => self.run_slot(&order).await?,
                AgentStep::Wait(until) => {
                    self.news_of_ends();
                    let wait = until.map_or(Duration::from_secs(LONGEST_WAIT), |until| {
                        let wait = (until * 1000).saturating_sub(clocks().wall_ms);
                        Duration::from_millis(wait.clamp(10, LONGEST_WAIT * 1000))
                    });
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.orders.notified() => {}
                    }
                }
            }
        }
    }

    /// Has the controller told of slots that ended without a test.
    fn news_of_ends(&self) {
        let has_news = !self
            .agent
            .borrow()
            .poll_request(clocks())
            .reports
            .is_empty();
        if has_news {
            self.news.notify_one();
        }
    }

    async fn run_slot(&self, order: &SlotOrder) -> Result<(), AgentError> {
        let ended = self.run_test(order).await?;
        let slot = &order.slot;
        let why = if ended.why.is_empty() {
            String::new()
        } else {
            format!(": {}", ended.why)
        };
        let outcome = ended.outcome.name();
        let peer = if slot.direction == Direction::Download {
            format!("from {}", slot.server)
        } else {
            format!("to {}", slot.server)
        };
        (self.log)(&format!("the test {peer} is {outcome}{why}"));
        let report = SlotReport {
            slot: slot.id.clone(),
            outcome: ended.outcome,
            why: ended.why,
            document: ended.document.as_ref().map(|kept| kept.head.id.clone()),
            bytes: ended.bytes,
        };
        self.agent
            .borrow_mut()
            .end_run(report, ended.document.as_ref())?;
        self.news.notify_one();
        Ok(())
    }

    async fn run_test(&self, order: &SlotOrder) -> Result<EndedTest, AgentError> {
        let address = match self.permitted_address(&order.reach).await {
            Ok(address) => address,
            Err(ended) => return Ok(ended),
        };
        let folder = &self.options.folder;
        let ticket = order.ticket.clone().unwrap_or_default();
        folder.write_secret(&folder.ticket_file(), ticket.as_bytes())?;
        let mut command = self.child();
        command.args(test_arguments(&order.slot, address, &folder.ticket_file()));
        let seconds = order.slot.ends.saturating_sub(clocks().seconds());
        let ended = timeout(Duration::from_secs(seconds), command.output()).await;
        Ok(match ended {
            Ok(Ok(output)) => EndedTest::from_output(output.status, &output.stdout),
            Ok(Err(error)) => EndedTest::failed(format!("the program cannot be started: {error}")),
            Err(_) => EndedTest::failed("it did not end in its time".to_owned()),
        })
    }

    /// Returns where the server of a slot is, if the policy lets this host connect there.
    async fn permitted_address(&self, reach: &str) -> Result<SocketAddr, EndedTest> {
        let found = lookup_host(reach).await;
        let address = found.map(|mut found| found.next());
        match address {
            Ok(Some(address)) if permits_address(&self.options.policy, address.ip()) => Ok(address),
            Ok(Some(address)) => Err(EndedTest {
                outcome: SlotOutcome::Refused,
                ..EndedTest::failed(format!(
                    "the policy of this host permits no test with {}",
                    address.ip()
                ))
            }),
            Ok(None) => Err(EndedTest::failed(format!("{reach} has no address"))),
            Err(error) => Err(EndedTest::failed(format!(
                "{reach} has no address: {error}"
            ))),
        }
    }

    /// Returns the command of this program, which ends with the agent, however that ends.
    fn child(&self) -> Command {
        let mut command = std::process::Command::new(&self.options.program);
        command.stdin(Stdio::null());
        end_with_this_thread(&mut command);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// Keeps the program running that serves tests with tickets.
    async fn keep_serving(&self, words: &[String]) {
        loop {
            let child = self
                .child()
                .arg("serve")
                .args(words)
                .arg("--tickets")
                .arg(self.options.folder.ticket_secret_file())
                .spawn();
            let ended = match child {
                Ok(mut child) => child.wait().await.map(|status| status.to_string()),
                Err(error) => Err(error),
            };
            let why = ended.unwrap_or_else(|error| error.to_string());
            (self.log)(&format!(
                "the server of tests ended ({why}) and is started again"
            ));
            sleep(RESTART).await;
        }
    }
}

/// Returns true if a policy lets its host connect to an address.
fn permits_address(policy: &AgentPolicy, address: IpAddr) -> bool {
    policy.networks.is_empty() || is_admitted(address, &policy.networks, &[])
}

/// Why a talk with the controller broke off.
enum TalkError {
    /// It is tried again.
    Later(ClientError),
    /// The agent ends.
    Ends(AgentError),
}

impl From<ClientError> for TalkError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { status: 401, .. } => Self::Ends(AgentError::Revoked(error)),
            other => Self::Later(other),
        }
    }
}

impl From<AgentError> for TalkError {
    fn from(error: AgentError) -> Self {
        Self::Ends(error)
    }
}

/// How a test ended.
struct EndedTest {
    outcome: SlotOutcome,
    why: String,
    document: Option<NewDocument>,
    bytes: ByteCount,
}

impl EndedTest {
    fn failed(why: String) -> Self {
        Self {
            outcome: SlotOutcome::Failed,
            why,
            document: None,
            bytes: ByteCount::ZERO,
        }
    }

    /// Returns how a test ended that printed this.
    fn from_output(status: ExitStatus, output: &[u8]) -> Self {
        let Ok(document) = Document::from_json(output) else {
            return Self::failed(format!("the test ended without a document ({status})"));
        };
        let kept = NewDocument::from_document(&document, Timestamp::now());
        let Some(kept) = kept.into_iter().next() else {
            let why = document.error.map(|error| printable_line(&error.message));
            return Self {
                outcome: if why.as_deref().is_some_and(|why| why.starts_with(NOT_THERE)) {
                    SlotOutcome::NoShow
                } else {
                    SlotOutcome::Failed
                },
                ..Self::failed(why.unwrap_or_else(|| status.to_string()))
            };
        };
        let bytes = kept.head.facts.iter().map(|facts| {
            let carried = facts.rate.zip(facts.duration);
            carried.map_or(ByteCount::ZERO, |(rate, duration)| rate.bytes_in(duration))
        });
        Self {
            outcome: if status.success() {
                SlotOutcome::Done
            } else {
                SlotOutcome::Failed
            },
            why: document
                .error
                .map_or_else(String::new, |error| printable_line(&error.message)),
            bytes: bytes.sum(),
            document: Some(kept),
        }
    }
}

/// Returns the words of the command line of a test, behind the name of the program.
fn test_arguments(slot: &Slot, address: SocketAddr, ticket: &Path) -> Vec<String> {
    let seconds = |span: Span| format!("{}s", span.as_secs_f64());
    let mut words = vec![
        "measure".to_owned(),
        "--json".to_owned(),
        "--no-store".to_owned(),
        format!("--time={}", seconds(slot.load.duration)),
        format!("--streams={}", slot.load.streams),
        format!("--ticket={}", ticket.display()),
    ];
    if slot.direction == Direction::Download {
        words.push("--reverse".to_owned());
    }
    if slot.purpose == SlotPurpose::Diagnosis {
        words.push("--route".to_owned());
    }
    words.extend(["--".to_owned(), address.to_string()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_the_networks_to_which_its_host_connects() {
        let near = AgentPolicy::from_toml("networks = ['192.0.2.0/24', '2001:db8::/32']").unwrap();
        for (address, is_permitted) in [
            ("192.0.2.9", true),
            ("198.51.100.1", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(permits_address(&near, address), is_permitted, "{address}");
            assert!(permits_address(&AgentPolicy::default(), address));
        }
    }
}
