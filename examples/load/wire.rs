//! A client's connection: HTTP/1.1 by hand, so that the client takes little of the machine that it shares with the server.
//!
//! Every answer is read to its end and must hold what its call asked to be repeated.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use memchr::memmem;
use mio::{Interest, Registry, Token};

use super::Error;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The first number of a call: all that follow are written in as many digits.
const FIRST: u64 = 1_000_000_000;
const DIGITS: usize = 10;
/// Stands where a call's number is written.
const HOLE: &str = "##########";
const _: () = assert!(HOLE.len() == DIGITS);

/// What comes before the number in a call and in its answer.
const ID: &str = "\"id\":";
const LAST_WORD: &str = "second instalment, ";

/// A session of its own on a connection of its own.
pub(crate) struct Connection {
    socket: mio::net::TcpStream,
    /// A call, ready to be sent but for its number.
    call: Vec<u8>,
    /// Where the number goes.
    holes: Vec<usize>,
    number: u64,
    answer: Answer,
}

impl Connection {
    /// Opens a session.
    pub(crate) fn open(address: SocketAddr, number: usize, keys: bool) -> Result<Self, Error> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        // Answers must not fail to come for ever.
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let opened = exchange(&mut socket, &post(address, "", INITIALIZE), 200)?;
        let session = opened.ok_or("the server opened no session")?;
        let head = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n");
        exchange(&mut socket, &post(address, &head, INITIALIZED), 202)?;
        socket.set_nonblocking(true)?;
        let head = match keys {
            true => format!("{head}idempotency-key: \"{number:04}-{HOLE}\"\r\n"),
            false => head,
        };
        let call = post(address, &head, &call());
        Ok(Self {
            socket: mio::net::TcpStream::from_std(socket),
            holes: memmem::find_iter(&call, HOLE).collect(),
            call,
            number: FIRST,
            answer: Answer::default(),
        })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Sends the next call.
    pub(crate) fn send(&mut self) -> Result<(), Error> {
        self.number += 1;
        let number = self.number.to_string();
        for &hole in &self.holes {
            self.call[hole..hole + DIGITS].copy_from_slice(number.as_bytes());
        }
        self.answer.clear();
        // It is short, and nothing else is under way here: there is room for it.
        match self.socket.write(&self.call)? {
            sent if sent == self.call.len() => Ok(()),
            _ => Err("a call was not sent whole".into()),
        }
    }

    /// Reads what is there, and says whether that was the rest of the answer.
    pub(crate) fn read(&mut self) -> Result<bool, Error> {
        loop {
            match self.answer.read(&mut self.socket) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if self.answer.is_whole()? {
                break;
            }
        }
        match self.answer.status == 200 && self.answer.repeats(self.number) {
            true => Ok(true),
            false => Err(self.answer.wrong("no answer to a call").into()),
        }
    }
}

fn call() -> String {
    format!(
        r#"{{"jsonrpc":"2.0",{ID}{HOLE},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"transfer 199.90 EUR, invoice 2026-11-0042, {LAST_WORD}{HOLE}"}}}}}}"#
    )
}

fn post(address: SocketAddr, head: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nuser-agent: load\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{head}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a request, waits for its answer, and gives the session id that it came with.
fn exchange(socket: &mut TcpStream, request: &[u8], status: u16) -> Result<Option<String>, Error> {
    socket.write_all(request)?;
    let mut answer = Answer::default();
    while !answer.is_whole()? {
        answer.read(socket)?;
    }
    match answer.status == status {
        true => Ok(answer.session),
        false => Err(answer.wrong("the session was not opened").into()),
    }
}

/// The answer to one request, as far as it has come.
#[derive(Default)]
struct Answer {
    received: Vec<u8>,
    status: u16,
    session: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    fn clear(&mut self) {
        self.received.clear();
    }

    fn read(&mut self, from: &mut impl Read) -> io::Result<()> {
        let mut chunk = [0; 4096];
        match from.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.received.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    }

    /// Whether nothing of it is missing. Looked through from the beginning each time: it is short and comes in few pieces.
    fn is_whole(&mut self) -> Result<bool, Error> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(mut at) = head.parse(&self.received)? else {
            return Ok(false);
        };
        self.status = head.code.unwrap_or_default();
        self.session = None;
        self.body.clear();
        let mut length = None;
        for header in head.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                length = Some(std::str::from_utf8(header.value)?.parse::<usize>()?);
            } else if header.name.eq_ignore_ascii_case("mcp-session-id") {
                self.session = Some(std::str::from_utf8(header.value)?.to_owned());
            }
        }
        if let Some(length) = length {
            let Some(body) = self.received.get(at..at + length) else {
                return Ok(false);
            };
            self.body.extend_from_slice(body);
            return Ok(true);
        }
        // By chunks, then.
        loop {
            let parsed = httparse::parse_chunk_size(&self.received[at..]);
            let Ok(httparse::Status::Complete((start, size))) = parsed else {
                let broken = parsed.is_err();
                return if broken {
                    Err(self.wrong("no chunk").into())
                } else {
                    Ok(false)
                };
            };
            let from = at + start;
            let to = from + usize::try_from(size)?;
            let Some(chunk) = self.received.get(from..to + 2) else {
                return Ok(false);
            };
            if !chunk.ends_with(b"\r\n") {
                return Err(self.wrong("a chunk without an end").into());
            }
            if size == 0 {
                return Ok(true);
            }
            self.body.extend_from_slice(&self.received[from..to]);
            at = to + 2;
        }
    }

    /// Whether it is the answer to the call of this number: by its id, and by what the tool was asked to repeat.
    fn repeats(&self, number: u64) -> bool {
        let number = number.to_string();
        [ID, LAST_WORD].into_iter().all(|before| {
            let found = memmem::find(&self.body, before.as_bytes());
            found.is_some_and(|at| self.body[at + before.len()..].starts_with(number.as_bytes()))
        })
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what}: {}", String::from_utf8_lossy(&self.received))
    }
}
