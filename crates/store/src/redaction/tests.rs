use super::*;

fn knowing(names: &[&str]) -> Redaction {
    let mut redaction = Redaction::default();
    for name in names {
        redaction.learn_name(name);
    }
    redaction
}

/// Each name was searched in each text: 20 000 of them in as many texts took minutes.
#[test]
fn many_names_take_no_longer_than_few_and_the_longest_at_a_place_counts() {
    let count = 20_000;
    let hosts: Vec<String> = (0..count).map(|number| format!("a-{number}")).collect();
    let texts: Vec<String> = (0..count)
        .map(|number| format!("from a-{number} to xa-1 and a-{number}x"))
        .collect();
    let body = serde_json::json!({ "hosts": hosts, "texts": texts }).to_string();
    let began = std::time::Instant::now();
    let redacted = Redaction::default().redact_body(body.as_bytes()).unwrap();
    assert!(
        began.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let value: Value = serde_json::from_str(&redacted).unwrap();
    assert_eq!(
        value["texts"][7],
        format!(
            "from {} to xa-1 and a-7x",
            value["hosts"][7].as_str().unwrap()
        )
    );
    let mut redaction = knowing(&["box", "box-1", "box-1.example", "\u{fc}ber", "sender"]);
    let new = redaction
        .redact_text("box box-1 box-1.example box-12 boxes box-1.examples \u{fc}ber sender");
    let shape = new.replace(|c: char| c.is_ascii_digit(), "#");
    assert_eq!(
        shape, "name-# name-# name-# name-#-## boxes name-#.examples name-# sender",
        "{new}"
    );
}

#[test]
fn the_same_is_replaced_by_the_same_everywhere() {
    let mut redaction = knowing(&["alpha", "alpha.example.org"]);
    let text = "alpha → 10.1.2.3: ssh me@alpha.example.org:22 from [2001:db8:9::1]:5201, 10.1.2.3:5201 in 10.1.0.0/16";
    assert_eq!(
        redaction.redact_text(text),
        "name-1 → 198.18.0.1: ssh me@name-2:22 from [2001:db8::1]:5201, 198.18.0.1:5201 in 198.18.0.2/16"
    );
    assert_eq!(redaction.redact_text("10.1.2.3"), "198.18.0.1");
}

#[test]
fn paths_and_urls_are_replaced_and_quantities_are_not() {
    let mut redaction = knowing(&["alpha"]);
    assert_eq!(
        redaction
            .redact_text("94.1 Mbit/s by /home/me/a.pcap, https://alpha/x and ~/b; alphabet 1/2"),
        "94.1 Mbit/s by /path-1, url-1 and /path-2; alphabet 1/2"
    );
    assert_eq!(
        redaction.redact_text("aa:bb:cc:dd:ee:0f at 12:30:45"),
        "00:00:5e:00:00:01 at 12:30:45"
    );
}

#[test]
fn addresses_are_found_whatever_stands_around_them() {
    for (text, redacted) in [
        ("fe80::5054:ff:fe12:3456%eth0", "2001:db8::1%eth0"),
        (
            "[fe80::5054:ff:fe12:3456%eth0]:5201",
            "[2001:db8::1%eth0]:5201",
        ),
        ("up to 2001:db8:9::", "up to 2001:db8::1"),
        ("2001:db8:9::/48", "2001:db8::1/48"),
        ("10.1.2.3/5201", "198.18.0.1/5201"),
        ("10.1.2.3-10.1.2.9", "198.18.0.1-198.18.0.2"),
        ("[10.1.2.3]:5201", "[198.18.0.1]:5201"),
        ("peer:10.1.2.3:5201", "peer:198.18.0.1:5201"),
        (
            "10.1.2.3.5201 > 10.1.2.9.22:",
            "198.18.0.1.5201 > 198.18.0.2.22:",
        ),
        ("10.1.2.3!", "198.18.0.1!"),
        ("AA-bb-cc-dd-ee-0f", "00:00:5e:00:00:01"),
        (
            "10.1.2.3:/home/me/x and beta:~/y",
            "198.18.0.1:/path-1 and beta:/path-2",
        ),
    ] {
        assert_eq!(Redaction::default().redact_text(text), redacted);
    }
    let text = "TCP download::1 at 12:30:45, std::fmt, 94.1, r1.2.3.4 and v1.10.0.3x";
    assert_eq!(Redaction::default().redact_text(text), text);
}

#[test]
fn loopback_stays() {
    assert_eq!(
        Redaction::default().redact_text("127.0.0.1:5201 [::1]:5201 0.0.0.0"),
        "127.0.0.1:5201 [::1]:5201 0.0.0.0"
    );
}

#[test]
fn names_are_found_in_fields_and_then_in_every_text() {
    let body = r#"{"peer":{"host":"beta:5201"},"local":{"host":{"name":"gamma","kernel":"6.18"}},
            "warnings":["gamma cannot reach beta"],"rate":5,"qdisc_gamma::sent":[1]}"#;
    let redacted = Redaction::default().redact_body(body.as_bytes()).unwrap();
    assert!(
        !redacted.contains("beta") && !redacted.contains("gamma"),
        "{redacted}"
    );
    assert!(redacted.contains("\"rate\":5"), "{redacted}");
}

