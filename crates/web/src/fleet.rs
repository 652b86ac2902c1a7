//! The controller of a fleet: what agents ask over HTTPS, and the plan that goes on meanwhile.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::{ClientPlaces, WebClientTls, WebIdentity, unix_seconds};
use fullpipe_fleet::plan::{MeshHost, PollAnswer, PollRequest};
use fullpipe_fleet::service::{HttpsClient, JoinRequest, JoinedHost, LONGEST_WAIT, RenewRequest};
use fullpipe_fleet::{FleetAuthority, FleetLedger, InviteError, certificate_hash};
use fullpipe_record::Document;
use fullpipe_store::{ArchiveLocation, NewDocument};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::answer::{Answer, JSON, Refusal, whole_answer};
use crate::api;
use crate::archive::{Archive, ArchiveRefusal};
use crate::connections::{Connections, RequestService};
use crate::route::Query;

/// Connections at once: agents, one each, and as many again.
const MAX_CONNECTIONS: u32 = 4096;

/// Connections at once of one address: a site may have one for all of its hosts.
const MAX_OF_CLIENT: u32 = 1024;

/// Time for the body of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// Longest body of a request but a document, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Longest document, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;

/// Minutes of round trips after which an agent has more to say.
const MANY_ECHOES: usize = 1000;

/// Time between two looks for news of an agent that waits.
const LOOK: Duration = Duration::from_secs(5);

/// Port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// Time between two looks at the plan.
const PLANNING: Duration = Duration::from_secs(20);

/// What a controller needs.
#[derive(Clone)]
pub struct ControllerOptions {
    /// Its certificate, and the authority that it knows its hosts by.
    pub identity: WebIdentity,
    /// The archive.
    pub archive: ArchiveLocation,
    /// Signs certificates.
    pub authority: Arc<FleetAuthority>,
}

struct FleetController {
    archive: Archive,
    authority: Arc<FleetAuthority>,
}

/// Serves the agents of a fleet, and plans their slots, until the future is dropped. `log` gets a
/// line for what happens.
///
/// # Errors
/// Never fails; what the archive refuses is tried again.
pub async fn serve_fleet(
    listeners: Vec<TcpListener>,
    options: ControllerOptions,
    log: &dyn Fn(&str),
) -> io::Result<()> {
    let controller = FleetController {
        archive: Archive::new(options.archive),
        authority: options.authority,
    };
    let places = ClientPlaces::new(MAX_CONNECTIONS, MAX_OF_CLIENT);
    let connections = Connections::new(controller, Some(options.identity), places);
    let serving = Arc::clone(&connections).serve_listeners(listeners);
    tokio::select! {
        () = serving => Ok(()),
        () = connections.service().keep_planning(log) => Ok(()),
    }
}

impl RequestService for FleetController {
    async fn answer(&self, request: Request<Incoming>, certificate: Option<&[u8]>) -> Answer {
        let answered = self.answer_request(request, certificate).await;
        answered.unwrap_or_else(|refusal| api::refusal_answer(&refusal))
    }
}

impl FleetController {
    async fn keep_planning(&self, log: &dyn Fn(&str)) {
        let mut failed = String::new();
        loop {
            let planned = self.ledger(|ledger| {
                let now = unix_seconds();
                ledger.close_overdue(now)?;
                Ok(ledger.plan_turns(now)? + ledger.plan_changes(now)?)
            });
            let planned = match planned.await {
                Ok(slots) => self.announce_incidents().await.map(|()| slots),
                failed => failed,
            };
            match planned {
                Ok(0) => failed.clear(),
                Ok(slots) => {
                    failed.clear();
                    log(&format!("planned {slots} slots"));
                }
                Err(refusal) if refusal.why != failed => {
                    log(&refusal.why);
                    failed = refusal.why;
                }
                Err(_) => {}
            }
            sleep(PLANNING).await;
        }
    }

