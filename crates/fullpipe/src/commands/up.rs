//! `fullpipe lab up`: a path that stands until its user leaves.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_lab::{Backend, DirectionStatus, Host, Lab, PathStatus};
use fullpipe_record::{Path, PathChange, PathDirection};
use fullpipe_scenario::Scenario;
use fullpipe_units::{BitRate, Ratio, Span};
use serde_json::json;

use super::lab::plan;
use crate::failure::{Failure, INTERRUPTED};
use crate::terminal::{Keys, Terminal};

/// The longest that an interrupt waits.
const LOOK: Duration = Duration::from_millis(100);

/// Builds the lab of `scenario`, lets other programs of this user in under `name`, and tells each `interval` what the path
/// does, until `q` is typed. Other keys change the path.
pub(super) fn up(
    scenario: &Scenario,
    name: &str,
    backend: Backend,
    interval: Span,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let flag = super::interrupt_flag()?;
    let lab = Lab::start(&plan(scenario, backend))?;
    let _entrance = lab.open_entrance(name)?;
    introduce(scenario, name, terminal);
    let mut keys = Keys::listen();
    let mut knobs = Knobs::of(&scenario.path);
    let mut meter = lab.meter()?;
    let mut next = Instant::now() + interval.into();
    while !flag.load(Ordering::Relaxed) {
        match keys.next(next.saturating_duration_since(Instant::now()).min(LOOK)) {
            Some('q') => return Ok(()),
            Some(key) if knobs.turn(key) => {
                knobs.apply(key, &lab);
                terminal.any_event(&json!({"event": "changed", "data": &knobs.directions}));
                terminal.result(&format!("{knobs}\n"));
            }
            _ => {}
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
    terminal.result("change with r R (rate), d D (delay), l L (loss), capitals for more; leave with q\n");
}

/// The path as its user has changed it.
struct Knobs {
    directions: [PathDirection; 2],
}

impl Knobs {
    fn of(path: &Path) -> Self {
        Self { directions: [path.forward.clone(), path.reverse.clone()] }
    }

    /// Turns what `key` stands for, in both directions; whether it stands for anything.
    fn turn(&mut self, key: char) -> bool {
        let turn: fn(&mut PathDirection, bool) = match key.to_ascii_lowercase() {
            'r' => turn_rate,
            'd' => turn_delay,
            'l' => turn_loss,
            _ => return false,
        };
        self.directions.iter_mut().for_each(|direction| turn(direction, key.is_ascii_uppercase()));
        true
    }

    /// Tells the running path what `key` turned, and nothing else: a pattern of losses stays until losses are turned.
    fn apply(&self, key: char, lab: &Lab) {
        for (host, direction) in Host::ALL.into_iter().zip(&self.directions) {
            let nothing = PathChange::default();
            let change = match key.to_ascii_lowercase() {
                'r' => PathChange { rate: direction.rate, ..nothing },
                'd' => PathChange { delay: Some(direction.delay), ..nothing },
                _ => PathChange { loss: direction.loss, ..nothing },
            };
            lab.change(host, change);
        }
    }
}

impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [forward, reverse] = &self.directions;
        let rate = forward.rate.map_or_else(|| "no rate".to_owned(), |rate| rate.to_string());
        let loss = forward.loss.unwrap_or_default();
        write!(f, "path: {rate}, RTT {}, loss {loss}", forward.delay + reverse.delay)
    }
}

/// A quarter more, or a fifth less. A path without a rate has none to change.
fn turn_rate(direction: &mut PathDirection, more: bool) {
    const LEAST: BitRate = BitRate::from_bps(1000);
    let factor = if more { 1.25 } else { 0.8 };
    direction.rate = direction.rate.map(|rate| rate.scaled(factor).max(LEAST));
}

/// A quarter of it, and at least half a millisecond.
fn turn_delay(direction: &mut PathDirection, more: bool) {
    const LEAST: Span = Span::from_micros(500);
    const MOST: Span = Span::from_secs(10);
    let step = direction.delay.scaled(0.25).max(LEAST);
    let delay = if more { direction.delay + step } else { direction.delay.saturating_sub(step) };
    direction.delay = delay.min(MOST);
}

/// Twice as much from 10⁻⁵ on, or half as much down to none.
fn turn_loss(direction: &mut PathDirection, more: bool) {
    const LEAST: f64 = 1e-5;
    const MOST: f64 = 0.5;
    let loss = direction.loss.unwrap_or_default().get();
    let turned = if more { (loss * 2.0).clamp(LEAST, MOST) } else { loss / 2.0 };
    direction.loss = Some(Ratio::new(if turned < LEAST { 0.0 } else { turned }));
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

#[cfg(test)]
mod tests {
    use fullpipe_scenario::PathSpec;

    use super::*;

    #[test]
    fn keys_turn_both_directions_within_bounds() {
        let mut knobs = Knobs::of(&PathSpec::demo().path().unwrap());
        assert_eq!(knobs.to_string(), "path: 1 Gbit/s, RTT 100 ms, loss 0 %");
        for key in "RDLL".chars() {
            assert!(knobs.turn(key));
        }
        assert_eq!(knobs.to_string(), "path: 1.25 Gbit/s, RTT 125 ms, loss 0.002 %");
        for _ in 0..200 {
            "rdl".chars().for_each(|key| assert!(knobs.turn(key)));
        }
        assert_eq!(knobs.to_string(), "path: 1 kbit/s, RTT 0 s, loss 0 %");
        assert!(!knobs.turn('x') && !knobs.turn('\n'));
    }
}
