//! `fullpipe lab up`: a path that stands until its user leaves.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_lab::{Backend, DirectionStatus, Host, Lab, PathStatus, Plan};
use fullpipe_scenario::Scenario;
use fullpipe_units::Span;
use serde_json::json;

use crate::failure::{Failure, INTERRUPTED};
use crate::terminal::{Keys, Terminal};

/// The longest that an interrupt waits.
const LOOK: Duration = Duration::from_millis(100);

/// Builds the lab of `scenario`, lets other programs of this user in under `name`, and tells each `interval` what the path
/// does, until `q` is typed.
pub(super) fn up(
    scenario: &Scenario,
    name: &str,
    backend: Backend,
    interval: Span,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let flag = super::interrupt_flag()?;
    let lab = Lab::start(&Plan {
        path: scenario.path.clone(),
        seed: scenario.seed,
        sender: scenario.sender.clone(),
        receiver: scenario.receiver.clone(),
        backend,
        interactive: false,
    })?;
    let _entrance = lab.open_entrance(name)?;
    introduce(scenario, name, terminal);
    let mut keys = Keys::listen();
    let mut meter = lab.meter()?;
    let mut next = Instant::now() + interval.into();
    while !flag.load(Ordering::Relaxed) {
        if keys.next(next.saturating_duration_since(Instant::now()).min(LOOK)) == Some('q') {
            return Ok(());
        }
        if Instant::now() >= next {
            show(&meter.read()?, terminal);
            next = Instant::now() + interval.into();
        }
    }
    Err(Failure::told(INTERRUPTED))
}

fn introduce(scenario: &Scenario, name: &str, terminal: &Terminal) {
    let [sender, receiver] = Host::ALL.map(|host| host.address().to_string());
    terminal.any_event(&json!({"event": "up", "data": {"name": name, "sender": sender, "receiver": receiver}}));
    terminal.result(&format!("{name}: {}\n", scenario.title));
    for (host, address) in Host::ALL.into_iter().zip([sender, receiver]) {
        terminal.result(&format!("  {:<8} {address}  fullpipe lab shell --join {name} {}\n", host.name(), host.name()));
    }
    terminal.result("leave with q\n");
}

fn show(status: &PathStatus, terminal: &Terminal) {
    terminal.any_event(&json!({"event": "path", "data": status}));
    let device_drops =
        if status.device_drops == 0 { String::new() } else { format!(" | devices dropped {}", status.device_drops) };
    terminal.live(&format!("→ {} | ← {}{device_drops}", one_way(&status.forward), one_way(&status.reverse)));
}

/// What a direction did, without what it did not.
fn one_way(status: &DirectionStatus) -> String {
    let mut words = vec![status.rate.to_string(), format!("queue {}", status.queue)];
    for (count, what) in [(status.queue_drops, "dropped"), (status.planted_losses, "lost")] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    words.extend(status.lateness_p99.map(|lateness| format!("late {lateness}")));
    words.join(", ")
}
