//! What the guarded instances share: the embedded store, or Redis with `--store redis`.

use std::sync::OnceLock;

use mcp_session_guard::store::{MemoryStore, SharedDirectory, SharedEvents};

use crate::Error;

/// A directory and a log that nothing was written to yet.
pub(crate) struct Stores {
    pub(crate) directory: SharedDirectory,
    pub(crate) events: SharedEvents,
}

/// Where stores are opened, once it was said: the address of a server.
static SERVER: OnceLock<String> = OnceLock::new();

pub(crate) async fn open() -> Result<Stores, Error> {
    match SERVER.get() {
        #[cfg(feature = "redis")]
        Some(address) => on_redis::open(address).await,
        _ => {
            let store = MemoryStore::new();
            Ok(Stores {
                directory: SharedDirectory::new(store.clone()),
                events: SharedEvents::new(store),
            })
        }
    }
}

/// Has stores opened on a server from now on: at the address, or on one that runs for as long as what is returned.
pub(crate) fn choose(store: &str) -> Result<Option<Server>, Error> {
    let (name, address) = store.split_once('=').unwrap_or((store, ""));
    let (server, address) = match (name, address) {
        ("memory", "") => return Ok(None),
        ("redis", _) if !cfg!(feature = "redis") => {
            return Err("the store redis needs `--features redis`".into());
        }
        ("redis", "") => {
            let (server, address) = Server::start()?;
            (Some(server), address)
        }
        ("redis", address) => (None, address.to_owned()),
        _ => {
            let stores = "memory, redis, redis=ADDRESS";
            return Err(format!("unknown store '{store}'; the stores are: {stores}").into());
        }
    };
    let _ = SERVER.set(address);
    Ok(server)
}

/// A server that ends with this.
pub(crate) struct Server(std::process::Child);

impl Server {
    fn start() -> Result<(Self, String), Error> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let process = std::process::Command::new(&program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        Ok((Self(process), format!("redis://127.0.0.1:{port}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(feature = "redis")]
mod on_redis {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use mcp_session_guard::{
        session::SessionId,
        store::{Lookup, RedisConfig, RedisStore, SessionDirectory, SharedDirectory, SharedEvents},
    };
    use tokio::time::{Instant, sleep};

    use super::Stores;
    use crate::{Error, pod::LEASE};

    const PATIENCE: Duration = Duration::from_secs(20);

    pub(super) async fn open(address: &str) -> Result<Stores, Error> {
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let (run, number) = (std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        let config = RedisConfig::new(address)
            .with_prefix(format!("incidents-{run}-{number}"))
            .with_max_lease(LEASE);
        let limit = Instant::now() + PATIENCE;
        let store = loop {
            match RedisStore::connect(config.clone()).await {
                Ok(store) => break store,
                Err(error) if Instant::now() > limit => return Err(error.into()),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        // Where nothing was ever written something may have been lost, so it waits for owners to speak up.
        let nobody = SessionId::parse("nobody")?;
        while !matches!(store.lookup(&nobody).await, Ok(Lookup::Absent)) {
            if Instant::now() > limit {
                return Err("the store goes on recovering".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Stores {
            directory: SharedDirectory::new(store.clone()),
            events: SharedEvents::new(store),
        })
    }
}
