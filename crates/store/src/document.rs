use fullpipe_record::{
    Buffer, CaptureReport, Cause, Content, Diagnosis, Direction, Document, EndReport, GridCell,
    GridReport, LabReport, Limit, Measurement, Request, SimulatedTransfer, StoredDocument,
    StoredFacts, Summary, SweepReport, SweepRunRecord, Transport, Verdict,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, count_noun, median};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::text::{clean_line, host_of, ip_of};

/// A document that is to be kept: its metadata and facts, and its bytes, which are kept as they
/// are.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// Metadata and facts. Without an `id` it gets a new one; `bytes` and `blake3` are filled in.
    pub head: StoredDocument,
    /// Body, in the format of `head.kind`.
    pub body: Vec<u8>,
}

impl NewDocument {
    /// Returns the documents to keep of one that a command printed, or would print, at the time
    /// `now`: none of a kind that measures nothing, such as an error, a calculation, or settings of
    /// a host. A report of several scenarios becomes one document for each, and one of a grid a
    /// document for each row, which has the same bytes whichever rows were printed with it.
    pub fn from_document(document: &Document, now: Timestamp) -> Vec<Self> {
        match &document.content {
            Content::Lab { lab } => lab
                .iter()
                .map(|lab| Self::whole_document(&one_scenario(document, lab), now))
                .collect(),
            Content::Simulations { simulations } => simulations
                .iter()
                .map(|row| Self::whole_document(&one_transfer(row), now))
                .collect(),
            Content::Grid { grid } => grid
                .cells
                .iter()
                .map(|cell| Self::whole_document(&one_cell(grid, cell), now))
                .collect(),
            Content::Measurement { .. }
            | Content::Diagnosis { .. }
            | Content::Experiment { .. }
            | Content::Capture { .. }
            | Content::SweepPlan { .. }
            | Content::SweepRun { .. }
            | Content::Sweep { .. } => vec![Self::whole_document(document, now)],
            _ => Vec::new(),
        }
    }

    fn whole_document(document: &Document, now: Timestamp) -> Self {
        let (mut head, body) = (document_head(document, now), document.to_json());
        // Those of the body, whose numbers may have fewer digits: a check finds the same.
        if let Ok(read) = Document::from_json(&body) {
            head.facts = document_facts(&read);
        }
        Self { head, body }
    }
}

/// Returns the document of one of its scenarios.
fn one_scenario(document: &Document, lab: &LabReport) -> Document {
    Document {
        content: Content::Lab {
            lab: vec![lab.clone()],
        },
        ..document.clone()
    }
}

/// Returns the document of one row of a grid of simulations.
pub fn one_transfer(row: &SimulatedTransfer) -> Document {
    Document::new(Content::Simulations {
        simulations: vec![row.clone()],
    })
}

/// Returns the document of one cell of a grid, without the figures of all cells together.
pub fn one_cell(grid: &GridReport, cell: &GridCell) -> Document {
    Document::new(Content::Grid {
        grid: Box::new(GridReport {
            name: grid.name.clone(),
            title: grid.title.clone(),
            cells: vec![cell.clone()],
            is_virtual: grid.is_virtual,
            passed: cell.measured.is_some(),
            ..GridReport::default()
        }),
    })
}

/// Returns true for the kinds of grids, of which each row is a document.
pub(crate) fn has_rows(kind: &str) -> bool {
    matches!(kind, "simulations" | "grid")
}

