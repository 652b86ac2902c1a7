//! The page of `serve --web` in a real Chromium, on an emulated path.

mod tests_alone {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use fullpipe_testkit::{Browser, Mark, path, require, valid_within};
    use serde_json::Value;

    use crate::diagnose::{Lab, SELF};

    const TIMEOUT: Duration = Duration::from_secs(90);

    /// The queue holds what the path carries in 200 ms.
    const PATH: &str = "rate = \"100Mbit/s\"\nrtt = \"40ms\"\nqueue = \"2.5MB\"";

    const PAGE: &str = "http://198.18.0.2:4443/";

    /// What the page shows, and the results that the server keeps, of both ways.
    const SHOWN: &str = "Promise.all([...document.querySelectorAll('#verdicts a')].map(async ({ href }, index) => { \
        const way = ['download', 'upload'][index]; \
        const seen = (id) => document.querySelector(id).textContent.replace(/\\u00a0/g, ' '); \
        const answer = await fetch(href, { headers: { Accept: 'application/json' } }); \
        return { rate: seen('#' + way), delay: seen('#' + way + '-delay'), idle: seen('#idle'), result: await answer.json() } }))";

    /// Runs the page to its end in the sending host.
    fn shown(lab: &Lab) -> Value {
        let mut browser = Browser::start_in(lab.host("sender", &["sh"]));
        browser.open_url(PAGE);
        browser.evaluate("document.querySelector('#start').click()");
        let begun = Instant::now();
        while browser.evaluate("document.querySelector('#share').hidden") == true {
            let error = browser.evaluate("document.querySelector('#error').textContent");
            assert_eq!(error, "");
            assert!(begun.elapsed() < TIMEOUT, "the page does not end");
            sleep(Duration::from_millis(500));
        }
        browser.evaluate(SHOWN)
    }

    /// Returns the number at the begin of a text.
    fn number(text: &Value) -> f64 {
        let text = text.as_str().unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// Returns the rate that the server saw, in Mbit/s.
    fn server_rate(way: &Value) -> f64 {
        way["result"]["rate"].as_f64().unwrap() / 1e6
    }

    #[test]
    fn the_page_and_the_server_see_the_same_rate_and_the_page_sees_the_queue() {
        require!(Lab, Chromium);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let web = ["--web", "198.18.0.2:4443", "--web-plain"];
        let serve = [&[SELF, "serve", "--no-iperf2"], &web[..]].concat();
        let _server = lab.serve(&serve, 4443);
        let ways = valid_within(3, || {
            let shown = shown(&lab);
            // A page that gets no processor measures that: more than the queue can add, or a load
            // that does not fill the path.
            let late = number(&shown[0]["idle"]) > 60.0;
            let late = late.then(|| format!("idle round trip {}", shown[0]["idle"]));
            let rates = shown.as_array().unwrap().iter().map(server_rate);
            let slow = rates.filter(|rate| *rate < 75.0);
            let slow = slow.map(|rate| format!("the browser moves {rate} Mbit/s"));
            let broken = late.into_iter().chain(slow).collect();
            (shown, broken)
        });
        for way in ways.as_array().unwrap() {
            println!(
                "{} {} {} {}",
                way["rate"], way["delay"], way["idle"], way["result"]["sentence"]
            );
            assert!(way["rate"].as_str().unwrap().ends_with(" Mbit/s"));
            let server = server_rate(way);
            let ratio = number(&way["rate"]) / server;
            assert!((0.95..=1.05).contains(&ratio), "{way}");
            assert!(server <= 94.2, "{server}");
            let (idle, loaded) = (number(&way["idle"]), number(&way["delay"]));
            assert!((40.0..=60.0).contains(&idle), "{idle}");
            assert!((idle..=300.0).contains(&loaded), "{loaded}");
        }
    }
}
