//! Values of the flags of a load.

use crate::commands::far_end::SCHEME;
use crate::commands::prelude::*;
use fullpipe_control::SshHost;
use std::str::FromStr;

/// A host, and a port where it is named with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) name: String,
    pub(super) port: Option<u16>,
    /// The host as ssh has it, if its server is to be started over ssh.
    pub(crate) ssh: Option<SshHost>,
    /// The speed test over the web that its URL names, if it is one.
    pub(crate) web: Option<WebTest>,
}

/// A speed test over the web, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebTest {
    /// `ndt7://`, inside TLS.
    Ndt7,
    /// `ndt7+ws://`, in the clear.
    PlainNdt7,
    /// `https://`: responsiveness, which is described at this path.
    Responsiveness(String),
}

impl WebTest {
    /// Returns the test that `url` names, its usual port, and the host with its port; `None` if it
    /// names none.
    fn from_url(url: &str) -> Option<(Self, u16, &str)> {
        if let Some(place) = url.strip_prefix("https://") {
            let (place, path) = place.split_at(place.find('/').unwrap_or(place.len()));
            let path = if path.len() > 1 { path } else { USUAL_CONFIG };
            return Some((Self::Responsiveness(path.to_owned()), 443, place));
        }
        let schemes = [
            ("ndt7://", Self::Ndt7, 443),
            ("ndt7+ws://", Self::PlainNdt7, 80),
        ];
        schemes.into_iter().find_map(|(scheme, test, port)| {
            let place = url.strip_prefix(scheme)?;
            Some((test, port, place.strip_suffix('/').unwrap_or(place)))
        })
    }
}

/// The path at which servers describe their test of responsiveness (RFC 8615).
const USUAL_CONFIG: &str = "/.well-known/nq";

impl ServerAddress {
    /// Returns the port of the host, which a flag may state, too.
    pub(super) fn one_port(&self, flag: Option<u16>) -> Result<Option<u16>> {
        match (self.port, flag) {
            (Some(one), Some(other)) if one != other => Err(usage_failure(format!(
                "port {one} and --port {other} both asked for; which is it?"
            ))),
            (one, other) => Ok(one.or(other)),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(place) = text.strip_prefix(SCHEME) {
            let (user, place) = match place.rsplit_once('@') {
                Some((user, place)) => (Some(user), place),
                None => (None, place),
            };
            let Self { name, port, .. } = place.parse()?;
            return Ok(Self {
                ssh: Some(SshHost::new(user, &name, port)?),
                name,
                port: None,
                web: None,
            });
        }
        if let Some((test, port, place)) = WebTest::from_url(text) {
            let place: Self = place.parse()?;
            return Ok(Self {
                web: Some(test),
                port: place.port.or(Some(port)),
                ..place
            });
        }
        let (name, port) = split_port(text)?;
        if name.is_empty() {
            return Err("no host is named".to_owned());
        }
        let port = port.map(|text| {
            let port = text.parse().ok().filter(|port| *port > 0);
            port.ok_or(format!("{text:?} is no port"))
        });
        Ok(Self {
            name: name.to_owned(),
            port: port.transpose()?,
            ssh: None,
            web: None,
        })
    }
}

/// Returns a host without brackets, and the text of its port.
fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let port = rest.strip_prefix(':');
        if port.is_none() && !rest.is_empty() {
            return Err(format!("{rest:?} behind the bracket is no port"));
        }
        return Ok((name, port));
    }
    Ok(match text.split_once(':') {
        // More than one colon is an IPv6 address without a port.
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (text, None),
    })
}

/// Processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessorAffinity {
    /// Processor of this end; near the network card if not set.
    pub(super) here: Option<u16>,
    pub(super) there: Option<u16>,
}

impl FromStr for ProcessorAffinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (here, there) = text
            .split_once(',')
            .map_or((text, None), |(here, there)| (here, Some(there)));
        let here = if here == "nic" {
            None
        } else {
            Some(parse_processor(here)?)
        };
        Ok(Self {
            here,
            there: there.map(parse_processor).transpose()?,
        })
    }
}

fn parse_processor(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no processor's number"))
}

pub(super) fn whole_request(json: &str) -> Result<Box<Request>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
