//! Calls on many connections from one thread, which waits without sleeping where it has a processor to itself: a client that
//! must be woken adds the time of that to what it measures, and costs the server the waking.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use super::{Error, wire::Connection};

/// How long the last answers may take once no more calls are made.
const PATIENCE: Duration = Duration::from_secs(10);

/// One server's clients.
pub(crate) struct Clients {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    spins: bool,
}

/// What one turn of calls came to.
pub(crate) struct Turn {
    pub(crate) answered: u64,
    pub(crate) elapsed: Duration,
    /// Nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// How long the clients had nothing to do.
    pub(crate) idle: Duration,
}

impl Turn {
    fn new() -> Self {
        let longest = PATIENCE.as_nanos() as u64;
        Self {
            answered: 0,
            elapsed: Duration::ZERO,
            latencies: Histogram::new_with_max(longest, 3).expect("such a histogram can be"),
            idle: Duration::ZERO,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }
}

impl Clients {
    pub(crate) fn open(
        address: SocketAddr,
        connections: usize,
        keys: bool,
        spins: bool,
    ) -> Result<Self, Error> {
        let poll = Poll::new()?;
        let mut opened = Vec::with_capacity(connections);
        for number in 0..connections {
            let mut connection = Connection::open(address, number, keys)?;
            connection.register(poll.registry(), Token(number))?;
            opened.push(connection);
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(connections),
            connections: opened,
            spins,
        })
    }

    /// Calls as fast as answers come, on every connection, for so long or so many times.
    pub(crate) fn saturate(&mut self, time: Duration, calls: u64) -> Result<Turn, Error> {
        let mut turn = Turn::new();
        let begun = Instant::now();
        let mut sent = Vec::with_capacity(self.connections.len());
        for connection in &mut self.connections {
            sent.push(Instant::now());
            connection.send()?;
        }
        let mut under_way = self.connections.len();
        while under_way > 0 {
            let now = self.wait(&mut turn, None)?;
            let over = now - begun >= time || turn.answered >= calls;
            if over && turn.elapsed.is_zero() {
                turn.elapsed = now - begun;
            }
            for token in self.events.iter().map(|event| event.token().0) {
                let connection = &mut self.connections[token];
                if !connection.read()? {
                    continue;
                }
                let now = Instant::now();
                if over {
                    under_way -= 1;
                    continue;
                }
                turn.answered += 1;
                record(&mut turn.latencies, now - sent[token]);
                connection.send()?;
                sent[token] = now;
            }
        }
        Ok(turn)
    }

    /// Calls that become due at random times, `rate` a second in the mean. Each takes a connection that is free, or waits
    /// until there is one, and its latency counts from when it was due: a server that is late does not get fewer calls.
    pub(crate) fn offer(&mut self, time: Duration, rate: f64, seed: u64) -> Result<Turn, Error> {
        let mut random = Rng::with_seed(seed);
        // Between events that come independently of each other.
        let mut gap = || Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate);
        let mut turn = Turn::new();
        let begun = Instant::now();
        let end = begun + time;
        let mut next = begun + gap();
        let mut waiting = VecDeque::new();
        let mut free: VecDeque<usize> = (0..self.connections.len()).collect();
        let mut due = vec![begun; self.connections.len()];
        let mut now = begun;
        loop {
            while next <= now && next < end {
                waiting.push_back(next);
                next += gap();
            }
            while let (Some(&since), Some(&token)) = (waiting.front(), free.front()) {
                waiting.pop_front();
                free.pop_front();
                self.connections[token].send()?;
                due[token] = since;
            }
            if next >= end && waiting.is_empty() && free.len() == self.connections.len() {
                break;
            }
            if now > end + PATIENCE {
                return Err("the server does not keep up with what it is offered".into());
            }
            now = self.wait(&mut turn, Some(next))?;
            for token in self.events.iter().map(|event| event.token().0) {
                if self.connections[token].read()? {
                    now = Instant::now();
                    turn.answered += 1;
                    record(&mut turn.latencies, now - due[token]);
                    free.push_back(token);
                }
            }
        }
        turn.elapsed = now - begun;
        Ok(turn)
    }

    /// Looks for answers. Returns the time, and at `next` at the latest where it does not spin.
    fn wait(&mut self, turn: &mut Turn, next: Option<Instant>) -> Result<Instant, Error> {
        let begun = Instant::now();
        let sleep = match (self.spins, next) {
            (true, _) => Duration::ZERO,
            (false, None) => PATIENCE,
            (false, Some(next)) => next.saturating_duration_since(begun).min(PATIENCE),
        };
        match self.poll.poll(&mut self.events, Some(sleep)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let now = Instant::now();
        if self.events.is_empty() {
            turn.idle += now - begun;
        }
        Ok(now)
    }
}

fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}
