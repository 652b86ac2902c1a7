use super::*;

#[test]
fn a_host_may_come_with_its_port() {
    let server = |text: &str| {
        text.parse::<ServerAddress>()
            .map(|server| (server.name, server.port))
    };
    for (text, name, port) in [
        ("host", "host", None),
        ("host:5301", "host", Some(5301)),
        ("192.0.2.1:80", "192.0.2.1", Some(80)),
        ("2001:db8::1", "2001:db8::1", None),
        ("[2001:db8::1]", "2001:db8::1", None),
        ("[2001:db8::1]:5301", "2001:db8::1", Some(5301)),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", Some(1)),
    ] {
        assert_eq!(server(text), Ok((name.to_owned(), port)), "{text}");
    }
    for text in [
        "",
        ":80",
        "host:",
        "host:0",
        "host:70000",
        "host:http",
        "[::1",
        "[::1]80",
        "[]:80",
        "[::1]:",
    ] {
        assert!(server(text).is_err(), "{text}");
    }
}

#[test]
fn processors_are_of_one_end_or_of_both() {
    assert_eq!(
        "3".parse(),
        Ok(ProcessorAffinity {
            here: Some(3),
            there: None
        })
    );
    assert_eq!(
        "3,0".parse(),
        Ok(ProcessorAffinity {
            here: Some(3),
            there: Some(0)
        })
    );
    assert_eq!(
        "nic,0".parse(),
        Ok(ProcessorAffinity {
            here: None,
            there: Some(0)
        })
    );
    for text in ["", ",1", "1,", "-1", "70000", "0,nic"] {
        assert!(text.parse::<ProcessorAffinity>().is_err(), "{text}");
    }
}
