//! The near end: it starts the far one, makes the connections, and reports to its user.

mod meter;
mod plan;
mod reached;
mod report;
mod ways;

use std::io::{BufRead, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender as EventSender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_control::most_descriptors;
use fullpipe_record::HostSettings;
use fullpipe_transfer::{Excludes, Hello, Message, Ready, VERSION};
use fullpipe_units::{BitRate, Span};

use self::meter::Meter;
use self::plan::Plan;
use self::reached::{Connected, Reached};
use self::report::Way;
use crate::address::{MAX_CALLED, addresses, at_port, called};
use crate::bounds::{Bounds, Pace};
use crate::common::{Common, Tally};
use crate::connect::Credentials;
use crate::control::{Frames, Outgoing};
use crate::joining::Early;
use crate::options::{CopyError, CopyEvent, CopyOptions, CopyResult, FarHost};
use crate::part::random;
use crate::pulse::Pulse;
use crate::receiver::{ReceiveOptions, Receiver};
use crate::root::Root;
use crate::sender::Sender;
use crate::server::{call, peer};
use crate::session::{BothFigures, Carriers, End, own_settings, settings_of};
use crate::ssh::{Link, Pipes, configured_host, end, greeted, kill, not_there, release, start};
use crate::walk::Source;

/// Time between two checks for an interrupt or events.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Copies files until that is done or `interrupt` is set. `report` is called with each event, on this thread.
///
/// # Errors
/// Fails if the places do not fit together, the other end cannot be started, goes away, is silent or breaks the rules.
/// Entries that cannot be copied are in the report.
pub fn copy(options: &CopyOptions, interrupt: &AtomicBool, report: &mut dyn FnMut(CopyEvent)) -> CopyResult {
    let plan = Plan::of(options)?;
    options.check_transport()?;
    // Connections take two each.
    most_descriptors();
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
    let (done, ended) = channel();
    let work = thread::Builder::new().name("copy".to_owned()).spawn(move || drop(done.send(run.copy())));
    work.map_err(CopyError::io("cannot start a thread"))?;
    let mut meter = Meter::new(&tally);
    let copied = loop {
        let ended = ended.recv_timeout(POLL_INTERVAL);
        received.try_iter().for_each(&mut *report);
        match ended {
            Ok(copied) => break copied,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Err(CopyError::Gone),
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
    };
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
        let own = own_settings();
        let hello = self.request(&own)?;
        let (Pipes { to, from }, early) = match &self.plan.host {
            FarHost::Ssh { name } => (start(&self.options.ssh, name, &self.options.far_path, &self.link)?, None),
            FarHost::Server { name, port } => {
                call(name, *port, self.options.key.as_ref(), &self.link, &|rtt| self.early_connections(rtt, &own))?
            }
        };
        let (out, writer) = Outgoing::start(to, &self.pulse).map_err(CopyError::io("cannot speak to the far end"))?;
        let copied = self.copy_over(Call { from, out: &out, own: &own, hello, early }, sources, began);
        if let Err(error) = &copied
            && let Some(code) = error.code_for_peer()
        {
            out.send(&Message::Refused { code, why: error.to_string() });
        }
        out.close();
        if copied.is_ok() {
            // Both ends have everything, and the far one ends with its input: to wait for that would take round trips.
            let _ = writer.join();
            release(&self.link);
        } else {
            end(&self.link);
        }
        copied
    }

    fn sources(&self) -> Result<Vec<Source>, CopyError> {
        self.plan.near.iter().map(|path| Source::open(&Root::User, path)).collect()
    }

    fn copy_over(&self, call: Call<'_>, sources: Vec<Source>, began: Instant) -> CopyResult {
        let end = self.end(call.out, sources);
        self.copy_with(&end, call, began).inspect_err(|_| end.give_up())
    }

    fn copy_with(&self, end: &End, call: Call<'_>, began: Instant) -> CopyResult {
        let Call { from, out, own, hello, early } = call;
        let secret = hello.secret;
        let credentials =
            Credentials::new(&secret, &self.options.unencrypted).map_err(CopyError::io("cannot make a key"))?;
        // It is there when the far end begins, which saves a round trip.
        out.send(&Message::Hello(hello));
        // The list needs no answer of a server.
        if !self.may_ask() {
            end.begin()?;
        }
        let (mut frames, ready) = self.answer(from, out)?;
        let other = settings_of(&ready.settings);
        let server = peer(&self.link);
        let far = Reached {
            out,
            ready: &ready,
            way: &self.plan.host,
            hosts: match server {
                Some((address, _)) => with_first(at_port(address, 0), addresses(self.plan.host.name())),
                None => self.data_addrs(&ready),
            },
            server,
            credentials: &credentials,
            secret: &secret,
            early: Mutex::new(early),
            settings: [own, &other],
            is_over: AtomicBool::new(false),
        };
        if self.may_ask() {
            end.begin()?;
        }
        let (figures, way) = self.follow(&far, end, &mut frames, began)?;
        Ok(self.report(way, figures, began.elapsed()))
    }

    /// Returns the addresses of a far end behind ssh.
    fn data_addrs(&self, ready: &Ready) -> Vec<SocketAddr> {
        let FarHost::Ssh { name } = &self.plan.host else { return Vec::new() };
        // The scope of a link-local one is not of this host.
        let says = str::from_utf8(&ready.address).ok().and_then(|text| text.parse().ok());
        called(self.plan.host.name(), says.map(|says: IpAddr| says.to_canonical()), || {
            configured_host(&self.options.ssh, name)
        })
    }

    /// Returns true if the far end is started through ssh, which may ask for a password first.
    fn may_ask(&self) -> bool {
        matches!(self.plan.host, FarHost::Ssh { .. })
    }

    /// Waits until the far end has answered.
    fn answer<R: BufRead>(&self, mut from: R, out: &Outgoing) -> Result<(Frames<R>, Ready), CopyError> {
        if !greeted(&mut from, self.may_ask(), &self.pulse) {
            return Err(self.not_there(out));
        }
        let mut frames = Frames::new(from, &self.pulse);
        let ready = ready(&mut frames)?;
        Ok((frames, ready))
    }

    /// Carries out what the far end says, while connections for data are made, until everything is done.
    fn follow<R: Read>(
        &self,
        far: &Reached<'_>,
        end: &End,
        frames: &mut Frames<R>,
        began: Instant,
    ) -> Result<(BothFigures, Way), CopyError> {
        thread::scope(|threads| {
            let work = || self.carry(far, end, began);
            let connecting = thread::Builder::new().name("copy-connect".to_owned()).spawn_scoped(threads, work);
            let connecting = connecting.map_err(CopyError::io("cannot start a thread"))?;
            let followed = end.follow(frames);
            far.is_over.store(true, Ordering::Relaxed);
            let (way, carriers) = connecting.join().map_err(|_| CopyError::Gone)?;
            Ok((end.end(followed, &carriers)?, way))
        })
    }

    /// Makes connections for data, and lets them carry it: meanwhile the list crosses.
    fn carry(&self, far: &Reached<'_>, end: &End, began: Instant) -> (Way, Carriers) {
        let Connected { connections, transport, reason } = self.connect(far);
        let (set_up, streams) = (began.elapsed(), connections.count());
        self.note(&reason);
        let rtt = (streams > 0).then_some(connections.rtt);
        let carriers = end.carry(connections, far.settings.map(Clone::clone));
        (Way { transport, rtt, reason, streams, set_up }, carriers)
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

    /// Returns the request, unless it is too long for one message.
    fn request(&self, own: &HostSettings) -> Result<Hello, CopyError> {
        const TOO_LONG: CopyError = CopyError::Places(
            "one copy names at most 65535 paths at the other end and 65535 patterns, each of at most 65535 bytes, and \
             all of at most 1 MiB",
        );
        let secret = random().map_err(CopyError::io("cannot make a key"))?;
        Some(self.hello(secret, own)).filter(Hello::fits).ok_or(TOO_LONG)
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
            no_compress: self.options.no_compress,
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
            let CopyOptions { scavenge, no_bbr, no_compress, .. } = self.options;
            let common = common.within(Bounds::new(paces, None).of_options(scavenge, no_bbr, no_compress));
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
}

/// The way to the far end, before it has answered.
struct Call<'r> {
    from: Box<dyn BufRead + Send>,
    out: &'r Outgoing,
    /// Settings of this host.
    own: &'r HostSettings,
    /// The request.
    hello: Hello,
    /// Connections for data that are being made meanwhile.
    early: Option<Early>,
}

fn ready<R: Read>(frames: &mut Frames<R>) -> Result<Ready, CopyError> {
    let frame = frames.next_message().map_err(|_| CopyError::Gone)?.ok_or(CopyError::Gone)?;
    match Message::read(frame)? {
        Message::Ready(ready) => Ok(ready),
        Message::Refused { code, why } => Err(CopyError::Refused { code, why }),
        _ => Err(CopyError::Protocol("the far end does not answer the request".to_owned())),
    }
}

fn with_first(first: SocketAddr, mut others: Vec<SocketAddr>) -> Vec<SocketAddr> {
    others.retain(|other| *other != first);
    others.insert(0, first);
    others.truncate(MAX_CALLED);
    others
}
