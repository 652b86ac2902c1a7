//! The near end: it starts the far one, makes the connections, and reports to its user.

mod connecting;
mod plan;

use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender as EventSender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_record::{CopyLimit, CopyProgress, CopyReport, CopyTransport, HostSettings};
use fullpipe_transfer::{Excludes, Hello, Message, Ready, VERSION, hexadecimal};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::address::addresses;
use crate::bounds::{Bounds, Pace};
use crate::common::{Common, Tally};
use crate::connect::Credentials;
use crate::control::{Frames, Outgoing};
use crate::options::{CopyError, CopyEvent, CopyOptions, CopyResult, FarHost};
use crate::part::random;
use crate::pulse::Pulse;
use crate::receiver::{ReceiveOptions, Receiver};
use crate::root::Root;
use crate::sender::Sender;
use crate::server::{call, peer};
use crate::session::{BothFigures, End, own_settings, settings_of};
use crate::ssh::{Link, Pipes, end, greeted, kill, not_there, release, start};
use crate::summary::{Figures, is_limited};
use crate::walk::Source;

use connecting::{Connected, Reached};
use plan::Plan;

/// Time between two reports of progress, and two checks for an interrupt or the end.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Copies files until that is done or `interrupt` is set. `report` is called with each event, on this thread.
///
/// # Errors
/// Fails if the places do not fit together, the other end cannot be started, goes away, is silent or breaks the rules.
/// Entries that cannot be copied are in the report.
pub fn copy(options: &CopyOptions, interrupt: &AtomicBool, report: &mut dyn FnMut(CopyEvent)) -> CopyResult {
    let plan = Plan::of(options)?;
    options.check_transport()?;
    let (events, received) = channel();
    let (tally, link) = (Arc::new(Tally::default()), Link::default());
    let pulse = Pulse::new(options.timeout.into());
    let run = Run {
        options: options.clone(),
        plan,
        events,
        tally: Arc::clone(&tally),
        link: Arc::clone(&link),
        pulse: Arc::clone(&pulse),
    };
    let work = thread::Builder::new().name("copy".to_owned()).spawn(move || run.copy());
    let work = work.map_err(CopyError::io("cannot start a thread"))?;
    let mut meter = Meter::new(&tally);
    // The channel stays open for as long as threads of the transfer wait, which may be longer than the work.
    while !work.is_finished() {
        match received.recv_timeout(POLL_INTERVAL) {
            Ok(event) => report(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL_INTERVAL),
        }
        if interrupt.load(Ordering::Relaxed) {
            kill(&link);
            return Err(CopyError::Interrupted);
        }
        if pulse.is_silent() {
            kill(&link);
            return Err(CopyError::Silent(Span::from(pulse.timeout())));
        }
        if let Some(progress) = meter.progress() {
            report(CopyEvent::Progress(progress));
        }
    }
    received.try_iter().for_each(report);
    let copied = work.join().unwrap_or(Err(CopyError::Gone));
    // Ctrl-C in a terminal ends ssh, too.
    if copied.is_err() && interrupt.load(Ordering::Relaxed) { Err(CopyError::Interrupted) } else { copied }
}

/// A copy at work.
struct Run {
    options: CopyOptions,
    plan: Plan,
    events: EventSender<CopyEvent>,
    tally: Arc<Tally>,
    link: Link,
    pulse: Arc<Pulse>,
}

impl Run {
    fn copy(self) -> CopyResult {
        let began = Instant::now();
        let sources = if self.plan.far_sends { Vec::new() } else { self.sources()? };
        let Pipes { to, from } = match &self.plan.host {
            FarHost::Ssh { name } => start(&self.options.ssh, name, &self.options.far_path, &self.link)?,
            FarHost::Server { name, port } => call(name, *port, self.options.key.as_ref(), &self.link)?,
        };
        let (out, _) = Outgoing::start(to, &self.pulse).map_err(CopyError::io("cannot speak to the far end"))?;
        let copied = self.copy_over(from, &out, sources, began);
        if let Err(error) = &copied
            && let Some(code) = error.code_for_peer()
        {
            out.send(&Message::Refused { code, why: error.to_string() });
        }
        out.close();
        match self.plan.host {
            // Both ends have everything, and the far one ends with its input: ssh's own end would take round trips.
            FarHost::Ssh { .. } if copied.is_ok() => release(&self.link),
            _ => drop(end(&self.link)),
        }
        copied
    }

