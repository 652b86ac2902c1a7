use super::*;
use std::sync::atomic::AtomicBool;

use super::super::folder::FolderMedium;

fn servers() -> RemoteServers {
    let urls = vec!["ftp://x/y".to_owned(), "https://x/z".to_owned()];
    RemoteServers {
        host: "me@far".to_owned(),
        ssh_options: ["-F", "c d"].map(str::to_owned).to_vec(),
        urls,
        bandwidth: None,
    }
}

#[test]
fn what_fetches_needs_a_url_of_its_own_kind() {
    let servers = servers();
    assert_eq!(
        servers.first_url(TransferProgram::Curl),
        Some("https://x/z")
    );
    assert_eq!(servers.first_url(TransferProgram::Ftp), Some("ftp://x/y"));
    let without = RemoteServers {
        urls: Vec::new(),
        ..servers
    };
    assert_eq!(
        without.lacks_url(TransferProgram::CurlTls).unwrap(),
        "no https URL was given with --url"
    );
}

#[test]
fn the_user_is_for_ssh_alone() {
    assert_eq!(servers().host_address(), "far");
    assert!(
        servers()
            .ssh_command()
            .ends_with(&["-F".to_owned(), "c d".to_owned()])
    );
    assert!(in_one_word(&servers().ssh_command()).ends_with("-F 'c d'"));
}

#[test]
fn a_folder_that_breaks_off_fails_its_transfer_and_keeps_the_others() {
    let ssh = [
        "sh",
        "-c",
        "echo /tmp/fullpipe-compare.x; read -r x; echo done",
    ]
    .map(str::to_owned);
    let mut folder = TransferFolder::create_remote("far", &ssh, FolderMedium::Memory).unwrap();
    let participants = Participant::from_programs(&[TransferProgram::Scp], &[]);
    let flag = AtomicBool::new(false);
    let interrupt = Interrupt(&flag);
    let rounds = ComparisonRounds {
        batch: "far",
        participants: &participants,
        count: 3,
        interrupt,
    };
    let mut transfer = |_: &Participant, round: u32| {
        let moved = folder.remove_copy(interrupt).map(|()| ProgramRun {
            round,
            ..ProgramRun::default()
        });
        or_failed(round, moved)
    };
    let runs = rounds.run(&mut transfer, &mut |_| {}).unwrap();
    let failed: Vec<bool> = runs[0].iter().map(|run| run.failed.is_some()).collect();
    assert_eq!(failed, [false, true, true]);
    assert!(
        runs[0][2]
            .failed
            .as_ref()
            .unwrap()
            .ends_with("the connection to it broke off"),
        "{runs:?}"
    );
}

#[test]
fn what_needs_ssh_is_left_out_without_it() {
    let command = ["nc", "{host}"].map(str::to_owned);
    let mut participants =
        Participant::from_programs(&[TransferProgram::Scp, TransferProgram::Iperf3], &command);
    let mut left_out = Vec::new();
    let error = CompareError::from_folder("far", "no route");
    leave_out(&mut participants, &mut left_out, &error).unwrap();
    assert_eq!(
        participants
            .iter()
            .map(Participant::name)
            .collect::<Vec<_>>(),
        ["iperf3", "command"]
    );
    assert!(
        left_out[0].program == "scp" && left_out[0].why.ends_with("no route"),
        "{left_out:?}"
    );
}
