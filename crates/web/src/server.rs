//! Connections, and what each request gets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::{ClientPlaces, WebIdentity};
use fullpipe_experiment::{KeptError, KeptSweep};
use fullpipe_fleet::{FleetLedger, FleetStatus, fleet_status};
use fullpipe_record::{Content, StoredDocument};
use fullpipe_report::page_script;
use fullpipe_store::{ArchiveLocation, DocumentFilter, Store, StoreError};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::access::{AccessToken, HostList};
use crate::answer::{Answer, HTML, JSON, Refusal, whole_answer};
use crate::api;
use crate::archive::{Archive, ArchiveRefusal, read_document};
use crate::connections::{Connections, RequestService};
use crate::live::live_events;
use crate::metrics::{METRICS, archive_metrics, fleet_metrics, probe_metrics};
use crate::page::{
    ListQuery, TestForm, advice_arguments, campaign_page, campaigns_page, comparison_page,
    demo_page, document_page, failure_page, first_time, fleet_page, history_page, host_page,
    incident_page, login_page, measurements_page, new_test_page, now_page, style_sheet,
    with_fleet_link,
};
use crate::route::{Asset, Query, Route};
use crate::runs::{TestProgram, TestRequest, TestRuns};

/// Connections at once.
const MAX_CONNECTIONS: u32 = 256;

/// Connections at once of one IPv4 address, or of one /64 network of IPv6.
const MAX_OF_CLIENT: u32 = 64;

/// Time for the body of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Longest body of a request, in bytes.
const MAX_BODY: usize = 4 << 10;

/// Documents that the page of what runs now lists.
const NEWEST: u32 = 5;

/// Documents of a host among which the newest of each direction is sought.
const RECENT: u32 = 20;

/// Sweeps and scenarios that are listed.
const CAMPAIGNS: u32 = 100;

/// What a server of pages needs.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Certificate and key; without them, pages are served in the clear.
    pub identity: Option<WebIdentity>,
    /// The secret of whoever may ask.
    pub token: AccessToken,
    /// The names by which the server may be called.
    pub hosts: HostList,
    /// The archive.
    pub archive: ArchiveLocation,
    /// Hosts to which tests may go besides those that the archive knows.
    pub targets: Vec<String>,
    /// What runs tests.
    pub program: TestProgram,
}

struct WebServer {
    options: WebOptions,
    archive: Archive,
    runs: Arc<TestRuns>,
    /// Name of the cookie: another server of this host has another one.
    cookie: String,
}

/// Serves pages on these listeners, which have one port, until the future is dropped.
///
/// # Errors
/// Fails if the system does not tell the address of a listener.
pub async fn serve_pages(listeners: Vec<TcpListener>, options: WebOptions) -> io::Result<()> {
    let port = match listeners.first() {
        Some(listener) => listener.local_addr()?.port(),
        None => return Ok(()),
    };
    let archive = Archive::new(options.archive.clone());
    let server = WebServer {
        runs: TestRuns::new(options.program.clone(), archive.clone()),
        archive,
        cookie: format!("fullpipe_{port}"),
        options,
    };
    let identity = server.options.identity.clone();
    let places = ClientPlaces::new(MAX_CONNECTIONS, MAX_OF_CLIENT);
    Connections::new(server, identity, places)
        .serve_listeners(listeners)
        .await;
    Ok(())
}

impl RequestService for WebServer {
    async fn answer(&self, request: Request<Incoming>, _: Option<&[u8]>) -> Answer {
        self.answer_request(request).await
    }
}

impl WebServer {
    /// Answers a request, whatever it is.
    async fn answer_request(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let route = Route::from_path(&path);
        let for_people = route.is_none_or(Route::is_page) && !path.starts_with("/api/");
        let is_head = request.method() == Method::HEAD;
        let answer = match self.admit(&request, route) {
            Ok(route) => self.serve(route, request).await,
            Err(refusal) => Err(refusal),
        };
        let answer = answer.unwrap_or_else(|refusal| match refusal.status {
            StatusCode::UNAUTHORIZED if for_people => {
                whole_answer(refusal.status, HTML, login_page())
            }
            status if for_people => whole_answer(status, HTML, failure_page(&refusal)),
            _ => api::refusal_answer(&refusal),
        });
        if is_head {
            return answer.map(|_| http_body_util::Empty::new().boxed_unsync());
        }
        answer
    }