    /// Announces incidents that begin or end. What does not arrive is tried again later.
    async fn announce_incidents(&self) -> Result<(), Refusal> {
        let due = self.ledger(|ledger| Ok(ledger.incidents_to_announce(unix_seconds())?));
        for announcement in due.await? {
            let (client, path) = webhook_client(&announcement.url).map_err(Refusal::bad_request)?;
            let sent = client.request("POST", &path, announcement.body.as_bytes(), Duration::ZERO);
            sent.await.map_err(|error| {
                Refusal::bad_request(format!("cannot announce an incident: {error}"))
            })?;
            self.ledger(move |ledger| Ok(ledger.note_announced(&announcement)?))
                .await?;
        }
        Ok(())
    }

    async fn answer_request(
        &self,
        request: Request<Incoming>,
        certificate: Option<&[u8]>,
    ) -> Result<Answer, Refusal> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let method = request.method().clone();
        match (method, parts.as_slice()) {
            (Method::POST, ["v1", "join"]) => return self.join(read_json(request).await?).await,
            (Method::POST, ["v1", "slots" | "renew"])
            | (Method::GET, ["v1", "targets"])
            | (Method::PUT, ["v1", "slots", _, "document"]) => {}
            _ => {
                let refusal = Refusal::not_found("this controller has no such address");
                return Err(refuse_behind_body(request, refusal).await);
            }
        }
        let host = match self.host_of_certificate(certificate).await {
            Ok(host) => host,
            Err(refusal) => return Err(refuse_behind_body(request, refusal).await),
        };
        match parts.as_slice() {
            ["v1", "slots"] => {
                let query = Query::from_text(request.uri().query().unwrap_or_default());
                let wait = query.value("wait").and_then(|wait| wait.parse().ok());
                let poll = read_json(request).await?;
                self.slots(&host, poll, wait.unwrap_or(0)).await
            }
            ["v1", "renew"] => self.renew(host, read_json(request).await?).await,
            ["v1", "targets"] => {
                let targets = self.ledger(move |ledger| Ok(ledger.echo_targets(&host)?));
                json_answer(&targets.await?)
            }
            [_, _, slot, _] => {
                let body = read_body(request, MAX_DOCUMENT).await?;
                self.keep_document(host, (*slot).to_owned(), body).await
            }
            _ => Err(Refusal::not_found("this controller has no such address")),
        }
    }

    async fn ledger<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut FleetLedger<'_>) -> Result<T, ArchiveRefusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.archive
            .ask(|store| ask(&mut FleetLedger::new(store)))
            .await
    }

    async fn host_of_certificate(&self, certificate: Option<&[u8]>) -> Result<String, Refusal> {
        let unknown = |why| Refusal::new(StatusCode::UNAUTHORIZED, why);
        let certificate =
            certificate.ok_or_else(|| unknown("a host shows its certificate here"))?;
        let hash = certificate_hash(certificate);
        let host = self
            .ledger(move |ledger| Ok(ledger.host_of_certificate(&hash)?))
            .await?;
        let host = host
            .ok_or_else(|| unknown("this host was sent away, or has another certificate by now"))?;
        Ok(host.mesh.name)
    }

    /// Takes a new host into the fleet.
    async fn join(&self, request: JoinRequest) -> Result<Answer, Refusal> {
        request.check_names().map_err(Refusal::bad_request)?;
        let signed = self
            .authority
            .host_certificate(&request.host, &request.public_key, Timestamp::now())
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let joined = JoinedHost {
            certificate: signed.pem,
            authority: self.authority.certificate.clone(),
        };
        self.ledger(move |ledger| {
            let host = MeshHost {
                name: request.host,
                site: request.site,
                reach: request.reach,
            };
            let code = &request.code;
            ledger
                .enrol_host(code, &host, &signed.hash, unix_seconds())
                .map_err(|error| match error {
                    InviteError::Store(error) => ArchiveRefusal::Store(error),
                    other => Refusal::new(StatusCode::FORBIDDEN, other.to_string()).into(),
                })
        })
        .await?;
        json_answer(&joined)
    }

    async fn renew(&self, host: String, request: RenewRequest) -> Result<Answer, Refusal> {
        let signed = self
            .authority
            .host_certificate(&host, &request.public_key, Timestamp::now())
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let hash = signed.hash;
        self.ledger(move |ledger| Ok(ledger.renew_host(&host, &hash)?))
            .await?;
        json_answer(&JoinedHost {
            certificate: signed.pem,
            authority: self.authority.certificate.clone(),
        })
    }

    /// Answers an agent once it has news for it, or after its time.
    async fn slots(&self, host: &str, request: PollRequest, wait: u64) -> Result<Answer, Refusal> {
        let until = Instant::now() + Duration::from_secs(wait.min(LONGEST_WAIT));
        let known = request.known.clone();
        let says_something = !request.reports.is_empty()
            || !request.tickets.is_empty()
            || request.echoes.len() > MANY_ECHOES;
        let quiet = PollRequest {
            offset_ms: request.offset_ms,
            program: request.program.clone(),
            ..PollRequest::default()
        };
        let mut answer = self.answer_poll(host, request).await?;
        while !says_something && answer.version == known && Instant::now() < until {
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
            answer = self.answer_poll(host, quiet.clone()).await?;
        }
        json_answer(&answer)
    }

    async fn answer_poll(&self, host: &str, request: PollRequest) -> Result<PollAnswer, Refusal> {
        let host = host.to_owned();
        self.ledger(move |ledger| {
            let clock_ms = Timestamp::now().as_millisecond().max(0).cast_unsigned();
            Ok(ledger.answer_poll(&host, &request, clock_ms)?)
        })
        .await
    }

    async fn keep_document(
        &self,
        host: String,
        slot: String,
        body: Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let document = Document::from_json(&body)
            .map_err(|error| Refusal::bad_request(format!("this is no document: {error}")))?;
        let kept = NewDocument::from_document(&document, Timestamp::now());
        let [kept] = <[NewDocument; 1]>::try_from(kept)
            .map_err(|_| Refusal::bad_request("this document is of no test"))?;
        let kept = NewDocument { body, ..kept };
        let kept = self.ledger(move |ledger| Ok(ledger.keep_slot_document(&host, &slot, &kept)?));
        let kept = kept
            .await?
            .ok_or_else(|| Refusal::not_found("this host has no such slot"))?;
        json_answer(&kept.id)
    }
}