/// Returns metadata and facts of a document of fullpipe; `now` is its time if it states none.
pub(crate) fn document_head(document: &Document, now: Timestamp) -> StoredDocument {
    let first = step_measurements(document).into_iter().next();
    let (host, peer, address) = first.map_or_else(
        || ends_watched(document),
        |(_, measurement)| measurement_ends(measurement),
    );
    let (campaign, cell) = campaign_and_cell(document);
    let started = first.map(|(_, measurement)| measurement.started.clone());
    let started = started
        .filter(|started| started.parse::<Timestamp>().is_ok())
        .or_else(|| campaign_start(&campaign));
    let is_lab = matches!(
        document.content,
        Content::Lab { .. } | Content::Experiment { .. }
    );
    let row = row_of_grid(document);
    let (peer, address) = if is_lab {
        (String::new(), String::new())
    } else {
        (peer, address)
    };
    let id = match &document.content {
        // The name of a sweep is the identifier of its plan.
        Content::SweepPlan { sweep_plan } => sweep_plan.id.clone(),
        _ if row.is_some() => row.map_or_else(String::new, |(id, _)| id.to_owned()),
        _ => first.map_or_else(String::new, |(_, measurement)| measurement.id.clone()),
    };
    StoredDocument {
        id,
        kind: document_kind(document),
        schema: document.schema,
        started: started.unwrap_or_else(|| now.to_string()),
        path_key: clean_line(&path_key(&host, &peer, &address)),
        host: clean_line(&host),
        peer: clean_line(&peer),
        address,
        campaign: clean_line(&campaign),
        cell,
        request_key: first
            .map(|(_, measurement)| &measurement.request)
            .or(row.map(|(_, request)| request))
            .map_or_else(String::new, |request| clean_line(&request_key(request))),
        program: format!("fullpipe {}", env!("CARGO_PKG_VERSION")),
        facts: document_facts(document),
        ..StoredDocument::default()
    }
}

/// Returns the identifier and the load of the row that a document is of.
fn row_of_grid(document: &Document) -> Option<(&str, &Request)> {
    match &document.content {
        Content::Simulations { simulations } => simulations
            .first()
            .map(|row| (row.id.as_str(), &row.request)),
        Content::Grid { grid } => grid
            .cells
            .first()
            .map(|cell| (cell.id.as_str(), &cell.request)),
        _ => None,
    }
}

/// Kind of the document of a sweep's run.
pub(crate) const SWEEP_RUN: &str = "sweep-run";

/// Returns the campaign of a document, and its cell in it: for a run of a sweep, its number and its
/// setting, which no other run of that sweep has.
fn campaign_and_cell(document: &Document) -> (String, String) {
    match &document.content {
        Content::Lab { lab } => (
            lab.first()
                .map_or_else(String::new, |lab| lab.scenario.clone()),
            String::new(),
        ),
        Content::Grid { grid } => (
            grid.name.clone(),
            grid.cells
                .first()
                .map_or_else(String::new, |cell| cell.bound.clone()),
        ),
        Content::SweepPlan { sweep_plan } => (sweep_plan.id.clone(), String::new()),
        Content::Sweep { sweep } => (sweep.plan.id.clone(), String::new()),
        Content::SweepRun { sweep_run } => {
            let SweepRunRecord {
                sweep, number, run, ..
            } = &**sweep_run;
            (sweep.clone(), format!("{}: {}", number + 1, run.cell))
        }
        _ => Default::default(),
    }
}

/// Returns the time at which a campaign began, if its name states it (UUID version 7).
fn campaign_start(campaign: &str) -> Option<String> {
    let (seconds, nanoseconds) = campaign.parse::<Uuid>().ok()?.get_timestamp()?.to_unix();
    let time = Timestamp::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?).ok()?;
    Some(time.to_string())
}

/// Kinds of the documents of an archive; those of other programs have their format behind
/// `foreign/`.
pub(crate) const KINDS_OF_DOCUMENTS: [&str; 12] = [
    "measurement",
    "diagnosis",
    "experiment",
    "lab",
    "sweep",
    "sweep-plan",
    SWEEP_RUN,
    "simulations",
    "grid",
    "capture",
    "foreign",
    "other",
];

/// Returns true if documents may be of this kind.
pub(crate) fn is_kind(kind: &str) -> bool {
    kind.split('/')
        .next()
        .is_some_and(|first| KINDS_OF_DOCUMENTS.contains(&first))
}

/// Returns the name of the variant in JSON, which is one of [`KINDS_OF_DOCUMENTS`].
fn document_kind(document: &Document) -> String {
    let name = match document.content {
        Content::Measurement { .. } => "measurement",
        Content::Diagnosis { .. } => "diagnosis",
        Content::Experiment { .. } => "experiment",
        Content::Lab { .. } => "lab",
        Content::SweepPlan { .. } => "sweep-plan",
        Content::SweepRun { .. } => SWEEP_RUN,
        Content::Sweep { .. } => "sweep",
        Content::Simulations { .. } => "simulations",
        Content::Grid { .. } => "grid",
        Content::Capture { .. } => "capture",
        _ => "other",
    };
    name.to_owned()
}

