//! The places of a copy, and its far end.

use std::path::PathBuf;

use crate::options::{CopyError, CopyOptions, CopyPath, FarHost};
use crate::root::from_home;
use crate::walk::receiver_name;

/// The places of a copy, of which one is far.
pub(super) struct CopyPlan {
    pub host: FarHost,
    pub far_sends: bool,
    pub near: Vec<PathBuf>,
    pub far: Vec<Vec<u8>>,
}

impl CopyPlan {
    pub(super) fn from_options(options: &CopyOptions) -> Result<Self, CopyError> {
        const ONE_HOST: CopyError =
            CopyError::Places("all sources must be at one end, and the destination at the other");
        const NO_HOST: CopyError = CopyError::Places(
            "no path is at another host: write [USER@]HOST:PATH or fullpipe://HOST/PATH for one end",
        );
        let (mut near, mut far, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for place in options.sources.iter().chain([&options.destination]) {
            match place {
                CopyPath::Near(path) => near.push(path.clone()),
                CopyPath::Far { host, path } => {
                    hosts.push(host.clone());
                    far.push(path.clone());
                }
                CopyPath::Web(_) => return Err(ONE_HOST),
            }
        }
        hosts.dedup();
        let far_sends = matches!(options.destination, CopyPath::Near(_));
        let at_destination = if far_sends { near.len() } else { far.len() };
        let fits = at_destination == 1 && !options.sources.is_empty();
        match (<[FarHost; 1]>::try_from(hosts), fits) {
            (Ok([host]), true) => Ok(Self {
                host,
                far_sends,
                near,
                far,
            }),
            (Err(hosts), _) if hosts.is_empty() => Err(NO_HOST),
            _ => Err(ONE_HOST),
        }
    }

    /// Returns the names at the top that the far end may send; any if what is in a folder was asked
    /// for.
    pub(super) fn expected_tops(&self) -> Option<Vec<Vec<u8>>> {
        let names = self.far.iter().map(|path| {
            let path = match self.host {
                FarHost::Ssh { .. } => from_home(path),
                FarHost::Server { .. } => path,
            };
            receiver_name(path).map(<[u8]>::to_vec)
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::DataTransport;
    use fullpipe_units::Span;

    fn plan(sources: &[&str], destination: &str) -> Result<CopyPlan, String> {
        let place = |text: &&str| CopyPath::parse_path(text.as_bytes()).unwrap();
        let options = CopyOptions {
            sources: sources.iter().map(place).collect(),
            destination: place(&destination),
            ssh: vec!["ssh".to_owned()],
            far_path: "fullpipe".to_owned(),
            dry_run: false,
            delete: false,
            excludes: Vec::new(),
            limit: None,
            ports: None,
            streams: None,
            transport: DataTransport::Auto,
            verify_disk: false,
            scavenge: false,
            no_bbr: false,
            no_compress: false,
            attributes: false,
            timeout: Span::from_secs(30),
            unencrypted: Vec::new(),
            key: None,
            digest: None,
        };
        CopyPlan::from_options(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn one_end_is_near_and_one_far() {
        let up = plan(&["a", "b"], "me@host:dir").unwrap();
        assert_eq!(
            (
                up.far_sends,
                up.host.host_name(),
                up.near.len(),
                up.far.len()
            ),
            (false, "host", 2, 1)
        );
        let down = plan(&["host:a", "host:b"], "dir").unwrap();
        assert_eq!(
            (down.far_sends, down.near.len(), down.far.len()),
            (true, 1, 2)
        );
        for (sources, destination) in [
            (&["a"][..], "b"),
            (&["h:a"], "h:b"),
            (&["h:a", "i:b"], "c"),
            (&["a", "h:b"], "c"),
            (&["a"], "b"),
        ] {
            assert!(
                plan(sources, destination).is_err(),
                "{sources:?} {destination}"
            );
        }
    }

    #[test]
    fn the_far_end_may_send_only_what_was_asked_for() {
        let tops = |sources: &[&str]| plan(sources, "dir").unwrap().expected_tops();
        assert_eq!(
            tops(&["h:/a/b", "h:c"]),
            Some(vec![b"b".to_vec(), b"c".to_vec()])
        );
        assert_eq!(
            tops(&["h:~/a", "h:wait..", "h:b/~"]),
            Some(vec![b"a".to_vec(), b"wait..".to_vec(), b"~".to_vec()])
        );
        for whole in [
            "h:/a/b/", "h:", "h:~", "h:~/", "h:..", "h:a/..", "h:a/.", "h:/",
        ] {
            assert_eq!(tops(&[whole]), None, "{whole}");
        }
        // A server has no folder of a user.
        assert_eq!(tops(&["fullpipe://h/~"]), Some(vec![b"~".to_vec()]));
    }
}
