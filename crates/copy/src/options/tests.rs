use super::*;

fn far(host: &str, path: &str) -> CopyPath {
    CopyPath::Far {
        host: FarHost::Ssh {
            name: host.to_owned(),
        },
        path: path.as_bytes().to_vec(),
    }
}

fn served(name: &str, port: u16, path: &str) -> CopyPath {
    CopyPath::Far {
        host: FarHost::Server {
            name: name.to_owned(),
            port,
        },
        path: path.as_bytes().to_vec(),
    }
}

#[test]
fn a_colon_before_the_first_slash_names_another_host() {
    for (text, place) in [
        ("host:dir", far("host", "dir")),
        ("me@host:/dir/", far("me@host", "/dir/")),
        ("host:", far("host", ".")),
        ("[2001:db8::1]:dir", far("2001:db8::1", "dir")),
        ("me@[2001:db8::1]:a:b", far("me@2001:db8::1", "a:b")),
        ("./a:b", CopyPath::Near("./a:b".into())),
        ("/a:b", CopyPath::Near("/a:b".into())),
        (":a", CopyPath::Near(":a".into())),
        ("dir", CopyPath::Near("dir".into())),
        ("fullpipe://host", served("host", SHARE_PORT, ".")),
        ("fullpipe://host/", served("host", SHARE_PORT, ".")),
        (
            "fullpipe://192.0.2.1:99/a b/",
            served("192.0.2.1", 99, "a b/"),
        ),
        (
            "fullpipe://[2001:db8::1]/a",
            served("2001:db8::1", SHARE_PORT, "a"),
        ),
        (
            "fullpipe://[2001:db8::1]:99/a:b",
            served("2001:db8::1", 99, "a:b"),
        ),
        (
            "HTTPS://Host/a#b",
            CopyPath::Web(WebUrl::parse("https://host/a").unwrap()),
        ),
    ] {
        assert_eq!(CopyPath::parse_path(text.as_bytes()), Ok(place), "{text}");
    }
    for text in [
        "",
        "ftps://host/dir",
        "https:///dir",
        "http://me@host/dir",
        "fullpipe:///dir",
        "fullpipe://me@host/",
        "fullpipe://h:x/",
        "-oA=x:dir",
    ] {
        assert!(CopyPath::parse_path(text.as_bytes()).is_err(), "{text}");
    }
}

/// Brackets hid the dash, and ssh ran the command of the option.
#[test]
fn a_host_that_ssh_would_take_for_an_option_is_refused() {
    for text in [
        "[-oProxyCommand=touch x]:dir",
        "[[-oA=x]]:dir",
        "[]-oA=x:dir",
        "me@[-oA=x]:dir",
        "me@-oA=x:dir",
    ] {
        assert!(
            matches!(
                CopyPath::parse_path(text.as_bytes()),
                Err(PlaceError::Dash(_))
            ),
            "{text}"
        );
    }
}

/// With the code 0, a copy that a far end refused was a success.
#[test]
fn a_far_end_chooses_among_the_codes_of_failures() {
    let code = |code| {
        CopyError::Refused {
            code,
            why: String::new(),
        }
        .exit_code()
    };
    assert_eq!([0, 1, 2, 3, 4, 130, 255].map(code), [1, 1, 2, 3, 1, 1, 1]);
}