/// Returns the name of this host, the other end as it was named, and its IP address.
fn measurement_ends(measurement: &Measurement) -> (String, String, String) {
    let host = measurement
        .local
        .host
        .as_ref()
        .map_or_else(String::new, |host| host.name.clone());
    (
        host,
        host_of(&measurement.peer.host),
        ip_of(&measurement.peer.address),
    )
}

/// Returns the name of this host, the other end as it was named, and its IP address, of a transfer
/// of another program, of which only the address is known.
fn ends_watched(document: &Document) -> (String, String, String) {
    let Content::Diagnosis { diagnosis, .. } = &document.content else {
        return Default::default();
    };
    let transfer = diagnosis
        .transfers
        .first()
        .and_then(|diagnosis| diagnosis.transfer.as_ref());
    let address = transfer.map_or_else(String::new, |transfer| ip_of(&transfer.remote));
    (String::new(), address.clone(), address)
}

/// Returns both ends of a path, by which runs over the same path are found.
pub(crate) fn path_key(host: &str, peer: &str, address: &str) -> String {
    let peer = if address.is_empty() { peer } else { address };
    if peer.is_empty() {
        String::new()
    } else {
        format!("{host} → {peer}").trim_start().to_owned()
    }
}

/// Returns the load that was asked for in words: transport, direction, streams and duration, and
/// then each other field that is not as usual. Runs of the same words can be compared. Texts for
/// the user take no part.
pub(crate) fn request_key(request: &Request) -> String {
    let usual = Request {
        transport: request.transport,
        direction: request.direction,
        streams: request.streams,
        duration: request.duration,
        block: ByteCount::ZERO,
        title: request.title.clone(),
        extra_data: request.extra_data.clone(),
        interval: request.interval,
        ..Request::default()
    };
    let transport = if request.transport == Transport::Udp {
        "udp"
    } else {
        "tcp"
    };
    let seconds = request.duration.as_secs_f64();
    let mut words = load_words(transport, request.direction, request.streams, seconds);
    if let (Ok(Value::Object(usual)), Ok(Value::Object(asked))) =
        (serde_json::to_value(usual), serde_json::to_value(request))
    {
        let unusual = asked
            .iter()
            .filter(|(name, value)| usual.get(*name) != Some(*value));
        words.extend(unusual.map(|(name, value)| format!(", {name}={}", plain_text(value))));
    }
    words
}

/// Returns the words with which every request begins.
pub(crate) fn load_words(
    transport: &str,
    direction: Direction,
    streams: u16,
    seconds: f64,
) -> String {
    format!(
        "{transport} {}, {}, {seconds} s",
        direction.name(),
        count_noun(streams, "stream")
    )
}

/// Returns a value as text, without quotation marks.
pub(crate) fn plain_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the facts of a document.
pub(crate) fn document_facts(document: &Document) -> Vec<StoredFacts> {
    let mut facts: Vec<StoredFacts> = step_measurements(document)
        .into_iter()
        .flat_map(|(step, measurement)| of_measurement(step, measurement))
        .collect();
    match &document.content {
        Content::Diagnosis {
            measurement: None,
            diagnosis,
        } => {
            facts.extend(diagnosis.transfers.iter().filter_map(watched_facts));
        }
        Content::Diagnosis { diagnosis, .. } => {
            // The verdict of the diagnosis is that of the measurement before the trial.
            let verdict = diagnosis
                .transfers
                .first()
                .map(|transfer| &transfer.verdict);
            for fact in facts.iter_mut().filter(|fact| fact.step.is_empty()) {
                set_limit(fact, verdict);
            }
        }
        Content::Sweep { sweep } => facts.extend(of_knee(sweep)),
        Content::Simulations { simulations } => facts.extend(simulations.iter().map(of_row)),
        Content::Grid { grid } => facts.extend(grid.cells.iter().map(of_cell)),
        Content::Capture { capture } => facts.extend(of_capture(capture)),
        _ => {}
    }
    facts
}

