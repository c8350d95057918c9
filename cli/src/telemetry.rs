//! Logging: to standard error, as text for people or JSON for collectors.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Options of every command.
#[derive(Args)]
pub(crate) struct Options {
    /// Form of log lines
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, env = "HOLDFAST_LOG_FORMAT")]
    log_format: Format,
    /// What to log: error, warn, info, debug, trace, or a filter such as info,holdfast_gateway=debug
    #[arg(long, global = true, default_value = "info", env = "HOLDFAST_LOG", value_parser = parse_filter)]
    log: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn parse_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Starts logging. The filter has been checked when the arguments were read.
pub(crate) fn start(options: &Options) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&options.log))
        .with_writer(std::io::stderr)
        .with_target(false);
    match options.log_format {
        Format::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        Format::Json => builder.json().init(),
    }
}
