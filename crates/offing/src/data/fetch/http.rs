//! One request at a time over HTTP, with timeouts, and what its failures mean: try again, try elsewhere, or stop.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use ureq::config::AutoHeaderValue;
use ureq::http::HeaderMap;
use ureq::{Agent, Timeout};

use super::Patience;
use crate::data::messages::one_line;
use crate::error::Error;

/// Redirects followed for one request; hubs use two or three.
const REDIRECTS: u32 = 8;

const NO_NAME: &str = "no network (the host's name is not found)";

/// Why something could not be fetched.
#[derive(Debug)]
pub(super) enum Failure {
    /// The same source may well answer next time.
    Again {
        /// What was found.
        why: String,
        /// How long the server asks to be left alone.
        wait: Option<Duration>,
        /// Whether there is more of the file now than ever before.
        progressed: bool,
    },
    /// This source will not do; another one might.
    Source(String),
    /// No source would help.
    Fatal(Error),
}

/// What a request brings, or why it does not.
pub(super) type Attempt<T> = Result<T, Failure>;

impl Failure {
    /// A failure without progress that may pass.
    pub(super) fn again(why: impl Into<String>) -> Self {
        Self::Again { why: why.into(), wait: None, progressed: false }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// What makes requests.
pub(super) struct Client {
    agent: Agent,
    patience: Patience,
}

/// Which part of a file to ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part<'a> {
    /// The first byte wanted.
    pub(super) start: u64,
    /// The version of the file that the bytes before it are of, where it is known.
    pub(super) etag: Option<&'a str>,
}

/// An answer that holds a file, or the rest of one.
pub(super) struct Answer {
    /// The first byte that it holds.
    pub(super) start: u64,
    /// Length of the whole file, as the server has it.
    pub(super) total: Option<u64>,
    /// The file's version, if the server gives one that stands for its bytes.
    pub(super) etag: Option<String>,
    /// Whether the server calls it a web page.
    pub(super) is_page: bool,
    /// The address of the next page of a list.
    pub(super) next: Option<String>,
    body: Box<dyn Read>,
    patience: Patience,
}

impl Client {
    pub(super) fn new(patience: Patience, environment_proxy: bool) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_per_read(Some(patience.stall))
            .timeout_per_write(Some(patience.stall))
            .user_agent(concat!("offing/", env!("CARGO_PKG_VERSION")))
            // A file that were packed on the way would have another length and no ranges.
            .accept_encoding(AutoHeaderValue::Provided("identity".to_string().into()))
            // After a failure the connection is of no use, and after a success there is one more file at most.
            .max_idle_connections(0);
        if !environment_proxy {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), patience }
    }

    /// Asks for a file, or the rest of it; `None` if the server has nothing from there on.
    pub(super) fn get(&self, address: &str, part: Part<'_>) -> Attempt<Option<Answer>> {
        let mut request = self.agent.get(address);
        if part.start > 0 {
            request = request.header("Range", format!("bytes={}-", part.start));
            if let Some(etag) = part.etag {
                request = request.header("If-Range", etag);
            }
        }
        let response = request.call().map_err(|error| self.failure(error))?;
        let (head, body) = response.into_parts();
        let text = |name: &str| text(&head.headers, name);
        let length = text("content-length").and_then(|n| n.trim().parse::<u64>().ok());
        let status = head.status.as_u16();
        let (start, total) = match status {
            200 => (0, length),
            206 => content_range(text("content-range")).ok_or_else(|| {
                Failure::Source("a part of the file that it does not say the place of (status 206)".into())
            })?,
            _ => {
                let reason =
                    head.status.canonical_reason().map_or(String::new(), |words| format!(" {words}"));
                let why = format!("status {status}{reason}");
                let wait = text("retry-after").and_then(|n| n.trim().parse().ok()).map(Duration::from_secs);
                return Err(match status {
                    408 | 425 | 429 | 500 | 502 | 503 | 504 => {
                        Failure::Again { why, wait, progressed: false }
                    }
                    416 if part.start > 0 => return Ok(None),
                    _ => Failure::Source(why),
                });
            }
        };
        Ok(Some(Answer {
            start,
            total,
            // A weak one stands for the meaning, not for the bytes.
            etag: text("etag").filter(|etag| etag.starts_with('"')).map(str::to_string),
            is_page: text("content-type")
                .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html")),
            next: text("link").and_then(next_page),
            body: Box::new(body.into_reader()),
            patience: self.patience,
        }))
    }

    fn failure(&self, error: ureq::Error) -> Failure {
        match error {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Failure::again(format!("no connection within {}", seconds(self.patience.connect)))
            }
            ureq::Error::Timeout(_) => Failure::again(stalled(self.patience.stall)),
            ureq::Error::HostNotFound => Failure::Source(NO_NAME.into()),
            ureq::Error::Io(e) if is_lookup(&e) => Failure::Source(NO_NAME.into()),
            ureq::Error::TooManyRedirects => Failure::Source(format!("more than {REDIRECTS} redirects")),
            ureq::Error::Io(e) => match e.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                    Failure::Source(format!("no connection ({})", one_line(e)))
                }
                _ => Failure::again(broke(&e)),
            },
            ureq::Error::Protocol(e) => {
                Failure::again(format!("an answer that is not HTTP ({})", one_line(e)))
            }
            other => Failure::Source(one_line(other)),
        }
    }
}

