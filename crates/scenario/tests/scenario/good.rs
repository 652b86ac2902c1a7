use std::net::Ipv6Addr;

use fullpipe_record::{
    Buffer, Cause, Change, Codel, Direction, Distribution, Edit, Effects, Framing, Jitter, Limit,
    LossPattern, NarrowLink, Opportunities, Path, PathChange, PathStep, Policer, ProgramWindow,
    Published, Queueing, Reordering, StatedLoad, TooBig, Transport, Writer,
};
use fullpipe_scenario::{
    AccuracyBound, ExpectedRatio, ExpectedVerdict, LoadStart, PathSpec, Scenario, ScenarioGrid,
    StepRamp, builtin_scenarios, parse_path_flag, parse_path_flag_with,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

fn read(name: &str) -> Scenario {
    let (name, text) = builtin_scenarios()
        .iter()
        .find(|(builtin, _)| *builtin == name)
        .unwrap();
    Scenario::parse(name, text).unwrap()
}

fn parse(text: &str) -> Scenario {
    Scenario::parse("test.toml", text).unwrap()
}

fn path(keys: &str) -> Path {
    parse(&format!(
        "name = 'n'\ntitle = 't'\n[path]\n{keys}\n[[step]]\nname = 's'\n"
    ))
    .path
}

fn share(text: &str) -> Ratio {
    text.parse().unwrap()
}

#[test]
fn every_builtin_scenario_is_read_and_bears_its_name() {
    for (name, text) in builtin_scenarios() {
        assert_eq!(
            Scenario::parse(&format!("{name}.toml"), text).unwrap().name,
            *name
        );
    }
}

#[test]
fn the_demo_runs_over_the_demos_path() {
    let demo = read("demo");
    assert_eq!(demo.path, PathSpec::demo_path().to_path().unwrap());
    let forward = &demo.path.forward;
    assert_eq!(
        (forward.rate, forward.loss),
        (Some(BitRate::from_mbps(1000)), Some(Ratio::ZERO))
    );
    assert_eq!(
        (forward.queue, forward.mtu),
        (Some(ByteCount::new(12_500_000)), ByteCount::new(1500))
    );
    assert_eq!(
        (demo.path.rtt(), forward.framing),
        (Span::from_millis(100), Framing::Ethernet)
    );
    assert_eq!(
        (demo.steps.len(), demo.steps[0].request.duration),
        (1, Span::from_secs(10))
    );
    assert_eq!(demo.steps[0].request.congestion.as_deref(), Some("cubic"));
}

#[test]
fn elsen_window_is_what_the_seed_describes() {
    let elsen = read("elsen-window");
    assert_eq!(elsen.path.forward.rate, Some(BitRate::from_mbps(100)));
    assert_eq!(elsen.path.rtt(), Span::from_millis(173));
    assert_eq!(
        elsen.path.forward.queue,
        Some(ByteCount::new(2_162_500)),
        "the worked figure for the BDP"
    );
    assert_eq!(elsen.path.forward.framing, Framing::Ip);
    assert_eq!(
        (elsen.sender, elsen.receiver),
        (vec![], vec![]),
        "the window is fixed, whatever the kernel may tune to"
    );
    let steps: Vec<_> = elsen
        .steps
        .iter()
        .map(|s| (s.request.buffer, s.published.unwrap().rate.unwrap().bps()))
        .collect();
    let window = |kib| Buffer::Window(ByteCount::from_kib(kib));
    assert_eq!(steps, [(window(64), 2_770_000), (window(128), 5_350_000)]);
    for step in &elsen.steps {
        assert_eq!(
            (step.bounds.kernel_model, step.bounds.textbook),
            (Some(AccuracyBound::Within(share("5%"))), None)
        );
    }
    let ratio = elsen.bounds[0];
    assert_eq!((ratio.numerator, ratio.denominator), (1, 0));
    assert_eq!(
        (ratio.expect, ratio.bound),
        (
            ExpectedRatio::Ratio(Ratio::new(2.0)),
            AccuracyBound::Within(share("5%"))
        )
    );
}

#[test]
fn gordon_bdp_is_what_the_seed_describes() {
    let gordon = read("gordon-bdp");
    assert_eq!(gordon.path.rtt(), Span::from_millis(10));
    assert_eq!(
        (gordon.path.forward.framing, gordon.path.forward.mtu),
        (Framing::Ethernet, ByteCount::new(1500))
    );
    assert_eq!(gordon.sender, [Change::ModerateRcvbuf(false)]);
    assert_eq!(gordon.receiver, [Change::ModerateRcvbuf(false)]);
    let steps: Vec<_> = gordon
        .steps
        .iter()
        .map(|s| (s.request.buffer, s.published.unwrap().rate.unwrap().bps()))
        .collect();
    let buffer = |bytes| Buffer::Request(ByteCount::new(bytes));
    assert_eq!(
        steps,
        [
            (buffer(50_000), 54_100_000),
            (buffer(75_000), 82_300_000),
            (buffer(83_000), 91_100_000),
            (buffer(100_000), 94_000_000),
            (buffer(125_000), 94_100_000)
        ]
    );
    for step in &gordon.steps {
        assert_eq!(step.request.congestion.as_deref(), Some("reno"));
        assert_eq!(
            step.bounds.kernel_model,
            Some(AccuracyBound::AtLeast(share("95%")))
        );
        assert_eq!(
            step.bounds.textbook,
            Some(AccuracyBound::AtLeast(share("85%")))
        );
    }
}

#[test]
fn a_direction_overrides_single_keys() {
    let path = path(
        "rate = '1G'\nrtt = '100ms'\nmtu = 9000\n[path.reverse]\nrate = '10M'\nqueue = '100packets'",
    );
    assert_eq!(path.forward.queue, Some(ByteCount::new(12_500_000)));
    assert_eq!(
        (path.reverse.rate, path.reverse.mtu),
        (Some(BitRate::from_mbps(10)), ByteCount::new(9000))
    );
    assert_eq!(path.reverse.queue, Some(ByteCount::new(100 * 9038)));
}

#[test]
fn the_delay_of_each_direction_stands_for_the_rtt() {
    let path = path("rate = '8M'\nqueue = '2bdp'\nforward.delay = '30ms'\nreverse.delay = '10ms'");
    assert_eq!(
        (path.forward.delay, path.reverse.delay),
        (Span::from_millis(30), Span::from_millis(10))
    );
    assert_eq!(
        path.forward.queue,
        Some(ByteCount::new(80_000)),
        "a BDP counts the whole round trip"
    );
}

#[test]
fn a_queue_has_no_limit_only_without_a_rate() {
    assert_eq!(path("rtt = '10ms'").forward.queue, None);
    assert_eq!(
        path("rtt = '10ms'\nrate = '100M'").forward.queue,
        Some(ByteCount::new(125_000))
    );
    assert_eq!(
        path("rtt = '0s'\nrate = '100M'").forward.queue,
        Some(ByteCount::new(1538)),
        "at least one packet"
    );
}

#[test]
fn a_flag_and_a_file_mean_the_same() {
    let file =
        path("rate = '1G'\nrtt = '20ms'\nqueue = '5ms'\nloss = 1e-4\nmtu = 9000\nframing = 'ip'");
    let flag = parse_path_flag(
        "rate=1G,rtt=20ms,queue=5ms,loss=1e-4,mtu=9000,framing=ip",
        &PathSpec::demo_path(),
    );
    assert_eq!(Ok(file), flag);
}

#[test]
fn a_step_states_its_programs_in_the_words_of_the_flags() {
    let scenario = parse(
        "name = 'n'\ntitle = 't'\npath = { rtt = '1ms' }\n[[step]]\nname = 's'\nsndbuf = '16KiB'\nrcvbuf = '32KiB'\n\
         requests = '64x32KiB'\npause = '2s'\nread_rate = '10M'\nfq_rate = '20M'\nblocking = true\n",
    );
    let request = &scenario.steps[0].request;
    let kib = ByteCount::from_kib;
    assert_eq!(
        request.stated_load(),
        StatedLoad {
            sndbuf: Some(kib(16)),
            rcvbuf: Some(kib(32)),
            app_window: Some(ProgramWindow {
                bytes: kib(2048),
                request: kib(32),
            }),
            pause: Some(Span::from_secs(2)),
            read_rate: Some(BitRate::from_mbps(10)),
            ..StatedLoad::default()
        }
    );
    assert_eq!(request.pacing, Some(BitRate::from_mbps(20)));
    assert_eq!(request.writer, Writer::Blocking);
    assert_eq!(request.send_buffer(), Buffer::Request(kib(16)));
}

#[test]
fn a_step_says_all_it_can() {
    let scenario = parse(
        "name = 'n'\ntitle = 't'\npath = { rtt = '1ms', seed = 7 }\n[[step]]\nname = 's'\nbuffer = '1M'\nstreams = 4\n\
         congestion = 'bbr'\nduration = '30s'\ndirection = 'download'\ntextbook = { at_most = 1.5 }\n",
    );
    let step = &scenario.steps[0];
    assert_eq!(step.request.buffer, Buffer::Request(ByteCount::from_mib(1)));
    assert_eq!(
        (step.request.streams, step.request.direction),
        (4, Direction::Download)
    );
    assert_eq!(
        (step.request.congestion.as_deref(), step.request.duration),
        (Some("bbr"), Span::from_secs(30))
    );
    assert_eq!(
        (step.bounds.kernel_model, step.bounds.textbook),
        (None, Some(AccuracyBound::AtMost(Ratio::new(1.5))))
    );
    assert_eq!(
        (scenario.seed, step.published, scenario.source),
        (7, None, None)
    );
}

/// As a flag, so that it shows that no value needs a comma.
#[test]
fn every_effect_is_read() {
    let flag = "rtt=20ms,loss=gilbert-elliott 1% 25%,queue=100packets,aqm=fq-codel 2ms 40ms ecn,policer=20M 64K,\
        narrow=1400 swallowed,edits=strip-window-scale window-scale=3 strip-sack strip-timestamps clamp-mss=1200 \
        clamp-window=32K router=fd00::1,duplicate=0.1%,corrupt=1e-5,reorder=0.2% 5ms,jitter=normal 2ms 1ms,\
        jitter_order=free,changes=10s rate=50M delay=20ms; 20s loss=1%";
    let path = parse_path_flag(flag, &PathSpec::demo_path()).unwrap();
    let steps = [
        (
            10,
            Some(BitRate::from_mbps(50)),
            Some(Span::from_millis(20)),
            None,
        ),
        (20, None, None, Some(share("1%"))),
    ];
    let effects = Effects {
        losses: Some(LossPattern::GilbertElliott {
            to_bad: share("1%"),
            to_good: share("25%"),
            in_good: Ratio::ZERO,
            in_bad: Ratio::ONE,
        }),
        edits: vec![
            Edit::StripWindowScale,
            Edit::RewriteWindowScale(3),
            Edit::StripSack,
            Edit::StripTimestamps,
            Edit::ClampMss(ByteCount::new(1200)),
            Edit::ClampWindow(ByteCount::from_kib(32)),
            Edit::Router(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1).into()),
        ],
        narrow: Some(NarrowLink {
            mtu: ByteCount::new(1400),
            too_big: TooBig::Swallowed,
        }),
        policer: Some(Policer {
            rate: BitRate::from_mbps(20),
            burst: ByteCount::from_kib(64),
        }),
        queue_packets: Some(SegCount::new(100)),
        queueing: Queueing::FqCodel(Codel {
            target: Span::from_millis(2),
            interval: Span::from_millis(40),
            ecn: true,
        }),
        corrupted: share("1e-5"),
        duplicated: share("0.1%"),
        jitter: Some(Jitter {
            distribution: Distribution::Normal {
                mean: Span::from_millis(2),
                deviation: Span::from_millis(1),
            },
            reorders: true,
        }),
        reordering: Some(Reordering {
            share: share("0.2%"),
            by: Span::from_millis(5),
        }),
        steps: steps
            .map(|(after, rate, delay, loss)| PathStep {
                after: Span::from_secs(after),
                change: PathChange { rate, delay, loss },
            })
            .to_vec(),
        ..Effects::default()
    };
    for direction in [&path.forward, &path.reverse] {
        assert_eq!(direction.effects, effects);
        assert!(
            (direction.loss.unwrap().get() - 1.0 / 26.0).abs() < 1e-12,
            "the mean: p ÷ (p + r)"
        );
    }
}

