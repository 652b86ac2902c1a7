use super::*;

fn shared(change: impl FnOnce(&mut ShareOptions)) -> ShareState {
    let mut options = ShareOptions {
        folder: PathBuf::from("/"),
        is_read_only: true,
        key: SharedKey::from_file_content(b"correct horse battery").unwrap(),
        bind: None,
        port: Some(0),
        allow: Vec::new(),
        deny: Vec::new(),
        copies: 3,
        copies_of_one: 2,
        rate: None,
        duration: None,
        bytes: None,
    };
    change(&mut options);
    ShareState::new(options, FolderRoot::User)
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn only_networks_that_are_allowed_and_not_denied_are_served() {
    let shared = shared(|options| {
        options.allow = vec!["192.0.2.0/24".parse().unwrap()];
        options.deny = vec!["192.0.2.7".parse().unwrap()];
    });
    assert!(shared.serves_address(address(1)) && !shared.serves_address(address(7)));
    assert!(!shared.serves_address(IpAddr::from([198, 51, 100, 1])));
}