impl Answer {
    /// Reads on. 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Attempt<usize> {
        loop {
            match self.body.read(buffer) {
                Ok(read) => return Ok(read),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
                    let timed_out =
                        matches!(inner, Some(ureq::Error::Timeout(_))) || e.kind() == ErrorKind::TimedOut;
                    let why = if timed_out { stalled(self.patience.stall) } else { broke(&e) };
                    return Err(Failure::again(why));
                }
            }
        }
    }

    /// All of it as text, if it is not longer than `most` bytes.
    pub(super) fn read_text(&mut self, most: usize) -> Attempt<String> {
        let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match self.read(&mut part)? {
                0 => break,
                read => text.extend_from_slice(&part[..read]),
            }
            if text.len() > most {
                return Err(Failure::Source(format!("a list of more than {most} bytes")));
            }
        }
        if self.total.is_some_and(|total| total > text.len() as u64) {
            return Err(Failure::again("a list that breaks off"));
        }
        String::from_utf8(text).map_err(|_| Failure::Source("a list that is not text".into()))
    }
}

/// Whether a host's name was not found. The standard library has no kind for it, only these words, and Windows a number.
fn is_lookup(error: &io::Error) -> bool {
    const WSAHOST_NOT_FOUND: i32 = 11001;
    error.raw_os_error() == Some(WSAHOST_NOT_FOUND) || error.to_string().contains("failed to lookup address")
}

fn stalled(stall: Duration) -> String {
    format!("no byte for {}", seconds(stall))
}

fn broke(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => "the connection was cut".into(),
        _ => format!("the connection broke ({})", one_line(error)),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// First byte and total length of `bytes 100-199/200`.
fn content_range(value: Option<&str>) -> Option<(u64, Option<u64>)> {
    let (range, total) = value?.trim().strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    Some((start, total.trim().parse().ok()))
}

/// The address of `<address>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let entry = link.split(',').find(|entry| entry.contains("rel=\"next\""))?;
    Some(entry.split_once('<')?.1.split_once('>')?.0.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_the_standard_writes_them() {
        assert_eq!(content_range(Some("bytes 100-199/200")), Some((100, Some(200))));
        assert_eq!(content_range(Some("bytes 100-199/*")), Some((100, None)));
        for wrong in [None, Some(""), Some("bytes */200"), Some("bytes -5/7"), Some("lines 1-2/3")] {
            assert_eq!(content_range(wrong), None, "{wrong:?}");
        }
        let link = "<https://a/?cursor=b>; rel=\"prev\", <https://a/?cursor=c>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://a/?cursor=c"));
        assert_eq!(next_page("<https://a/>; rel=\"prev\""), None);
    }
}
