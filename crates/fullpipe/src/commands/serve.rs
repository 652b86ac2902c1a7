use std::net::IpAddr;

use fullpipe_iperf::DEFAULT_PORT;
use fullpipe_probe::{ServeError, ServeOptions, ServerEvent, serve};

use crate::failure::{FAILED, Failure, LACKING};
use crate::terminal::Terminal;

/// Answers fullpipe and iperf3 clients (TCP), any number at once, until interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Port to listen on
    #[arg(long, short, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address to listen on; every address if not given
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// End after one test
    #[arg(long, short = '1')]
    one_off: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let flag = super::interrupt_flag()?;
    let options = ServeOptions { bind: arguments.bind, port: arguments.port, one_off: arguments.one_off };
    serve(&options, &flag, &mut |event| Terminal::line(&describe(&event))).map_err(|error| explain(&error))
}

fn describe(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Listening(address) => format!("listening on {address}"),
        ServerEvent::Began { client, request } => {
            let streams =
                if request.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", request.streams) };
            let direction = match request.direction {
                fullpipe_record::Direction::Upload => "receiving",
                fullpipe_record::Direction::Download => "sending",
            };
            format!("{client}: {direction}, {streams}")
        }
        ServerEvent::Ended { client, rate } => format!("{client}: done at {rate}"),
        ServerEvent::Failed { client, why } => format!("{client}: {why}"),
        ServerEvent::Stranger { client, what } => format!("{client}: turned away, it is {what}"),
    }
}

fn explain(error: &ServeError) -> Failure {
    use std::io::ErrorKind;
    match error {
        ServeError::Listen { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => {
            Failure::new(LACKING, format!("{error}; ports below 1024 are root's: choose another with --port"))
        }
        ServeError::Listen { cause, .. } if cause.kind() == ErrorKind::AddrInUse => {
            Failure::new(FAILED, format!("{error}; another server has it: stop that, or choose another with --port"))
        }
        _ => Failure::new(FAILED, error.to_string()),
    }
}
