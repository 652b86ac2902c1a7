use super::*;
use crate::calc::read_values;
use crate::test_fixture;
use proptest::prelude::*;

fn axes(values: &[(Quantity, &str)]) -> CombinationAxes {
    CombinationAxes::new(
        Inputs::default(),
        values
            .iter()
            .map(|(quantity, text)| read_values(*quantity, text).unwrap()),
    )
    .unwrap()
}

fn run_on(threads: usize, file: &[u8], axes: &CombinationAxes) -> (String, Result<(), String>) {
    let hosts = test_fixture::default_hosts();
    let mut out = Vec::new();
    let batch = CalculationBatch::of_file(file, axes, &hosts);
    let ended = batch.map_err(|error| error.to_string()).and_then(|batch| {
        batch
            .run(NonZeroUsize::new(threads).unwrap(), &mut out)
            .map_err(|error| error.to_string())
    });
    (String::from_utf8(out).unwrap(), ended)
}

fn written(file: &str, axes: &CombinationAxes) -> String {
    let (text, ended) = run_on(2, file.as_bytes(), axes);
    ended.unwrap();
    text
}

#[test]
fn each_row_gets_its_answer() {
    let file = "bandwidth,rtt,window\n1G,100ms,\n1e8,0.173,64KiB\n";
    assert_eq!(
        written(file, &axes(&[])),
        "bandwidth,rtt,window,textbook_bps,kernel_model_bps,low_bps,high_bps,limit\n\
             1G,100ms,,335544320,324927584,311930481,337924687,send-buffer\n\
             1e8,0.173,64KiB,3030520,3008348,2918098,3098598,receive-window\n"
    );
}

#[test]
fn lists_multiply_rows_and_a_size_takes_time() {
    let text = written(
        "rtt\n10ms\n20ms\n",
        &axes(&[(Quantity::Streams, "1,2"), (Quantity::Size, "1GB")]),
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "rtt,streams,textbook_bps,kernel_model_bps,low_bps,high_bps,limit,seconds"
    );
    let starts: Vec<&str> = lines[1..].iter().map(|line| &line[..7]).collect();
    assert_eq!(starts, ["10ms,1,", "10ms,2,", "20ms,1,", "20ms,2,"]);
    assert!(
        lines.iter().all(|line| line.split(',').count() == 8),
        "{text}"
    );
}

#[test]
fn files_as_programs_write_them_are_read() {
    let textbook = written("rtt,loss\n10ms,0.1%\n", &axes(&[]));
    for file in [
        "rtt,loss\r\n10ms,0.1%\r\n",
        "\"rtt\",\"loss\"\n\"10ms\",\"0.1%\"",
        "\n rtt , loss\n\n 10ms, 0.1%\n\n",
        "\u{feff}rtt,loss\n10ms,0.1%\n",
    ] {
        assert_eq!(written(file, &axes(&[])), textbook, "{file:?}");
    }
    assert_eq!(written("rtt\n", &axes(&[])).lines().count(), 1);
}

#[test]
fn a_bad_file_is_reported_by_line_and_column() {
    for (file, sentence) in [
        (
            "",
            "a table needs --rtt or --distance, as in --rtt 10ms..200ms",
        ),
        (
            "window\n1M\n",
            "a table needs --rtt or --distance, as in --rtt 10ms..200ms",
        ),
        (
            "rtt,delay\n",
            "line 1: \"delay\" is not a column here; the columns are bandwidth, rtt, distance, window, buffer, sndbuf, rcvbuf, app-window, pause, \
                 loss, mtu, streams, congestion, size",
        ),
        (
            "rtt,window,buffer\n",
            crate::calc::calculate::WINDOW_AND_BUFFER,
        ),
        ("rtt,rtt\n", "line 1: column rtt comes twice"),
        (
            "rtt,mtu\n",
            "--mtu and the file's column mtu exclude each other; give one of them",
        ),
        (
            "rtt\n1ms\n1parsec\n",
            "line 3: column rtt: \"1parsec\" is not a time: its unit cannot be \"parsec\"; write for example \
                 173ms, 50us or 10s",
        ),
        (
            "rtt\n1ms\n-1\n",
            "line 3: column rtt: \"-1\" is not a time: it must not be negative; write for example 173ms, 50us or \
                 10s",
        ),
        (
            "rtt\n1ms\nnan\n",
            "line 3: column rtt: \"nan\" is not a time: a number must come first; write for example 173ms, 50us or \
                 10s",
        ),
        (
            "rtt,loss\n1ms,0\n1ms,2\n",
            "line 3: column loss: a path that loses every packet carries nothing; write for example 0.01%",
        ),
        (
            "rtt,loss\n1ms,0\n\n1ms\n",
            "line 4: 1 cells, but the header has 2 columns",
        ),
        (
            "rtt\n\"1\nms\"\n",
            "line 2: column rtt: a cell is plain text in one line",
        ),
        (
            "rtt,loss\n,0\n",
            "line 2: it has no rtt and no distance; write for example 173ms in column rtt",
        ),
    ] {
        assert_eq!(
            run_on(2, file.as_bytes(), &axes(&[(Quantity::Mtu, "1500")])).1,
            Err(sentence.to_owned()),
            "{file}"
        );
    }
}

#[test]
fn rows_before_a_bad_one_are_written_and_none_after_it() {
    let mut file = "rtt\n".to_owned() + &"10ms\n".repeat(50_000);
    let good = written(&file, &axes(&[]));
    file += "soon\n";
    file += &"10ms\n".repeat(50_000);
    for threads in [1, 4] {
        let (text, ended) = run_on(threads, file.as_bytes(), &axes(&[]));
        assert!(text == good);
        assert!(
            ended
                .unwrap_err()
                .starts_with("line 50002: column rtt: \"soon\"")
        );
    }
}

#[test]
fn order_is_kept_whatever_the_number_of_threads() {
    let file = (1..30_000).fold("rtt\n".to_owned(), |file, micros| {
        file + &format!("{micros}us\n")
    });
    let axes = axes(&[(Quantity::Window, "64K,1M")]);
    let one = run_on(1, file.as_bytes(), &axes);
    assert_eq!(one.0.lines().count(), 2 * 29_999 + 1);
    assert!(one == run_on(3, file.as_bytes(), &axes));
}

#[test]
fn lists_alone_need_no_file() {
    let (axes, hosts) = (
        axes(&[(Quantity::Rtt, "1us..1s+20us")]),
        test_fixture::default_hosts(),
    );
    let mut out = Vec::new();
    CalculationBatch::of_lists(&axes, &hosts)
        .unwrap()
        .run(NonZeroUsize::new(2).unwrap(), &mut out)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 50_001);
    assert_eq!(
        text.lines().nth(1).unwrap().split(',').next(),
        Some("0.000001")
    );
    assert_eq!(
        text.lines().last().unwrap().split(',').next(),
        Some("0.999981")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_file_is_rows_or_an_error(file in "\\PC*|(rtt|window|loss|\"|,|\n|\r|[0-9]{1,3}(ms|K)?|,){0,20}") {
        let (text, ended) = run_on(2, file.as_bytes(), &axes(&[]));
        if ended.is_ok() {
            let columns = text.lines().next().unwrap().split(',').count();
            prop_assert!(text.lines().all(|line| line.split(',').count() == columns));
        }
    }
}
