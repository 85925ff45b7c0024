//! A web server on this machine for tests, which answers each request as the test says: late, cut short, or with a lie.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Path and query.
    pub(crate) path: String,
    /// Headers by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// How many requests came before it.
    pub(crate) number: usize,
}

impl Request {
    /// The first byte that it asks for.
    pub(crate) fn start(&self) -> usize {
        let range = self.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        range.and_then(|range| range.strip_suffix('-')).map_or(0, |start| start.parse().unwrap())
    }
}

/// The connection to answer on.
pub(crate) struct Reply<'a>(&'a mut TcpStream);

impl Reply<'_> {
    /// Sends bytes as they are; false once the client has gone.
    pub(crate) fn raw(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).and_then(|()| self.0.flush()).is_ok()
    }

    /// Sends a status line and headers; what follows is up to the test.
    pub(crate) fn head(&mut self, status: &str, headers: &[(&str, &str)]) {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.raw(format!("HTTP/1.1 {status}\r\n{lines}Connection: close\r\n\r\n"));
    }

    /// A status and nothing else.
    pub(crate) fn status(&mut self, status: &str, headers: &[(&str, &str)]) {
        self.head(status, &[headers, &[("Content-Length", "0")]].concat());
    }

    /// What a good server answers: the file, or the rest of it.
    pub(crate) fn file(&mut self, request: &Request, content: &[u8], headers: &[(&str, &str)]) {
        self.some_of_file(request, content, headers, content.len());
    }

    /// Promises the file or the rest of it, and cuts off before byte `end` of the file.
    pub(crate) fn some_of_file(
        &mut self,
        request: &Request,
        content: &[u8],
        headers: &[(&str, &str)],
        end: usize,
    ) {
        let (start, total) = (request.start(), content.len());
        let length = (total - start).to_string();
        let range = format!("bytes {start}-{}/{total}", total - 1);
        let mut all = vec![("Content-Length", length.as_str())];
        all.extend(headers);
        if start > 0 {
            all.push(("Content-Range", &range));
        }
        self.head(if start > 0 { "206 Partial Content" } else { "200 OK" }, &all);
        self.raw(&content[start..end.max(start)]);
    }
}

/// The server; it ends with the test.
pub(crate) struct Server {
    /// `http://127.0.0.1:PORT/`.
    pub(crate) root: String,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request, &mut Reply<'_>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let root = format!("http://{}/", listener.local_addr().unwrap());
        let (requests, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, over, answer) = (requests.clone(), ended.clone(), Arc::new(answer));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (mut stream, seen, answer) = (stream.unwrap(), seen.clone(), answer.clone());
                std::thread::spawn(move || {
                    if let Some(request) = read(&stream, &seen) {
                        answer(&request, &mut Reply(&mut stream));
                    }
                });
            }
        });
        Self { root, requests, ended, thread: Some(thread) }
    }

    /// What has been asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The first bytes that were asked for, request by request.
    pub(crate) fn starts(&self) -> Vec<usize> {
        self.requests().iter().map(Request::start).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.root.trim_start_matches("http://").trim_end_matches('/'));
        // From here on nobody listens.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn read(stream: &TcpStream, seen: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_string();
    let mut headers = BTreeMap::new();
    while let Some(Ok(line)) = lines.next() {
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_string());
    }
    let mut seen = seen.lock().unwrap();
    let request = Request { path, headers, number: seen.len() };
    seen.push(request.clone());
    Some(request)
}
