use std::borrow::Cow;

use fullpipe_record::{Event, EventLine};

use super::*;

#[test]
fn events_are_read_by_the_names_that_they_are_written_with() {
    let read = |event: Event| {
        let line = EventLine {
            time: "2026-11-01T12:00:00Z".to_owned(),
            event: Cow::Owned(event),
        };
        client_event(&serde_json::to_string(&line).unwrap()).unwrap()
    };
    assert!(matches!(read(Event::Idle), ClientEvent::Other));
    let failed = ErrorReport {
        message: "refused".to_owned(),
        exit_code: 1,
    };
    assert!(matches!(read(Event::Error(failed)), ClientEvent::Error(_)));
    for (name, data) in [
        ("interval", "struct Interval"),
        ("measurement", "struct Measurement"),
    ] {
        let error = client_event(&format!(r#"{{"time":"","event":"{name}","data":1}}"#))
            .err()
            .unwrap();
        assert!(error.to_string().contains(data), "{error}");
    }
}