/// Returns the facts of the knee of a sweep, with the cost of all its runs.
fn of_knee(sweep: &SweepReport) -> Option<StoredFacts> {
    let answer = sweep.answer.as_ref()?;
    Some(StoredFacts {
        step: "knee".to_owned(),
        steady: Some(answer.knee.rate),
        rtt_idle: Some(sweep.plan.rtt),
        valid: !sweep.interrupted,
        streams: Some(answer.knee.cell.streams),
        window: Some(answer.knee.cell.window),
        congestion: sweep.plan.congestion.clone(),
        sent: Some(sweep.spent.bytes),
        duration: Some(sweep.spent.time),
        ..StoredFacts::default()
    })
}

/// Returns the facts of a simulated transfer: those of the seed with the median rate.
fn of_row(row: &SimulatedTransfer) -> StoredFacts {
    let names = row.limit.map(|limit| limit_names(limit.kind, limit.cause));
    let (limit, cause) = names.unwrap_or_default();
    StoredFacts {
        limit,
        cause,
        rate: Some(row.rate.median),
        rtt_loaded: row.loaded_rtt,
        retransmits: Some(row.retransmits.median),
        valid: true,
        ..of_request(row.name.as_deref().unwrap_or_default(), &row.request)
    }
}

/// Returns the facts of a cell of a grid.
fn of_cell(cell: &GridCell) -> StoredFacts {
    let run = cell.kernel.or(cell.simulated);
    StoredFacts {
        rate: run.map(|run| run.rate),
        steady: cell.measured,
        retransmits: run.and_then(|run| run.retransmits),
        valid: cell.measured.is_some(),
        ..of_request(&cell.bound, &cell.request)
    }
}

/// Returns what a load states of its run.
fn of_request(step: &str, request: &Request) -> StoredFacts {
    StoredFacts {
        step: step.to_owned(),
        direction: request.direction,
        streams: Some(request.streams),
        congestion: request.congestion.clone(),
        duration: Some(request.duration),
        ..StoredFacts::default()
    }
}

/// Returns the facts of each transfer of a capture that was judged.
fn of_capture(capture: &CaptureReport) -> impl Iterator<Item = StoredFacts> {
    capture.transfers.iter().filter_map(|transfer| {
        let first = transfer.flows.first()?;
        let flow = capture.flows.iter().find(|flow| flow.number == *first)?;
        let end = &flow.ends[flow.sender_index()];
        let verdict = &transfer.diagnosis.verdict;
        let mut fact = StoredFacts {
            rate: Some(BitRate::from_bytes_in(end.moved_bytes(), flow.duration)),
            rtt_loaded: loaded_rtt(&transfer.diagnosis),
            valid: true,
            streams: u16::try_from(transfer.flows.len()).ok(),
            sent: Some(end.moved_bytes()),
            duration: Some(flow.duration),
            ..StoredFacts::default()
        };
        set_limit(&mut fact, Some(verdict));
        Some(fact)
    })
}

