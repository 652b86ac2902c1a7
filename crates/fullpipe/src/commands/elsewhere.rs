//! What other systems than Linux have in place of what needs Linux: mostly a refusal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};

use fullpipe_record::{HostSettings, KernelVersion};
use fullpipe_trace::PacketFile;

use super::handed_over::{self, HandedArguments};
use super::prelude::*;
use super::stated::StatedEnds;
use crate::cli::format_of;

/// Returns the failure of what needs Linux.
fn needs_linux(what: &str) -> Failure {
    let sentence = format!(
        "{what} needs Linux; here are calc, simulate, trace of files, diagnose --from, report, diff of results, store, \
         history, explain and schema"
    );
    Failure::new(LACKING, sentence)
}

/// Returns the form of standard output that words of any meaning ask for.
fn words_format(words: &[OsString]) -> OutputFormat {
    let words = words.iter().map(|word| word.to_string_lossy().into_owned());
    format_of(words)
}

/// Makes commands that take any words, and refuse.
macro_rules! refused_commands {
    ($($command:ident::$arguments:ident,)+) => {
        $(pub(super) mod $command {
            use super::*;

            /// (needs Linux)
            #[derive(Debug, Args)]
            #[command(disable_help_flag = true)]
            pub(crate) struct $arguments {
                #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
                words: Vec<OsString>,
            }

            impl RunCommand for $arguments {
                fn output(&self) -> OutputChoice<'_> {
                    (words_format(&self.words), None)
                }

                fn run(&self, _: &Terminal) -> Result {
                    Err(needs_linux(concat!("fullpipe ", stringify!($command))))
                }
            }
        })+
    };
}

refused_commands! {
    compare::CompareServersArguments,
    completions::CompletionsArguments,
    copy::CopyArguments,
    demo::DemoArguments,
    fleet::FleetArguments,
    host::HostArguments,
    iperf3::RawArguments,
    lab::LabArguments,
    man::ManArguments,
    mcp::McpArguments,
    measure::MeasureArguments,
    relay::RelayArguments,
    serve::ServeArguments,
    sweep::SweepServerArguments,
    web::WebArguments,
}

/// `fullpipe diagnose` of files.
pub(super) mod diagnose {
    use super::*;

    /// The limit of transfers that files show, and what would lift it.
    #[derive(Debug, Args)]
    pub(crate) struct DiagnoseArguments {
        /// Read what you have (explain inputs)
        ///
        /// Listings of ss, results, captures and counters; `-` is standard input. `fullpipe explain
        /// inputs` has more.
        #[arg(long, num_args = 1.., value_name = "FILE")]
        from: Option<Vec<PathBuf>>,
        /// Capacity of the path, if known; it makes the verdict surer
        #[arg(long, value_name = "RATE", value_parser = parse_capacity)]
        bandwidth: Option<BitRate>,
        #[command(flatten)]
        stated: StatedEnds,
        #[command(flatten)]
        output: OutputArguments,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        words: Vec<OsString>,
    }

    impl RunCommand for DiagnoseArguments {
        fn output(&self) -> OutputChoice<'_> {
            self.output.output_choice()
        }

        fn run(&self, terminal: &Terminal) -> Result {
            let Some(files) = self.from.as_deref().filter(|_| self.words.is_empty()) else {
                return Err(needs_linux("fullpipe diagnose of anything but files"));
            };
            self.stated.check_flags(true)?;
            let known = HandedArguments {
                bandwidth: self.bandwidth,
                stated: &self.stated,
                output: &self.output,
            };
            handed_over::run(&known, files, terminal)
        }
    }
}

/// The ways to a server: there are none.
#[derive(Debug, Args)]
pub(super) struct AccessArguments {}

/// Two settings measured in pairs.
pub(super) mod pairs {
    use super::*;
    use crate::commands::diff::DiffArguments;

    pub(in crate::commands) fn run(_: &DiffArguments, _: u32, _: &Terminal) -> Result {
        Err(needs_linux("fullpipe diff --pairs"))
    }
}

/// Captures of a network device.
pub(super) mod device {
    use super::*;

    pub(in crate::commands) fn open_device(
        _: &str,
        _: Option<Span>,
        _: Arc<AtomicBool>,
        _: &Terminal,
    ) -> Result<PacketFile> {
        Err(needs_linux("fullpipe trace --interface"))
    }
}

/// Captures that come through a pipe.
pub(super) mod pipe {
    use super::*;

    /// A pipe, or a device.
    pub(in crate::commands) struct CapturePipe(Box<dyn Read + Send>);

    impl CapturePipe {
        pub(in crate::commands) fn of_standard_input() -> io::Result<Self> {
            Ok(Self(Box::new(io::stdin())))
        }

        /// Returns what comes through it. While it is silent, the flag is not looked at.
        pub(in crate::commands) fn until_interrupt(self, _: Arc<AtomicBool>) -> impl Read + Send {
            self.0
        }
    }

    impl From<File> for CapturePipe {
        fn from(file: File) -> Self {
            Self(Box::new(file))
        }
    }
}

/// The host that both ends are taken to be, where nothing else is stated.
pub(super) mod assumed_host {
    use super::*;

    pub(in crate::commands) fn settings() -> Result<HostSettings> {
        Ok(HostSettings::of_linux_6_18())
    }

    /// Returns a description of the host with this kernel.
    pub(in crate::commands) fn description(kernel: KernelVersion) -> String {
        format!("Linux {kernel} with the kernel's own settings")
    }
}
