//! `--live`: a picture on the terminal while a command runs.

use std::cell::RefCell;
use std::rc::Rc;

use fullpipe_probe::{ProbeError, TestEvent, watch_closely};
use fullpipe_record::Interval;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::prelude::*;
use crate::live::{LiveDisplay, LivePage, MeasurementUpdate, find_terminal};
use crate::terminal::OutputHold;

/// The flag for a picture.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LiveArgument {
    /// Draw what happens on the terminal; q ends it
    ///
    /// The picture is on the terminal even if standard output is a file. The result is printed
    /// after it.
    #[arg(long)]
    live: bool,
}

/// The flags that a request to end sets.
#[derive(Default)]
pub(crate) struct InterruptFlags {
    /// Set by Ctrl-C and the like, so that work can end cleanly.
    pub(crate) flag: Arc<AtomicBool>,
    /// Set by each signal; a picture clears it.
    signalled: Arc<AtomicBool>,
    /// Actions of signals between two pictures.
    between: Rc<RefCell<Vec<SigId>>>,
}

impl LiveArgument {
    /// Returns true if a picture is asked for.
    pub(crate) fn is_wanted(self) -> bool {
        self.live
    }

    /// Returns the flags that a request to end sets. The second request ends the program at once;
    /// with a picture, after the terminal is given back. A terminal that is closed asks for the end
    /// of its picture's command, too.
    ///
    /// # Errors
    /// Fails if signals cannot be listened for, or if a picture is asked for and no terminal can
    /// show one.
    pub(crate) fn interrupt_flags(self) -> Result<InterruptFlags> {
        if !self.live {
            return Ok(InterruptFlags {
                flag: super::interrupt_flag()?,
                ..InterruptFlags::default()
            });
        }
        find_terminal()?;
        let interrupts = InterruptFlags::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            for flag in [&interrupts.flag, &interrupts.signalled] {
                signal_hook::flag::register(signal, Arc::clone(flag))
                    .map_err(|error| super::cannot_listen(&error))?;
            }
        }
        Ok(interrupts)
    }

    /// Takes the terminal for the picture of a page, if one is asked for.
    ///
    /// # Errors
    /// Fails if there is no terminal that can show one.
    pub(crate) fn start_picture<P: LivePage>(
        self,
        page: impl FnOnce() -> P,
        interrupts: &InterruptFlags,
    ) -> Result<Option<LivePicture<P::Update>>> {
        if !self.live {
            return Ok(None);
        }
        let InterruptFlags {
            flag,
            signalled,
            between,
        } = interrupts;
        for id in between.take() {
            signal_hook::low_level::unregister(id);
        }
        let live = LiveDisplay::start(page(), Arc::clone(flag), Arc::clone(signalled))?;
        let second = SecondRequest {
            flag: Arc::clone(flag),
            between: Rc::clone(between),
        };
        Ok(Some(LivePicture {
            live,
            _second: second,
            _held: OutputHold::start_hold(),
        }))
    }
}

/// A picture on the terminal, until this is dropped. Output to the same terminal waits until then.
/// Fields are dropped in their order.
pub(crate) struct LivePicture<U> {
    live: LiveDisplay<U>,
    _second: SecondRequest,
    _held: OutputHold,
}

impl<U: Send + 'static> LivePicture<U> {
    /// Passes an update to the page.
    pub(crate) fn send(&self, update: U) {
        self.live.send(update);
    }
}

/// Measures, and draws how it goes.
///
/// # Errors
/// Fails as [`fullpipe_probe::measure_transfer`] does.
pub(crate) fn draw_measurement(
    picture: &LivePicture<MeasurementUpdate>,
    destination: &Destination,
    request: &Request,
    interrupts: &InterruptFlags,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    watch_closely(destination, request, &interrupts.flag, &mut |event| {
        pass_event(Some(picture), event, progress);
    })
}

/// Passes an event of a test to its picture, if there is one, and each interval to `progress`.
pub(crate) fn pass_event(
    picture: Option<&LivePicture<MeasurementUpdate>>,
    event: TestEvent<'_>,
    progress: &mut dyn FnMut(&Interval),
) {
    let update = match event {
        TestEvent::Interval(interval) => return progress(interval),
        TestEvent::Connected(connected) => {
            MeasurementUpdate::Connected(Box::new(connected.request.clone()))
        }
        TestEvent::Snapshot(snapshot) => MeasurementUpdate::Snapshot(snapshot.clone()),
        TestEvent::SoFar(measurement) => MeasurementUpdate::SoFar(Box::new(measurement.clone())),
    };
    if let Some(picture) = picture {
        picture.send(update);
    }
}

/// Without a picture, the second request to end ends the program at once, for example while it
/// prints.
struct SecondRequest {
    flag: Arc<AtomicBool>,
    between: Rc<RefCell<Vec<SigId>>>,
}

impl Drop for SecondRequest {
    fn drop(&mut self) {
        for signal in [SIGINT, SIGTERM] {
            let second = Arc::new(AtomicBool::new(self.flag.load(Ordering::Relaxed)));
            // The program ends without it, too, only later.
            let end = signal_hook::flag::register_conditional_shutdown(
                signal,
                INTERRUPTED.into(),
                Arc::clone(&second),
            );
            let know = signal_hook::flag::register(signal, second);
            self.between
                .borrow_mut()
                .extend([end, know].into_iter().flatten());
        }
    }
}
