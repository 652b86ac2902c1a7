//! What a test does, as it happens: server-sent events (HTML standard, section 9.2).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use tokio::time::timeout;

use crate::answer::{Answer, answer_with_body};
use crate::page::live_part;
use crate::runs::{RunState, TestRuns};

/// Time after which a reader without news gets a comment, so that one that went away is found.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time for a reader to take an event.
const READ_DEADLINE: Duration = Duration::from_secs(30);

/// Least time between two events: pictures are not drawn faster than that.
const INTERVAL: Duration = Duration::from_millis(200);

/// Events that a reader may be behind.
const WAITING_EVENTS: usize = 4;

/// Returns the events of the tests of this server, which has no end.
pub(crate) fn live_events(runs: &Arc<TestRuns>) -> Answer {
    let (sender, body) = Channel::<Bytes>::new(WAITING_EVENTS);
    tokio::spawn(send_events(Arc::clone(runs), sender));
    answer_with_body(StatusCode::OK, "text/event-stream", body.boxed_unsync())
}

/// Sends the state after each change, until the reader goes away.
async fn send_events(runs: Arc<TestRuns>, mut sender: Sender<Bytes>) {
    let mut changes = runs.changes();
    changes.mark_changed();
    loop {
        let text = match timeout(KEEP_ALIVE, changes.changed()).await {
            Ok(Ok(())) => event_text(*changes.borrow_and_update(), &runs.state()),
            Ok(Err(_)) => return,
            Err(_) => ":\n\n".to_owned(),
        };
        match timeout(READ_DEADLINE, sender.send_data(text.into())).await {
            Ok(Ok(())) => tokio::time::sleep(INTERVAL).await,
            _ => return,
        }
    }
}

/// Returns an event: the part of the page that it replaces, as JSON, which has no line breaks.
fn event_text(number: u64, state: &RunState) -> String {
    let kind = match state {
        RunState::Running(_) => "running",
        _ => "ended",
    };
    let data = serde_json::Value::String(live_part(state));
    format!("event: {kind}\nid: {number}\ndata: {data}\n\n")
}