    fn sources(&self) -> Result<Vec<Source>, CopyError> {
        self.plan.near.iter().map(|path| Source::open(&Root::User, path)).collect()
    }

    fn copy_over(
        &self,
        mut from: Box<dyn BufRead + Send>,
        out: &Outgoing,
        sources: Vec<Source>,
        began: Instant,
    ) -> CopyResult {
        let failed = CopyError::io("cannot make a key");
        let secret = random().map_err(&failed)?;
        let credentials = Credentials::new(&secret, &self.options.unencrypted).map_err(&failed)?;
        let own = own_settings();
        // It is there when the far end begins, which saves a round trip.
        out.send(&Message::Hello(self.hello(secret, &own)));
        let may_ask = matches!(self.plan.host, FarHost::Ssh { .. });
        if !greeted(&mut from, may_ask, &self.pulse) {
            return Err(self.not_there(out));
        }
        let frames = &mut Frames::new(from, &self.pulse);
        let ready = ready(frames)?;
        let other = settings_of(&ready.settings);
        let known = peer(&self.link).or_else(|| address(&ready.address));
        let far = Reached {
            out,
            ready: &ready,
            way: &self.plan.host,
            hosts: addresses(known, self.plan.host.name()),
            credentials: &credentials,
            secret: &secret,
            settings: [&own, &other],
        };
        let Connected { connections, transport, reason } = self.connect(&far);
        let (set_up, streams) = (began.elapsed(), connections.count());
        self.note(&reason);
        let rtt = (streams > 0).then_some(connections.rtt);
        let figures = self.end(out, sources).run(frames, connections, [own, other])?;
        Ok(self.report(Way { transport, rtt, reason, streams }, figures, began.elapsed(), set_up))
    }

    /// Returns the error of a far end that did not greet.
    fn not_there(&self, out: &Outgoing) -> CopyError {
        out.close();
        match &self.plan.host {
            FarHost::Ssh { name } => not_there(&self.options.ssh, name, &self.options.far_path, &self.link),
            FarHost::Server { .. } => CopyError::Gone,
        }
    }

    fn note(&self, text: &str) {
        let _ = self.events.send(CopyEvent::Note(text.to_owned()));
    }

    fn hello(&self, secret: [u8; 32], settings: &HostSettings) -> Hello {
        Hello {
            version: VERSION,
            far_sends: self.plan.far_sends,
            dry_run: self.options.dry_run,
            delete: self.options.delete,
            verify_disk: self.options.verify_disk,
            scavenge: self.options.scavenge,
            no_bbr: self.options.no_bbr,
            attributes: self.options.attributes,
            quic: self.may_use_quic(),
            timeout: self.pulse.timeout().as_secs() as u16,
            secret,
            ports: self.options.ports.unwrap_or_default(),
            limit: self.options.limit.map_or(0, BitRate::bps),
            paths: self.plan.far.clone(),
            excludes: self.options.excludes.clone(),
            unencrypted: self.options.unencrypted.iter().map(|network| network.to_string().into_bytes()).collect(),
            settings: serde_json::to_vec(settings).unwrap_or_default(),
        }
    }

    fn end(&self, out: &Outgoing, sources: Vec<Source>) -> End {
        let common = Common::new(out.clone(), Arc::clone(&self.tally), Some(self.events.clone()));
        let excludes = Excludes::new(self.options.excludes.iter().map(Vec::as_slice));
        if !self.plan.far_sends {
            let paces = self.options.limit.map(Pace::new).map(Arc::new).into_iter().collect();
            let common = common.within(Bounds::new(paces, None).of_options(self.options.scavenge, self.options.no_bbr));
            return End::Sender(Arc::new(Sender::new(common, sources, excludes, self.options.attributes)));
        }
        let path = self.plan.near.first().cloned().unwrap_or_default();
        let options = ReceiveOptions {
            root: Root::User,
            path,
            dry_run: self.options.dry_run,
            delete: self.options.delete,
            excludes,
            verify_disk: self.options.verify_disk,
            attributes: self.options.attributes,
            timeout: self.pulse.timeout(),
            tops: self.plan.tops(),
        };
        End::Receiver(Arc::new(Receiver::new(common, options)))
    }