#[test]
fn a_direction_has_its_own_effects() {
    let path = path(
        "rtt = '10ms'\nrate = '1G'\n[path.forward]\naqm = 'codel'\njitter = 'listed 0ms 5ms'\nloss = 'data 9 2'\n\
        [path.reverse]\naqm = 'threshold 30KiB'\nloss = 'packets 17 3'",
    );
    assert_eq!(
        path.forward.effects.queueing,
        Queueing::Codel(Codel::default())
    );
    let listed = Distribution::Listed(vec![Span::ZERO, Span::from_millis(5)]);
    assert_eq!(
        path.forward.effects.jitter,
        Some(Jitter {
            distribution: listed,
            reorders: false
        })
    );
    assert_eq!(
        path.reverse.effects.queueing,
        Queueing::Threshold(ByteCount::from_kib(30))
    );
    assert_eq!(
        path.forward.effects.losses,
        Some(LossPattern::ListedData(vec![2, 9]))
    );
    assert_eq!(
        path.reverse.effects.losses,
        Some(LossPattern::Listed(vec![3, 17]))
    );
}

#[test]
fn traces_are_read_from_the_files_that_are_named() {
    let files = |name: &str| match name {
        "lte.up" => Ok("1\n2\n".to_owned()),
        "wifi rates.txt" => Ok("0s 10M\n2s 20M\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let read = |flag| {
        parse_path_flag_with(flag, &PathSpec::demo_path(), &files)
            .unwrap()
            .forward
            .effects
    };
    assert_eq!(
        read("trace=mahimahi lte.up").opportunities,
        Some(Opportunities { millis: vec![1, 2] })
    );
    let steps = read("trace=rates wifi rates.txt,changes=1s delay=5ms").steps;
    let when: Vec<_> = steps
        .iter()
        .map(|step| (step.after, step.change.rate.is_some()))
        .collect();
    assert_eq!(
        when,
        [(0, true), (1, false), (2, true)].map(|(after, rate)| (Span::from_secs(after), rate))
    );
}

#[test]
fn a_rate_of_a_step_or_of_a_direction_takes_the_place_of_a_trace_before_it() {
    let files = |_: &str| Ok("0s 5M\n2s 8M\n".to_owned());
    let of = |path: &str, own: &str| {
        let all = format!("name = 'n'\ntitle = 't'\n[path]\nrtt = '1ms'\nqueue = '1M'\n{path}\n");
        let text = format!("{all}[[step]]\nname = 's'\npath = {{ {own} }}\n");
        let mut steps = Scenario::parse_with("x.toml", &text, &files).unwrap().steps;
        let path = steps.remove(0).path.unwrap();
        [path.forward, path.reverse]
            .map(|way| (way.rate.map(BitRate::bps), way.effects.steps.len()))
    };
    let (traced, own) = ((None, 2), (Some(2_000_000), 0));
    for trace in ["trace = 'rates f'", "changes = '0s rate=5M; 2s rate=8M'"] {
        assert_eq!(of(trace, "mtu = 1400"), [traced, traced], "{trace}");
        assert_eq!(of(trace, "rate = '2M'"), [own, own], "{trace}");
        assert_eq!(
            of(trace, "forward = { rate = '2M' }"),
            [own, traced],
            "{trace}"
        );
        assert_eq!(
            of(trace, "reverse = { rate = '2M' }"),
            [traced, own],
            "{trace}"
        );
        assert_eq!(
            of(
                &format!("{trace}\n[path.reverse]\nrate = '2M'"),
                "mtu = 1400"
            ),
            [traced, own],
            "{trace}"
        );
    }
    let both = of("rate = '5M'", "rate = '2M', trace = 'rates f'");
    assert_eq!(
        both,
        [(Some(2_000_000), 2); 2],
        "a trace of the step itself counts"
    );
}

/// One step with these keys.
fn step(keys: &str) -> fullpipe_scenario::ScenarioStep {
    parse(&format!("name = 'n'\ntitle = 't'\npath = {{ rate = '1G', rtt = '1ms' }}\n[[step]]\nname = 's'\n{keys}"))
        .steps[0]
        .clone()
}

#[test]
fn a_step_of_datagrams_says_its_rate_and_length() {
    let udp = step(
        "transport = 'udp'\nrate = '29M'\nstreams = 10\nlength = 1470\nomit = '5s'\nloss = { within = '0.5%' }",
    );
    let request = &udp.request;
    assert_eq!(
        (request.transport, request.rate),
        (Transport::Udp, Some(BitRate::from_mbps(29)))
    );
    assert_eq!(
        (request.block, request.streams, request.offload),
        (ByteCount::new(1470), 10, true)
    );
    assert_eq!(
        (request.omit, request.congestion.as_deref()),
        (Span::from_secs(5), None)
    );
    assert_eq!(udp.bounds.loss, Some(share("0.5%")));
    assert_eq!(
        step("transport = 'udp'\nrate = '1M'").request.block,
        ByteCount::ZERO,
        "as long as the path takes"
    );
    assert!(!step("").request.offload && step("").request.congestion.as_deref() == Some("cubic"));
}

#[test]
fn published_figures_are_a_rate_or_a_table() {
    assert_eq!(
        step("published = '98M'").published.unwrap().rate,
        Some(BitRate::from_mbps(98))
    );
    let table = step("published = { loss = '11.2%', jitter = '0.124ms', reordered = 114 }")
        .published
        .unwrap();
    let figures = (
        Some(share("11.2%")),
        Some(Span::from_micros(124)),
        Some(114),
    );
    assert_eq!((table.loss, table.jitter, table.reordered), figures);
    assert_eq!(step("published = {}").published, Some(Published::default()));
}

#[test]
fn a_load_with_begins_before_or_after_and_may_pause() {
    let keys = "[[step.cross_traffic]]\ntransport = 'udp'\nrate = '100M..250M'\non = '2s'\noff = '1s'\nbefore = '3s'\n\
                [[step.cross_traffic]]\nwindow = '64K'\nafter = '1s'\npublished = '5M'";
    let cross_traffic = step(keys).cross_traffic;
    let (on_off, tcp) = (&cross_traffic[0], &cross_traffic[1]);
    assert_eq!(
        (on_off.lowest, on_off.request.rate),
        (Some(BitRate::from_mbps(100)), Some(BitRate::from_mbps(250)))
    );
    assert_eq!(
        on_off.on_off,
        Some((Span::from_secs(2), Span::from_secs(1)))
    );
    assert_eq!(
        (on_off.starts, tcp.starts),
        (
            LoadStart::Before(Span::from_secs(3)),
            LoadStart::After(Span::from_secs(1))
        )
    );
    assert_eq!(
        (tcp.request.congestion.as_deref(), tcp.on_off),
        (Some("cubic"), None)
    );
    assert_eq!(tcp.published.unwrap().rate, Some(BitRate::from_mbps(5)));
}

#[test]
fn each_congestion_control_is_known_by_the_place_that_asks_for_it() {
    let text = "name = 'n'\ntitle = 't'\n[path]\nrtt = '1ms'\n[[step]]\nname = 'a'\n[[step]]\nname = 'b'\n\
         congestion = 'bbr'\n\
         [[step.cross_traffic]]\ncongestion = 'reno'\n[[step.cross_traffic]]\ntransport = 'udp'\nrate = '1M'\n";
    let asked: Vec<_> = parse(text)
        .controls
        .iter()
        .map(|asked| format!("{} {}", asked.place, asked.name))
        .collect();
    assert_eq!(
        asked,
        [
            "test.toml:5:1 cubic",
            "test.toml:9:14 bbr",
            "test.toml:11:14 reno"
        ]
    );
    let inline = "name = 'n'\ntitle = 't'\npath = { rtt = '1ms' }\nstep = [{ name = 'ä', cross_traffic = \
                  [{ congestion = 'reno' }], congestion = 'bbr' }, { name = 'b', congestion = 'vegas' }]\n";
    let asked: Vec<_> = parse(inline)
        .controls
        .iter()
        .map(|asked| format!("{} {}", asked.place, asked.name))
        .collect();
    assert_eq!(
        asked,
        [
            "test.toml:4:55 reno",
            "test.toml:4:79 bbr",
            "test.toml:4:115 vegas"
        ]
    );
    let text = "name = 'n'\ntitle = 't'\nlongest = '5s'\n[[block]]\nrate = ['1M']\nrtt = ['9ms']\ncongestion = ['bbr']\n";
    let cells = ScenarioGrid::parse("grid.toml", text).unwrap().cells;
    assert_eq!(
        (cells[0].controls[0].place.to_string().as_str(), cells.len()),
        ("grid.toml:7:14", 1)
    );
}

#[test]
fn a_step_has_its_own_path_and_hosts() {
    let scenario = parse(
        "name = 'n'\ntitle = 't'\nsender = { tcp_wmem = '1M' }\n[path]\nrate = '1G'\nrtt = '98ms'\n\
         mtu = 9000\nloss = '1%'\n\
         [[step]]\nname = 'a'\n[[step]]\nname = 'b'\npath = { mtu = 1500, reverse.mtu = 576 }\n\
         sender = { tcp_wmem = '2M' }\nreceiver = { tcp_rmem = '3M' }\n[[step]]\nname = 'c'\npath = { rtt = '4ms' }\n",
    );
    let [a, b, c] = [0, 1, 2].map(|index| &scenario.steps[index]);
    assert_eq!((scenario.path_of(a), &a.path), (&scenario.path, &None));
    let own = scenario.path_of(b);
    assert_eq!(
        (own.forward.mtu, own.reverse.mtu),
        (ByteCount::new(1500), ByteCount::new(576))
    );
    assert_eq!(
        (own.rtt(), own.forward.loss),
        (Span::from_millis(98), Some(share("1%")))
    );
    let near = scenario.path_of(c);
    assert_eq!(
        (near.rtt(), near.forward.queue),
        (Span::from_millis(4), Some(ByteCount::new(500_000)))
    );
    assert_eq!(
        near.forward.mtu,
        ByteCount::new(9000),
        "what another step said is not kept"
    );
    let mib = |mib| ByteCount::from_mib(mib);
    assert_eq!(
        scenario.hosts_of(a),
        [vec![Change::TcpWmemMax(mib(1))], vec![]]
    );
    let both = vec![Change::TcpWmemMax(mib(1)), Change::TcpWmemMax(mib(2))];
    assert_eq!(
        scenario.hosts_of(b),
        [both, vec![Change::TcpRmemMax(mib(3))]]
    );
}

#[test]
fn a_step_may_climb_and_may_ask_for_a_verdict() {
    let ramp = step("transport = 'udp'\nramp = { from = '10%', to = 1.1, loads = 11 }").ramp;
    assert_eq!(
        ramp,
        Some(StepRamp {
            from: share("10%"),
            to: Ratio::new(1.1),
            loads: 11
        })
    );
    let verdict = |text: &str| step(&format!("verdict = '{text}'")).bounds.verdict.unwrap();
    assert_eq!(
        verdict("loss"),
        ExpectedVerdict {
            kind: Limit::Loss,
            cause: None
        }
    );
    let tuned = ExpectedVerdict {
        kind: Limit::ReceiveWindow,
        cause: Some(Cause::TcpRmemMax),
    };
    assert_eq!(verdict("receive-window/tcp-rmem-max"), tuned);
}

const CHAIN: &str = "name = 'n'\ntitle = 't'\npath = { rate = '100M', rtt = '100ms', loss = '1%' }\n\
                     near = { rate = '1G', rtt = '2ms' }\nfar = { rate = '1G', rtt = '4ms' }\n";

#[test]
fn a_path_of_three_stretches_is_as_long_as_all_and_as_slow_as_the_slowest() {
    let steps =
        "[[step]]\nname = 'a'\n[[step]]\nname = 'b'\nrelays = true\npath = { rtt = '50ms' }\n";
    let scenario = parse(&format!("{CHAIN}{steps}"));
    assert_eq!(scenario.path.rtt(), Span::from_millis(106));
    assert_eq!(scenario.path.forward.rate, Some(BitRate::from_mbps(100)));
    let stretches = |step: usize| {
        scenario
            .stretches_of(&scenario.steps[step])
            .unwrap()
            .each_ref()
            .map(Path::rtt)
    };
    assert_eq!(stretches(0), [2, 100, 4].map(Span::from_millis));
    assert_eq!(stretches(1), [2, 50, 4].map(Span::from_millis));
    assert_eq!(
        scenario.path_of(&scenario.steps[1]).rtt(),
        Span::from_millis(56)
    );
    assert_eq!(
        [0, 1].map(|step: usize| scenario.steps[step].relays),
        [false, true]
    );
    assert_eq!(scenario.relay, vec![]);
    let large = parse(&format!(
        "{CHAIN}relay = {{ tcp_rmem = '4MiB', tcp_wmem = '8MiB' }}\n{steps}"
    ));
    assert_eq!(
        large.relay,
        [
            Change::TcpRmemMax(ByteCount::from_mib(4)),
            Change::TcpWmemMax(ByteCount::from_mib(8))
        ]
    );
    let two_hosts =
        parse("name = 'n'\ntitle = 't'\npath = { rtt = '1ms' }\n[[step]]\nname = 's'\n");
    assert_eq!(two_hosts.stretches_of(&two_hosts.steps[0]), None);
}
