//! A test from a page of `fullpipe web`, on an emulated path.

mod tests_alone {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use fullpipe_testkit::{Browser, Mark, Running, path, require, write_secret};

    use crate::diagnose::{Lab, SELF};

    const TIMEOUT: Duration = Duration::from_mins(1);

    const PATH: &str = "rate = \"100Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1MB\"";

    const TOKEN: &str = "0123456789abcdef-test";

    const PAGES: &str = "http://127.0.0.1:5280";

    /// The rates of the intervals of the result that the page shows.
    const INTERVALS: &str = "fetch(document.querySelector('[download]').href).then((answer) => answer.json()) \
        .then(({ measurement }) => measurement.intervals.map(({ rate }) => rate))";

    /// Opens a page once the server is there.
    fn open(browser: &mut Browser, address: &str, title: &str) {
        let begun = Instant::now();
        let shown = format!("document.title.startsWith('{title}')");
        loop {
            browser.open_url(&format!("{PAGES}{address}"));
            sleep(Duration::from_millis(200));
            if browser.evaluate(&shown) == true {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "no page {address}");
        }
    }

    #[test]
    fn a_test_from_a_page_is_seen_as_it_runs_and_its_result_has_the_same_rates() {
        require!(Lab, Chromium);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let _far = lab.serve(&[SELF, "serve", "--no-iperf2"], 5201);
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name).display().to_string();
        write_secret(name("token"), TOKEN);
        let archive = name("a.db");
        let made = lab.sender(&[SELF, "store", "create", "--store", &archive]);
        assert!(made.status.success(), "{made:?}");
        let (token, far) = (name("token"), Lab::RECEIVER);
        let words = [
            "web",
            "--store",
            &archive,
            "--token-file",
            &token,
            "--targets",
            far,
        ];
        let _pages = Running::start(&mut lab.host("sender", &[&[SELF], &words[..]].concat()));
        let mut browser = Browser::start_in(lab.host("sender", &["sh"]));
        open(&mut browser, &format!("/#{TOKEN}"), "Now");
        open(
            &mut browser,
            &format!("/new?host={far}&seconds=5"),
            "New test",
        );
        browser.evaluate("document.querySelector('[data-run]').click()");
        let mut shown = Vec::new();
        let begun = Instant::now();
        while browser.evaluate("document.querySelector('[data-result]') !== null") != true {
            let rate =
                browser.evaluate("document.querySelector('[data-rate]')?.dataset.rate ?? ''");
            shown.extend(rate.as_str().and_then(|rate| rate.parse::<f64>().ok()));
            assert!(begun.elapsed() < TIMEOUT, "the test does not end");
            sleep(Duration::from_millis(100));
        }
        browser.evaluate("document.querySelector('[data-result]').click()");
        while browser.evaluate("document.querySelector('[download]') !== null") != true {
            assert!(begun.elapsed() < TIMEOUT, "no result");
            sleep(Duration::from_millis(100));
        }
        let known = browser.evaluate(INTERVALS);
        let known: Vec<f64> = known
            .as_array()
            .unwrap()
            .iter()
            .map(|rate| rate.as_f64().unwrap())
            .collect();
        println!("shown {shown:?}, of {known:?}");
        assert!(shown.len() >= 10 && known.len() == 5);
        for rate in shown {
            let is_one = known
                .iter()
                .any(|known| (rate - known).abs() <= 0.05 * known);
            assert!(is_one, "{rate} of {known:?}");
        }
        let said = browser.evaluate("document.querySelector('h1').textContent");
        println!("{said}");
    }
}
