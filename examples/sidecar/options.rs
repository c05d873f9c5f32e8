//! What is said on the command line.

use std::time::Duration;

use axum::http::Uri;

pub(crate) const USAGE: &str = "\
usage: sidecar --upstream URL [OPTION]...

  --upstream URL           the MCP server, http://HOST:PORT/PATH
  --listen HOST:PORT       where clients and edges connect (default 127.0.0.1:8000)
  --name NAME              this instance's name (default sidecar)
  --address URL            where other sidecars reach this one; requests are then forwarded to their session's owner
  --token TOKEN            put on session ids, for an edge to route on
  --store memory|URL       what the instances share: nothing (default), or Redis at redis://HOST:PORT (feature redis)
  --answer-within SECONDS  how long the server may take until an answer begins (default 300)
  --idle SECONDS           how long a session may be idle; no longer than the server itself keeps it (default 1800)
  --grace SECONDS          how long running calls may take to finish after SIGTERM (default 30)";

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) upstream: Uri,
    pub(crate) listen: String,
    pub(crate) name: String,
    pub(crate) address: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) store: Store,
    pub(crate) answer_within: Duration,
    pub(crate) idle: Duration,
    pub(crate) grace: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    #[cfg(feature = "redis")]
    Redis(String),
}

impl Options {
    pub(crate) fn new(upstream: &str) -> Result<Self, String> {
        let uri: Uri = upstream
            .parse()
            .map_err(|error| format!("--upstream {upstream}: {error}"))?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(format!("--upstream {upstream}: not an http URL"));
        }
        Ok(Self {
            upstream: uri,
            listen: "127.0.0.1:8000".into(),
            name: "sidecar".into(),
            address: None,
            token: None,
            store: Store::Memory,
            answer_within: Duration::from_secs(300),
            idle: Duration::from_secs(1800),
            grace: Duration::from_secs(30),
        })
    }

    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut said = Vec::new();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} says nothing"))?;
            said.push((name, value));
        }
        let upstream = said.iter().find(|(name, _)| name == "--upstream");
        let (_, upstream) = upstream.ok_or("--upstream is missing")?;
        let mut options = Self::new(upstream)?;
        for (name, value) in said {
            let seconds = || match value.parse() {
                Ok(seconds) => Ok(Duration::from_secs(seconds)),
                Err(_) => Err(format!("{name} {value}: not a number of seconds")),
            };
            match &*name {
                "--upstream" => {}
                "--listen" => options.listen = value,
                "--name" => options.name = value,
                "--address" => options.address = Some(value),
                "--token" => options.token = Some(value),
                "--store" => options.store = Store::parse(&value)?,
                "--answer-within" => options.answer_within = seconds()?,
                "--idle" => options.idle = seconds()?,
                "--grace" => options.grace = seconds()?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

impl Store {
    fn parse(said: &str) -> Result<Self, String> {
        match said {
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "redis")]
            url if url.starts_with("redis") => Ok(Self::Redis(url.to_owned())),
            _ => Err(format!("--store {said}: there is no such store")),
        }
    }
}