/// Hosts of a lab are called `sender` and `receiver`: the document could not be read any more.
#[test]
fn a_host_that_is_called_like_a_word_of_the_schema() {
    let body = r#"{"schema":2,"kind":"lab",
            "local":{"host":{"name":"sender","kernel":"6.18"},"peer":"sender → gamma"},"at":"sender",
            "limit":"sender-application","sender_samples":[],"sender":1,"gamma":2,
            "text":"gamma: loss holds the sender back"}"#;
    let redacted = Redaction::default().redact_body(body.as_bytes()).unwrap();
    let value: Value = serde_json::from_str(&redacted).unwrap();
    assert_eq!(value["local"]["host"]["name"], "name-1");
    assert_eq!(
        (&value["at"], &value["limit"]),
        (&"sender".into(), &"sender-application".into())
    );
    assert_eq!(value["text"], "gamma: loss holds the sender back");
    assert!(
        value["sender_samples"].is_array() && value["sender"] == 1 && value["gamma"] == 2,
        "{redacted}"
    );
    let mut redaction = knowing(&["sender", "gamma"]);
    let document = StoredDocument {
        host: "sender".to_owned(),
        path_key: "sender → gamma".to_owned(),
        ..Default::default()
    };
    let redacted = redaction.redact_document(&document);
    assert!(
        !redacted.path_key.contains("sender") && !redacted.host.contains("sender"),
        "{redacted:?}"
    );
}

#[test]
fn a_campaign_is_named_after_a_host() {
    let document = StoredDocument {
        host: "alpha".to_owned(),
        peer: "beta".to_owned(),
        campaign: "from alpha to 10.1.2.3".to_owned(),
        cell: "1: beta".to_owned(),
        ..Default::default()
    };
    let redacted = Redaction::default().redact_document(&document);
    assert_eq!(
        (redacted.campaign.as_str(), redacted.host.as_str()),
        ("from name-1 to 198.18.0.1", "name-1")
    );
    assert_eq!(
        (redacted.cell.as_str(), redacted.peer.as_str()),
        ("1: name-2", "name-2")
    );
}

#[test]
fn words_of_the_schema_are_fields_and_values() {
    for word in [
        "sender_samples",
        "sender-application",
        "measurement",
        "receiver",
    ] {
        assert!(WORDS.contains(word), "{word}");
    }
}

#[test]
fn what_is_no_json_is_not_given_out() {
    assert_eq!(Redaction::default().redact_body(b"alpha: 5"), None);
}