    /// Returns what a request is for, if it may ask for that: it calls this server by its name,
    /// shows the token, and comes from a page of this server if it changes something.
    fn admit<'p>(
        &self,
        request: &Request<Incoming>,
        route: Option<Route<'p>>,
    ) -> Result<Route<'p>, Refusal> {
        let fields = request.headers();
        let named = fields
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
        if !named.is_some_and(|host| self.options.hosts.has_authority(host)) {
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "this server has another name; --allow-host adds one",
            ));
        }
        let route = route.ok_or_else(|| Refusal::not_found("there is no such page"));
        let changes = ![Method::GET, Method::HEAD].contains(request.method());
        if changes && !self.options.hosts.has_origin(fields) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "a page of another server may change nothing here",
            ));
        }
        let is_open = route.as_ref().is_ok_and(|route| route.is_open());
        if !is_open && !self.options.token.is_shown(fields, &self.cookie) {
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong",
            ));
        }
        let route = route?;
        if !route.methods().contains(request.method()) {
            return Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this address has no such method",
            ));
        }
        Ok(route)
    }

    async fn serve(&self, route: Route<'_>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let query = Query::from_text(request.uri().query().unwrap_or_default());
        let now = Timestamp::now();
        let has_fleet = route.is_page() && self.has_fleet().await;
        let page = |html: String| {
            let html = if has_fleet {
                with_fleet_link(&html)
            } else {
                html
            };
            whole_answer(StatusCode::OK, HTML, html)
        };
        Ok(match route {
            Route::Asset(asset) => asset_answer(asset),
            Route::Login => self.log_in(request).await?,
            Route::Now => {
                let newest = self.documents(DocumentFilter {
                    limit: Some(NEWEST),
                    ..DocumentFilter::default()
                });
                page(now_page(&self.runs.state(), &newest.await?))
            }
            Route::Measurements => {
                let list = ListQuery::from_query(&query, now)?;
                let listed = self.documents(list.filter().clone()).await?;
                page(measurements_page(&list, &listed))
            }
            Route::Document(id) => page(self.document_page(id).await?),
            Route::Comparison => page(self.comparison(&query).await?),
            Route::History => page(self.history_page(&query, now).await?),
            Route::Campaigns => {
                let campaigns = self.ask_archive(|store| store.list_campaigns(CAMPAIGNS));
                page(campaigns_page(&campaigns.await?))
            }
            Route::Campaign(id) => page(self.campaign(id).await?),
            Route::Host => page(self.host_page(&query).await?),
            Route::Fleet => page(fleet_page(&query, &self.fleet(now).await?)?),
            Route::Incident(id) => page(self.incident_page(id).await?),
            Route::Demo => {
                let demo = ["demo", "--virtual", "--json"].map(str::to_owned);
                page(demo_page(&self.options.program.printed_text(&demo).await?)?)
            }
            Route::NewTest => page(self.new_test(&query).await?),
            Route::ApiDocuments => {
                let list = ListQuery::from_query(&query, now)?;
                let stored = self.documents(list.filter().clone()).await?;
                let next = list.next_link("/api/v1/documents", &stored);
                api::with_next_link(api::document_answer(Content::Stored { stored }), next)
            }
            Route::ApiDocument(id) => self.document_body(id).await?,
            Route::ApiHistory => self.api_history(&query, now).await?,
            Route::ApiRuns => self.change_runs(request).await?,
            Route::ApiFleet => {
                let status = self.fleet(now).await?;
                let json = serde_json::to_string(&status).unwrap_or_default();
                whole_answer(StatusCode::OK, JSON, json)
            }
            Route::ApiEvents => live_events(&self.runs),
            Route::ApiDescription => {
                whole_answer(StatusCode::OK, JSON, api::openapi_description().to_string())
            }
            Route::Metrics => {
                let newest = self
                    .ask_archive(|store| store.newest_by_peer(RECENT))
                    .await?;
                let fleet = fleet_metrics(&self.fleet(now).await?);
                let text = archive_metrics(&newest, now) + &fleet;
                whole_answer(StatusCode::OK, METRICS, text)
            }
            Route::Probe => self.probe(&query, now).await?,
        })
    }

    async fn ask_archive<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.archive
            .ask(|store| ask(store).map_err(ArchiveRefusal::from))
            .await
    }

    async fn documents(&self, filter: DocumentFilter) -> Result<Vec<StoredDocument>, Refusal> {
        self.ask_archive(move |store| store.list_documents(&filter))
            .await
    }

    /// Returns true if the archive has a fleet.
    async fn has_fleet(&self) -> bool {
        let hosts = self.ask_archive(|store| FleetLedger::new(store).has_hosts());
        hosts.await.unwrap_or(false)
    }

    /// Returns the fleet; without hosts where there is none.
    async fn fleet(&self, now: Timestamp) -> Result<FleetStatus, Refusal> {
        let now = now.as_second().max(0).cast_unsigned();
        self.ask_archive(move |store| fleet_status(&mut FleetLedger::new(store), now))
            .await
    }

    async fn incident_page(&self, id: &str) -> Result<String, Refusal> {
        let id = id.to_owned();
        let incident = self.ask_archive(move |store| FleetLedger::new(store).incident(&id));
        let incident = incident.await?;
        let incident = incident.ok_or_else(|| Refusal::not_found("there is no such incident"))?;
        Ok(incident_page(&incident))
    }

    async fn document_page(&self, id: &str) -> Result<String, Refusal> {
        let id = id.to_owned();
        self.archive
            .ask(move |store| {
                let head = store.find_document(&id)?;
                let body = match store.document_body(&head) {
                    Err(StoreError::Removed(_)) => None,
                    body => Some(body?),
                };
                Ok(document_page(&head, body.as_deref())?)
            })
            .await
    }

    async fn document_body(&self, id: &str) -> Result<Answer, Refusal> {
        let id = id.to_owned();
        let body = self.ask_archive(move |store| {
            let head = store.find_document(&id)?;
            store.document_body(&head)
        });
        Ok(whole_answer(StatusCode::OK, JSON, body.await?))
    }

    async fn comparison(&self, query: &Query) -> Result<String, Refusal> {
        let ids: Vec<String> = query.values("id").map(str::to_owned).collect();
        let [a, b] = <[String; 2]>::try_from(ids)
            .map_err(|_| Refusal::bad_request("tick two measurements to compare them"))?;
        self.archive
            .ask(move |store| {
                let both = [read_document(store, &a)?, read_document(store, &b)?];
                Ok(comparison_page(both)?)
            })
            .await
    }

    async fn history_page(&self, query: &Query, now: Timestamp) -> Result<String, Refusal> {
        let since = first_time(query, now)?;
        let query = query.clone();
        self.archive
            .ask(move |store| {
                let history = match query.value("host") {
                    Some(host) => Some(store.host_history(host, since)?),
                    None => None,
                };
                Ok(history_page(&query, &store.list_peers()?, history)?)
            })
            .await
    }

    async fn campaign(&self, id: &str) -> Result<String, Refusal> {
        let id = id.to_owned();
        self.archive
            .ask(move |store| {
                let sweep =
                    KeptSweep::find_sweep(store, Some(&id)).map_err(|error| match error {
                        KeptError::Store(error) => ArchiveRefusal::Store(error),
                        other => ArchiveRefusal::Other(Refusal::not_found(other.to_string())),
                    })?;
                let is_over = !store
                    .list_documents(&DocumentFilter {
                        campaign: Some(sweep.plan.id.clone()),
                        kind: Some("sweep".to_owned()),
                        limit: Some(1),
                        ..DocumentFilter::default()
                    })?
                    .is_empty();
                let report = sweep.into_report().map_err(Refusal::bad_request)?;
                Ok(campaign_page(report, is_over)?)
            })
            .await
    }

    async fn host_page(&self, query: &Query) -> Result<String, Refusal> {
        let program = &self.options.program;
        let show = ["host", "show"].map(str::to_owned);
        let settings = program.printed_text(&show).await?;
        let advice = match advice_arguments(query) {
            Some(words) => Some(program.printed_text(&words).await),
            None => None,
        };
        Ok(host_page(query, &settings, advice.as_ref()))
    }

    async fn api_history(&self, query: &Query, now: Timestamp) -> Result<Answer, Refusal> {
        let host = query
            .value("host")
            .ok_or_else(|| Refusal::bad_request("host names the other end"))?
            .to_owned();
        let since = first_time(query, now)?;
        let history = self.ask_archive(move |store| store.host_history(&host, since));
        Ok(api::document_answer(Content::History {
            history: Box::new(history.await?),
        }))
    }

    async fn new_test(&self, query: &Query) -> Result<String, Refusal> {
        let form = TestForm::from_query(query)?;
        let targets = self.targets().await?;
        let history = match form.host() {
            Some(host) => {
                check_target(host, &targets)?;
                let host = host.to_owned();
                Some(
                    self.ask_archive(move |store| store.host_history(&host, None))
                        .await?,
                )
            }
            None => None,
        };
        Ok(new_test_page(&form, &targets, history.as_ref()))
    }

    /// Returns the hosts to which tests may go.
    async fn targets(&self) -> Result<Vec<String>, Refusal> {
        let mut targets = self.options.targets.clone();
        targets.extend(self.ask_archive(Store::list_peers).await?);
        targets.sort();
        targets.dedup();
        Ok(targets)
    }

    async fn change_runs(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        match *request.method() {
            Method::POST => {
                let asked: TestRequest = read_json(request).await?;
                asked.check_bounds()?;
                check_target(&asked.host, &self.targets().await?)?;
                self.runs.start(asked)?;
            }
            Method::DELETE => self.runs.stop(),
            _ => {}
        }
        let state = serde_json::to_string(&self.runs.state()).unwrap_or_default();
        Ok(whole_answer(StatusCode::OK, JSON, state))
    }

    async fn probe(&self, query: &Query, now: Timestamp) -> Result<Answer, Refusal> {
        let target = query
            .value("target")
            .ok_or_else(|| Refusal::bad_request("target names the other end"))?
            .to_owned();
        let filter = DocumentFilter {
            peer: Some(target.clone()),
            limit: Some(RECENT),
            ..DocumentFilter::default()
        };
        let newest = self.documents(filter).await?;
        let text = probe_metrics(
            &target,
            query.value("port").unwrap_or("5201"),
            query.value("reverse_mode") == Some("true"),
            &newest,
            now,
        );
        Ok(whole_answer(StatusCode::OK, METRICS, text))
    }

    /// Exchanges the token for a cookie.
    async fn log_in(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Login {
            token: String,
        }
        let login: Login = read_json(request).await?;
        let token = &self.options.token;
        if !token.is_token(&login.token) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "that is not the token"));
        }
        let mut answer = whole_answer(StatusCode::OK, JSON, "{}");
        let secure = if self.options.identity.is_some() {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!(
            "{}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age=31536000{secure}",
            self.cookie,
            token.cookie_value()
        );
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            answer.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        Ok(answer)
    }
}