/// Returns the measurements of a document, with the step of each.
fn step_measurements(document: &Document) -> Vec<(&str, &Measurement)> {
    match &document.content {
        Content::Measurement { measurement, .. } => vec![("", measurement)],
        Content::Diagnosis {
            measurement,
            diagnosis,
        } => {
            let own = measurement.iter().map(|measurement| ("", &**measurement));
            own.chain(
                diagnosis
                    .trial
                    .iter()
                    .map(|trial| ("trial", &trial.measurement)),
            )
            .collect()
        }
        Content::Experiment { experiment } => {
            let proof = experiment
                .proof
                .iter()
                .map(|proof| ("proof", &proof.measurement));
            std::iter::once(("", &experiment.measurement))
                .chain(proof)
                .collect()
        }
        Content::Lab { lab } => {
            let steps = lab.iter().flat_map(|lab| &lab.steps);
            steps
                .flat_map(|step| step.runs.iter().map(|run| (step.name.as_str(), run)))
                .collect()
        }
        Content::SweepRun { sweep_run } => sweep_run
            .measurement
            .iter()
            .map(|measurement| ("run", &**measurement))
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the facts of each direction of a measurement.
fn of_measurement(step: &str, measurement: &Measurement) -> Vec<StoredFacts> {
    let request = measurement.carried_out();
    request
        .data_directions()
        .iter()
        .map(|&direction: &Direction| {
            let is_upload = direction == Direction::Upload;
            let [sender, receiver] = if is_upload {
                [&measurement.local, &measurement.remote]
            } else {
                [&measurement.remote, &measurement.local]
            };
            let is_second = request.direction == Direction::Both && !is_upload;
            let second = measurement.reverse.as_ref().filter(|_| is_second);
            let mut fact = of_ends(second.unwrap_or(&measurement.summary), sender, receiver);
            set_limit(&mut fact, measurement.limit.as_ref().filter(|_| !is_second));
            StoredFacts {
                step: step.to_owned(),
                direction,
                rtt_idle: measurement.rtt.idle.map(|rtt| rtt.median),
                rtt_loaded: measurement.rtt.loaded.map(|rtt| rtt.median),
                rtt_loaded_p99: measurement.rtt.loaded.map(|rtt| rtt.p99),
                valid: is_whole(measurement),
                streams: Some(request.streams),
                buffer: match request.buffer {
                    Buffer::Request(bytes) => Some(bytes),
                    Buffer::Automatic | Buffer::Window(_) => None,
                },
                ..fact
            }
        })
        .collect()
}

/// Returns the figures of one direction that its totals and its two ends have.
fn of_ends(summary: &Summary, sender: &EndReport, receiver: &EndReport) -> StoredFacts {
    let windows = sender
        .samples
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd);
    let congestion = sender
        .sockets
        .first()
        .map(|socket| socket.congestion.clone());
    StoredFacts {
        rate: Some(summary.rate),
        steady: summary.steady.map(|steady| steady.rate),
        retransmits: summary.retransmits,
        loss: summary.datagrams.map(|datagrams| {
            Ratio::from_quotient(
                datagrams.lost as f64,
                datagrams.lost.saturating_add(datagrams.received) as f64,
            )
        }),
        cpu_sender: sender.cpu.map(|cpu| cpu.total_share()),
        cpu_receiver: receiver.cpu.map(|cpu| cpu.total_share()),
        window: windows.max(),
        congestion: congestion
            .filter(|name| !name.is_empty())
            .or_else(|| sender.congestion.clone()),
        sent: Some(summary.sent),
        duration: Some(summary.duration),
        ..StoredFacts::default()
    }
}

/// Returns true if the figures may be compared with others.
fn is_whole(measurement: &Measurement) -> bool {
    measurement.validity.is_valid() && !measurement.interrupted && measurement.broken_off.is_none()
}

fn set_limit(fact: &mut StoredFacts, verdict: Option<&Verdict>) {
    let Some(verdict) = verdict else { return };
    (fact.limit, fact.cause) = limit_names(verdict.kind, verdict.cause);
    fact.share = Some(verdict.share);
}

fn limit_names(kind: Limit, cause: Cause) -> (Option<String>, Option<String>) {
    let cause = serde_json::to_value(cause).ok();
    let cause = cause.and_then(|cause| cause.as_str().map(str::to_owned));
    (Some(kind.name().to_owned()), cause)
}

/// Returns the facts of a transfer of another program.
fn watched_facts(diagnosis: &Diagnosis) -> Option<StoredFacts> {
    let transfer = diagnosis.transfer.as_ref()?;
    let mut fact = StoredFacts {
        step: transfer.program.clone().unwrap_or_default(),
        direction: transfer.direction,
        rate: Some(transfer.rate),
        rtt_loaded: loaded_rtt(diagnosis),
        valid: true,
        streams: Some(transfer.streams),
        sent: Some(transfer.bytes),
        duration: Some(transfer.watched),
        ..StoredFacts::default()
    };
    set_limit(&mut fact, Some(&diagnosis.verdict));
    Some(fact)
}

fn loaded_rtt(diagnosis: &Diagnosis) -> Option<fullpipe_units::Span> {
    let evidence = diagnosis.evidence.as_ref()?;
    median(
        evidence
            .sender_samples
            .iter()
            .filter_map(|sample| sample.tcp.rtt)
            .collect(),
    )
}

/// Returns the rate by which runs are compared: the steady one, or the mean where there is none.
pub(crate) fn compared_rate(facts: &StoredFacts) -> Option<BitRate> {
    facts.steady.or(facts.rate)
}
