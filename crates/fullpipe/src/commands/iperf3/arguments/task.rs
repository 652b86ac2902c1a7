//! The task that a command line of iperf3 asks for.

use super::warnings::{parse_port, parse_processor, resolve_address, split_device};
use super::{
    ClientFlags, ClientPlan, Iperf3Arguments, Iperf3Task, ProgramFormat, ProgramSettings,
    ServerFlags, ServerPlan,
};
use crate::commands::load::{ip_version, rsa_padding};
use crate::commands::prelude::*;
use fullpipe_probe::{AdmissionQuota, LocalEndpoint, ServeOptions, ServerLimits};
use fullpipe_report::iperf3::RateUnit;
use std::net::IpAddr;

impl Iperf3Arguments {
    pub(crate) fn wants_version(&self) -> bool {
        self.version
    }

    /// Returns the detail of the reported steps: 0 for none, 1 for steps, 2 for details, 3 for
    /// everything.
    pub(crate) fn verbosity(&self) -> u8 {
        match self.debug_level {
            Some(1 | 2) => 1,
            Some(3) => 2,
            Some(4..) => 3,
            _ => u8::from(self.debug) * 3,
        }
    }

    /// Returns a warning for each flag that changes nothing.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.ignored.warnings()
    }

    pub(crate) fn logfile(&self) -> Option<&Path> {
        self.logfile.as_deref()
    }

    pub(crate) fn timestamp_format(&self) -> Option<&str> {
        self.timestamps.as_deref()
    }

    /// The task.
    ///
    /// # Errors
    /// Where iperf3 would refuse it, in its words; and where it cannot be done here, by the flag's
    /// name.
    pub(crate) fn to_task(&self) -> Result<Iperf3Task, String> {
        self.refused.by_name()?;
        match (&self.client, self.server) {
            (Some(_), true) => Err("cannot be both server and client".to_owned()),
            (None, false) => Err("must either be a client (-c) or server (-s)".to_owned()),
            (Some(host), false) => {
                let plan = self.client_plan(host)?;
                Ok(Iperf3Task::Client(Box::new(plan)))
            }
            (None, true) => Ok(Iperf3Task::Server(Box::new(self.server_plan()?))),
        }
    }

    fn client_plan(&self, host: &str) -> Result<ClientPlan, String> {
        if self.server_flags != ServerFlags::default() {
            return Err("some option you are trying to set is server only".to_owned());
        }
        // `-A` pins the whole process, so that its threads need no processor of their own.
        let request = self
            .client_flags
            .to_request(self.report_interval()?, self.processor_affinity()?.1)?;
        Ok(ClientPlan {
            destination: self.destination(host)?,
            request,
            shape: self.program_settings()?,
        })
    }

    fn server_plan(&self) -> Result<ServerPlan, String> {
        if self.client_flags != ClientFlags::default() {
            return Err("some option you are trying to set is client only".to_owned());
        }
        if self.rcv_timeout.is_some() {
            return Err(
                "--rcv-timeout of a server is not supported by fullpipe: it has its own".to_owned(),
            );
        }
        Ok(ServerPlan {
            options: self.serve_options()?,
            daemon: self.server_flags.daemon,
            shape: self.program_settings()?,
        })
    }

    fn serve_options(&self) -> Result<ServeOptions, String> {
        let (bind, device) = self.local_endpoint()?;
        let flags = &self.server_flags;
        let limits = ServerLimits {
            duration: flags.server_max_duration,
            ..ServerLimits::default()
        };
        // iperf3 answers a second client that it is busy; its output has no room for two tests at
        // once either.
        let total = AdmissionQuota {
            rate: flags.server_bitrate_limit,
            tests: 1,
            ..limits.total
        };
        Ok(ServeOptions {
            bind,
            device,
            port: parse_port(self.port)?,
            // iperf3 serves no others.
            iperf2: false,
            one_off: flags.one_off,
            // iperf3 reports each.
            counts_refusals: false,
            // Else iperf3 only starts anew, which leaves everything as it is.
            idle_timeout: flags.idle_timeout.filter(|_| flags.one_off),
            authenticator: flags.authenticator(rsa_padding(self.use_pkcs1_padding))?,
            limits: ServerLimits { total, ..limits },
            interval: self.report_interval()?,
            ..ServeOptions::default()
        })
    }

    fn destination(&self, host: &str) -> Result<Destination, String> {
        let flags = &self.client_flags;
        let (host, of_host) = split_device(host);
        let (local_address, device) = self.local_endpoint()?;
        Ok(Destination {
            host: host.to_owned(),
            port: parse_port(self.port)?,
            family: ip_version(self.version4, self.version6),
            local: LocalEndpoint {
                address: local_address,
                device: device.or(of_host.map(str::to_owned)),
                port: flags.cport.map(parse_port).transpose()?,
            },
            connect_timeout: flags.connect_timeout,
            receive_timeout: self.rcv_timeout,
            server_output: flags.get_server_output,
            // iperf3 sends none; where a firewall drops them, each test would begin later.
            without_echoes: true,
            file: flags.file.clone(),
            login: flags.login(rsa_padding(self.use_pkcs1_padding))?,
            ..Destination::default()
        })
    }

    /// Returns the address and the device of this end. The scope of a link-local address is a
    /// device, too: a socket at that device can have the address without its scope.
    fn local_endpoint(&self) -> Result<(Option<IpAddr>, Option<String>), String> {
        let bound = self.bind.as_deref();
        let bound = bound.map(|text| match text.split_once('%') {
            Some((host, device)) => (host, Some(device)),
            None => (text, None),
        });
        let address = bound.map(|(host, _)| resolve_address(host)).transpose()?;
        let device = self
            .bind_dev
            .clone()
            .or(bound.and_then(|(_, device)| device.map(str::to_owned)));
        Ok((address, device))
    }

    fn report_interval(&self) -> Result<Span, String> {
        let is_possible = self.interval == 0.0 || (0.1..=60.0).contains(&self.interval);
        is_possible
            .then(|| Span::from_secs_f64(self.interval))
            .ok_or_else(|| "invalid report interval (min = 0.1, max = 60 seconds)".to_owned())
    }

    /// Returns the processors of this end and of the server.
    fn processor_affinity(&self) -> Result<(Option<usize>, Option<usize>), String> {
        let Some(text) = &self.affinity else {
            return Ok((None, None));
        };
        let (here, there) = text
            .split_once(',')
            .map_or((text.as_str(), None), |(here, there)| (here, Some(there)));
        Ok((
            Some(parse_processor(here)?),
            there.map(parse_processor).transpose()?,
        ))
    }

    fn program_settings(&self) -> Result<ProgramSettings, String> {
        let form = match (self.json, self.json_stream, self.json_stream_full_output) {
            (_, true, true) => ProgramFormat::JsonStreamAndDocument,
            (_, true, false) => ProgramFormat::JsonStream,
            (true, ..) => ProgramFormat::Json,
            _ => ProgramFormat::Text,
        };
        let unit = self
            .format
            .as_deref()
            .map(str::parse::<RateUnit>)
            .transpose()?
            .unwrap_or_default();
        let (processor, of_server) = self.processor_affinity()?;
        if self.server && of_server.is_some() {
            return Err("some option you are trying to set is client only".to_owned());
        }
        Ok(ProgramSettings {
            form,
            unit,
            verbose: self.verbose,
            pidfile: self.pidfile.clone(),
            processor,
        })
    }
}
