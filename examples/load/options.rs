//! What is said on the command line.

use std::{str::FromStr, time::Duration};

use super::rows::{Layers, Server};

pub(crate) const USAGE: &str = "\
usage: load [OPTION]...

  --json                 one JSON object a row
  --servers NAME,...     of rmcp, tower-mcp, bare (default all)
  --layers NAME,...      of none, affinity, drain, resume, idempotency, all (default all of them; none is always measured)
  --duration SECONDS     how long a row is measured, once for each way of asking (default 4)
  --rounds N             in so many parts, between which the other rows have their turn (default 16)
  --connections N        each is a session with at most one call under way (default 32)
  --rate SHARE           calls offered for the latencies, as a share of what the server answers without layers (default 0.5)
  --threads N            of the server's runtime (default half the processors)
  --keys                 each call carries an idempotency key of its own";

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) servers: Vec<Server>,
    pub(crate) layers: Vec<Layers>,
    pub(crate) duration: Duration,
    pub(crate) rounds: u32,
    pub(crate) connections: usize,
    pub(crate) rate: f64,
    pub(crate) threads: usize,
    pub(crate) keys: bool,
}

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            json: false,
            servers: Server::ALL.to_vec(),
            layers: Layers::ALL.to_vec(),
            duration: Duration::from_secs(4),
            rounds: 16,
            connections: 32,
            rate: 0.5,
            threads: processors().div_ceil(2),
            keys: false,
        };
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{name} says nothing"));
            match &*name {
                "--json" => options.json = true,
                "--keys" => options.keys = true,
                "--servers" => options.servers = list(&name, &value()?)?,
                "--layers" => options.layers = list(&name, &value()?)?,
                "--duration" => {
                    let seconds = number(&name, &value()?)?;
                    options.duration = Duration::try_from_secs_f64(seconds)
                        .map_err(|error| format!("{name} {seconds}: {error}"))?;
                }
                "--rounds" => options.rounds = number(&name, &value()?)?,
                "--connections" => options.connections = number(&name, &value()?)?,
                "--rate" => options.rate = number(&name, &value()?)?,
                "--threads" => options.threads = number(&name, &value()?)?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        // What the others are compared with.
        if !options.layers.contains(&Layers::None) {
            options.layers.insert(0, Layers::None);
        }
        let counts = [
            options.rounds as usize,
            options.connections,
            options.threads,
        ];
        if counts.contains(&0) || options.duration.is_zero() {
            return Err("nothing would be measured".to_owned());
        }
        if !(options.rate > 0.0 && options.rate < 1.0) {
            return Err(format!("--rate {}: not between 0 and 1", options.rate));
        }
        Ok(options)
    }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn number<T: FromStr>(name: &str, said: &str) -> Result<T, String> {
    said.parse()
        .map_err(|_| format!("{name} {said}: not a number that it takes"))
}

fn list<T: FromStr<Err = String>>(name: &str, said: &str) -> Result<Vec<T>, String> {
    said.split(',')
        .map(|one| one.parse().map_err(|wrong| format!("{name}: {wrong}")))
        .collect()
}