/// Returns who is told of incidents, and the path there.
///
/// # Errors
/// Fails with a sentence if the URL is none of HTTPS.
pub fn webhook_client(url: &str) -> Result<(HttpsClient, String), String> {
    let tls = WebClientTls::trusting_system().map_err(|error| error.to_string())?;
    let begin = url.strip_prefix("https://").unwrap_or_default();
    let end = begin
        .find('/')
        .map_or(url.len(), |slash| url.len() - begin.len() + slash);
    let (server, path) = url.split_at(end);
    if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(format!("{url:?} is no URL"));
    }
    let client = HttpsClient::from_url(server, HTTPS_PORT, tls)?;
    Ok((client, if path.is_empty() { "/" } else { path }.to_owned()))
}

fn json_answer(value: &impl Serialize) -> Result<Answer, Refusal> {
    let body = serde_json::to_vec(value)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(whole_answer(StatusCode::OK, JSON, body))
}

async fn read_body(request: Request<Incoming>, most: usize) -> Result<Vec<u8>, Refusal> {
    let too_large = Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body broke off, or is longer than {most} bytes"),
    );
    // Said before it is sent, whoever asks first hears it.
    if request.body().size_hint().lower() > most as u64 {
        return Err(too_large);
    }
    let body = Limited::new(request.into_body(), most);
    match timeout(BODY_DEADLINE, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(_)) => Err(too_large),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}

/// Returns a refusal once the body of its request has come, before which few clients read it.
async fn refuse_behind_body(request: Request<Incoming>, refusal: Refusal) -> Refusal {
    // One that is longer is nobody's who deserves an answer.
    let _ = read_body(request, MAX_BODY).await;
    refusal
}

async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refusal> {
    let body = read_body(request, MAX_BODY).await?;
    serde_json::from_slice(&body).map_err(|error| {
        Refusal::bad_request(format!("the body is not what is asked for: {error}"))
    })
}