    fn report(&self, way: Way, figures: BothFigures, duration: Duration, set_up: Duration) -> CopyReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (tally, data) = (&self.tally, duration.saturating_sub(set_up));
        let transferred = ByteCount::new(count(&tally.verified));
        let rate = BitRate::of(transferred, span(data));
        let has_crossed = transferred > ByteCount::ZERO;
        let limit = || match way.transport {
            _ if is_limited(rate, self.options.limit) => Some(CopyLimit::RateLimit),
            CopyTransport::Ssh => Some(CopyLimit::Ssh),
            // Nobody samples its windows.
            CopyTransport::Call => None,
            _ => Some(Figures::limit(&figures.sender, &figures.receiver, way.streams, data)),
        };
        let limit = has_crossed.then(limit).flatten();
        let files = count(&tally.files);
        let transport = if figures.sender.changed_to_quic { CopyTransport::Quic } else { way.transport };
        CopyReport {
            dry_run: self.options.dry_run,
            files,
            bytes: ByteCount::new(count(&tally.bytes)),
            transferred,
            present: count(&tally.present),
            deleted: count(&tally.deleted),
            failed: count(&tally.failed),
            failures: tally.failures(),
            left_out: count(&tally.left_out),
            left_out_entries: tally.left_out_entries(),
            duration: span(duration),
            set_up: span(set_up),
            rate,
            digest: tally.digest().filter(|_| files == 1).map(|digest| hexadecimal(&digest)),
            transport: has_crossed.then_some(transport),
            streams: way.streams,
            reason: way.reason,
            rtt: way.rtt,
            congestion_control: figures.sender.congestion_control,
            retransmitted: SegCount::new(figures.sender.retransmitted),
            gave_way: figures.sender.gave_way,
            limit,
        }
    }
}

/// The way that data took, for the report.
struct Way {
    transport: CopyTransport,
    rtt: Option<Span>,
    reason: String,
    streams: u16,
}

fn ready<R: Read>(frames: &mut Frames<R>) -> Result<Ready, CopyError> {
    let frame = frames.next_message().map_err(|_| CopyError::Gone)?.ok_or(CopyError::Gone)?;
    match Message::read(frame)? {
        Message::Ready(ready) => Ok(ready),
        Message::Refused { code, why } => Err(CopyError::Refused { code, why }),
        _ => Err(CopyError::Protocol("the far end does not answer the request".to_owned())),
    }
}

/// Returns the address of the far end as that knows it. The scope of a link-local one is not of this host.
fn address(text: &[u8]) -> Option<SocketAddr> {
    Some(SocketAddr::new(str::from_utf8(text).ok()?.parse().ok()?, 0))
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(duration.as_nanos() as u64)
}

/// Makes progress of counts.
struct Meter<'t> {
    tally: &'t Tally,
    at: Instant,
    verified: u64,
}

impl<'t> Meter<'t> {
    fn new(tally: &'t Tally) -> Self {
        Self { tally, at: Instant::now(), verified: 0 }
    }

    /// Returns the progress, if it is time for that and something is wanted.
    fn progress(&mut self) -> Option<CopyProgress> {
        let elapsed = self.at.elapsed();
        let wanted = self.tally.wanted.load(Ordering::Relaxed);
        if elapsed < PROGRESS_INTERVAL || wanted == 0 {
            return None;
        }
        let verified = self.tally.verified.load(Ordering::Relaxed);
        let rate = BitRate::of(ByteCount::new(verified - self.verified), span(elapsed));
        (self.at, self.verified) = (Instant::now(), verified);
        Some(CopyProgress { verified: ByteCount::new(verified), wanted: ByteCount::new(wanted), rate })
    }
}