/// # Errors
/// Fails if no test may go to `host`.
fn check_target(host: &str, targets: &[String]) -> Result<(), Refusal> {
    if targets.iter().any(|target| target == host) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "tests go to hosts that the archive knows, or that --targets names",
    ))
}

/// Reads a body that is JSON.
///
/// # Errors
/// Fails if it says to be something else, is longer than any that is asked for, or is none.
async fn read_json<T: serde::de::DeserializeOwned>(
    request: Request<Incoming>,
) -> Result<T, Refusal> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != JSON) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is application/json",
        ));
    }
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    let body = timeout(BODY_DEADLINE, body).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| Refusal::bad_request("the body did not come, or is too long"))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        Refusal::bad_request(format!("the body is not what is asked for: {error}"))
    })
}

fn asset_answer(asset: Asset) -> Answer {
    let (kind, body) = match asset {
        Asset::Style => ("text/css; charset=utf-8", style_sheet()),
        Asset::ChartScript => ("text/javascript; charset=utf-8", page_script()),
        Asset::Script => (
            "text/javascript; charset=utf-8",
            include_str!("../assets/web.js").to_owned(),
        ),
    };
    let mut answer = whole_answer(StatusCode::OK, kind, body);
    let kept = HeaderValue::from_static("no-cache");
    answer.headers_mut().insert(header::CACHE_CONTROL, kept);
    answer
}
