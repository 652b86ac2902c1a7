use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use fullpipe_probe::echo_minutes;
use fullpipe_sys::lock;
use fullpipe_units::Span;
use tokio::net::lookup_host;

use crate::plan::{EchoMinute, EchoTarget};

/// Minutes that are kept while the controller is away: those of a hundred hosts over six hours.
const MAX_MINUTES: usize = 36_000;

/// Minutes that a controller takes at once: half a megabyte.
const MAX_AT_ONCE: usize = 5000;

/// Round trips to the other hosts of the fleet, measured by a thread.
#[derive(Default)]
pub(super) struct FleetEchoes {
    targets: Vec<EchoTarget>,
    minutes: Arc<Mutex<Vec<EchoMinute>>>,
    interrupt: Arc<AtomicBool>,
}

impl FleetEchoes {
    /// Measures the round trips to these hosts from now on. One whose name has no address is left
    /// out.
    ///
    /// # Errors
    /// Fails if there can be no other thread.
    pub(super) async fn set_targets(&mut self, targets: Vec<EchoTarget>) -> io::Result<()> {
        if targets == self.targets {
            return Ok(());
        }
        self.interrupt.store(true, Ordering::Relaxed);
        self.interrupt = Arc::default();
        let mut hosts: Vec<(String, IpAddr)> = Vec::new();
        for target in &targets {
            let found = lookup_host(&target.address).await;
            let address = found.ok().and_then(|mut found| found.next());
            hosts.extend(address.map(|address| (target.host.clone(), address.ip())));
        }
        self.targets = targets;
        let (minutes, interrupt) = (Arc::clone(&self.minutes), Arc::clone(&self.interrupt));
        thread::Builder::new()
            .name("echoes".to_owned())
            .spawn(move || measure_minutes(&hosts, &interrupt, &minutes))
            .map(drop)
    }

    /// Returns minutes that the controller does not have yet, as many as it takes at once.
    pub(super) fn oldest_minutes(&self) -> Vec<EchoMinute> {
        let minutes = lock(&self.minutes);
        minutes.iter().take(MAX_AT_ONCE).cloned().collect()
    }

    /// Notes that the controller has the first so many minutes.
    pub(super) fn drop_minutes(&self, count: usize) {
        let mut minutes = lock(&self.minutes);
        let count = count.min(minutes.len());
        minutes.drain(..count);
    }
}

impl Drop for FleetEchoes {
    fn drop(&mut self) {
        self.interrupt.store(true, Ordering::Relaxed);
    }
}

fn measure_minutes(
    hosts: &[(String, IpAddr)],
    interrupt: &AtomicBool,
    minutes: &Mutex<Vec<EchoMinute>>,
) {
    let addresses: Vec<IpAddr> = hosts.iter().map(|(_, address)| *address).collect();
    // Where this user may send none, rates alone tell of changes.
    let _ = echo_minutes(&addresses, interrupt, &mut |place, minute| {
        let mut minutes = lock(minutes);
        if minutes.len() < MAX_MINUTES {
            minutes.push(EchoMinute {
                host: hosts[place].0.clone(),
                minute: minute.minute,
                sent: minute.sent,
                lost: minute.lost,
                rtt_ns: minute.rtt.map(Span::as_nanos),
            });
        }
    });
}
