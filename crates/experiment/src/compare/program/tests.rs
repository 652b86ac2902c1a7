use super::*;

#[test]
fn each_program_has_a_name_of_its_own_and_a_server_on_a_port_of_its_own_kind() {
    for program in TransferProgram::ALL {
        assert_eq!(TransferProgram::from_name(program.name()), Some(program));
        let client = program.client_command(Ipv4Addr::new(198, 18, 0, 2), ByteCount::from_mib(1));
        assert!(
            client.len() > 3 && !program.server_command().is_empty(),
            "{client:?}"
        );
    }
    assert_eq!(TransferProgram::from_name("telnet"), None);
}

#[test]
fn words_with_spaces_stay_whole() {
    let words = TransferProgram::Rsync.client_command(Ipv4Addr::LOCALHOST, ByteCount::from_mib(1));
    assert!(
        words.contains(&"ssh -F /run/compare/ssh.conf".to_owned()),
        "{words:?}"
    );
}

#[test]
fn iperf3_prints_its_version() {
    assert_eq!(
        parse_version("iperf 3.12 (cJSON 1.7.15)\nLinux host"),
        Some((3, 12))
    );
    assert_eq!(parse_version("iperf 3.1.3"), Some((3, 1)));
    assert_eq!(
        parse_version("iperf 3.17-mt-beta1 (cJSON 1.7.15)"),
        Some((3, 17))
    );
    assert_eq!(
        (parse_version(""), parse_version("iperf x.y")),
        (None, None)
    );
    let named = |version| {
        TransferProgram::Iperf3
            .application(version)
            .map(|known| known.asks_after.is_some())
    };
    assert_eq!(
        [Some((3, 12)), Some((3, 16)), None].map(named),
        [Some(true), Some(false), Some(false)]
    );
}

#[test]
fn an_executable_is_found_in_the_search_path() {
    assert!(find_executable("sh").is_some_and(|path| path.is_absolute()));
    assert_eq!(find_executable("no-such-program-at-all"), None);
}
