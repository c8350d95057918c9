//! What a command says: answers on standard output, and errors as one line for a person.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::str::FromStr;

use anyhow::{Context, Result};

/// Writes a line to standard output. A reader that has closed the pipe (`| head`) has read enough: that is no error.
pub(crate) fn line(text: impl Display) -> Result<()> {
    write_line(&mut io::stdout().lock(), &text).context("cannot write to standard output")
}

fn write_line(out: &mut impl Write, text: &dyn Display) -> io::Result<()> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The error with its causes in one line. Many errors tell their cause already: a cause whose text is in the line is left out.
pub(crate) fn error_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Reads an argument. Of an error with causes, clap alone would show only the outermost.
pub(crate) fn parse_argument<T>(text: &str) -> Result<T, String>
where
    T: FromStr,
    T::Err: Into<anyhow::Error>,
{
    text.parse().map_err(|error: T::Err| error_text(error.into().as_ref()))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn line_when_the_reader_is_gone_then_a_quiet_end() {
        assert!(write_line(&mut Failing(ErrorKind::BrokenPipe), &"x").is_ok());
        assert!(write_line(&mut Failing(ErrorKind::StorageFull), &"x").is_err());
    }

    #[test]
    fn error_text_when_a_cause_is_told_already_then_once() {
        let error = anyhow!("no such file").context("cannot read a: no such file").context("cannot start");
        assert_eq!(error_text(error.as_ref()), "cannot start: cannot read a: no such file");
        assert_eq!(error_text(anyhow!("inner").context("outer").as_ref()), "outer: inner");
    }
}
