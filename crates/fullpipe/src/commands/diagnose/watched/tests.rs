use super::*;

/// The time once ended with the snapshot that noticed the end.
#[test]
fn the_time_of_a_program_ends_with_it_and_not_when_that_is_noticed() {
    let words = ["true".to_owned()];
    let mut program = ChildProgram::start(&mut Command::new("true"), &words).unwrap();
    thread::sleep(Duration::from_millis(900));
    let end = program.wait_for_end().unwrap();
    assert!(
        end.code == Some(0) && end.ran < Span::from_millis(600),
        "{end:?}"
    );
}

#[test]
fn what_a_program_has_started_is_ended_although_it_does_not_listen() {
    let words = ["sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60; true"].map(str::to_owned);
    let mut program = ChildProgram::start(Command::new("sh").args(&words[1..]), &words).unwrap();
    let begun = Instant::now();
    while child_descendants(&program.child).is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nothing was started"
        );
    }
    program.ask_to_end();
    assert!(!program.has_ended() && !program.descendants.is_empty());
    end_by(Instant::now(), &program.descendants);
    for process in &program.descendants {
        let ended = poll(
            &mut [PollFd::new(process, PollFlags::IN)],
            Timespec::try_from(TIMEOUT).ok().as_ref(),
        );
        assert_eq!(ended, Ok(1), "it goes on");
    }
}
