use super::*;

const FILE: &str = "name = 'x'\ntitle = 'x'\n[path]\nrate = '100Mbit/s'\nrtt = '50ms'\n[[step]]\nname = 'a'\n\
        [[step]]\nname = 'b'\nstreams = 4\n[[step]]\nname = 'c'\nsender = { tcp_wmem = 1000000 }\n";

fn wishes() -> ComparisonRequest {
    ComparisonRequest {
        programs: vec![TransferProgram::Scp, TransferProgram::Curl],
        command: Vec::new(),
        require: false,
        size: ByteCount::new(100_000_000),
        rounds: 1,
        timeout: None,
        disk: false,
    }
}

#[test]
fn steps_with_the_same_hosts_and_path_are_one() {
    let scenario = Scenario::parse("x.toml", FILE).unwrap();
    let names: Vec<String> = lab_plans(&scenario, Backend::Automatic)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn what_lacks_something_is_left_out_or_required() {
    let lacks = |program: TransferProgram| {
        (program == TransferProgram::Curl).then(|| "nginx is not installed".to_owned())
    };
    let (able_ones, left_out) = select_programs(&wishes(), &lacks).unwrap();
    assert_eq!(
        (able_ones, left_out[0].why.as_str()),
        (vec![TransferProgram::Scp], "nginx is not installed")
    );
    assert!(
        select_programs(
            &ComparisonRequest {
                require: true,
                ..wishes()
            },
            &lacks
        )
        .is_err()
    );
    let only = ComparisonRequest {
        programs: vec![TransferProgram::Curl],
        ..wishes()
    };
    assert!(matches!(
        select_programs(&only, &lacks),
        Err(CompareError::Lacking(_))
    ));
    assert!(
        select_programs(
            &ComparisonRequest {
                command: vec!["true".to_owned()],
                ..only
            },
            &lacks
        )
        .is_ok()
    );
}

#[test]
fn a_transfer_has_time_by_its_prediction_unless_the_user_says_how_much() {
    let rate = Some(BitRate::from_mbps(100));
    assert_eq!(
        wishes().transfer_timeout(rate),
        Duration::from_secs(8 * 20 + 60)
    );
    let timeout = Some(Span::from_secs(5));
    assert_eq!(
        ComparisonRequest {
            timeout,
            ..wishes()
        }
        .transfer_timeout(rate),
        Duration::from_secs(5)
    );
}
