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
    /// The scheme of a server of ndt7, if it is one.
    pub(crate) ndt7: Option<Ndt7Scheme>,
}

/// The scheme of a server of ndt7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ndt7Scheme {
    /// `ndt7://`, inside TLS.
    Encrypted,
    /// `ndt7+ws://`, in the clear.
    Plain,
}

impl Ndt7Scheme {
    const ALL: [(&str, Self); 2] = [("ndt7://", Self::Encrypted), ("ndt7+ws://", Self::Plain)];

    /// Returns the port of HTTPS or HTTP.
    const fn usual_port(self) -> u16 {
        match self {
            Self::Encrypted => 443,
            Self::Plain => 80,
        }
    }
}

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
                ndt7: None,
            });
        }
        for (scheme, ndt7) in Ndt7Scheme::ALL {
            if let Some(place) = text.strip_prefix(scheme) {
                let place: Self = place.strip_suffix('/').unwrap_or(place).parse()?;
                return Ok(Self {
                    ndt7: Some(ndt7),
                    port: Some(place.port.unwrap_or(ndt7.usual_port())),
                    ..place
                });
            }
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
            ndt7: None,
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
