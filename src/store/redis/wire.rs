//! One connection, to one server or to a cluster, and whether what is at its other end may be used.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use super::{config::RedisConfig, fault::Fault};

/// Where connections come from.
#[derive(Debug)]
pub(super) struct Source {
    servers: Servers,
    connect: Duration,
    response: Duration,
}

enum Servers {
    /// Of these the first that is a primary.
    Any(Vec<Client>),
    /// Of these the first that knows where the primary of this name is.
    #[cfg(feature = "redis-sentinel")]
    Sentinels(Vec<String>, String),
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The addresses may have passwords.
        f.write_str(match self {
            Self::Any(_) => "Any",
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinels(..) => "Sentinels",
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => "Cluster",
        })
    }
}

impl Source {
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Fault> {
        let addresses = config.addresses.iter().map(String::as_str);
        #[cfg(feature = "redis-cluster")]
        if config.cluster {
            let client = redis::cluster::ClusterClient::builder(addresses)
                .connection_timeout(config.connect_deadline)
                .response_timeout(config.deadline)
                .retries(4)
                .max_retry_wait(50)
                .build()?;
            return Ok(Self::of(Servers::Cluster(Box::new(client)), config));
        }
        #[cfg(feature = "redis-sentinel")]
        if let Some(primary) = &config.sentinel {
            let servers = Servers::Sentinels(config.addresses.clone(), primary.clone());
            return Ok(Self::of(servers, config));
        }
        let clients = addresses.map(Client::open).collect::<Result<_, _>>()?;
        Ok(Self::of(Servers::Any(clients), config))
    }

    fn of(servers: Servers, config: &RedisConfig) -> Self {
        Self {
            servers,
            connect: config.connect_deadline,
            response: config.response_deadline,
        }
    }

    pub(super) fn connect_deadline(&self) -> Duration {
        self.connect
    }

    pub(super) fn response_deadline(&self) -> Duration {
        self.response
    }

    pub(super) async fn connect(&self) -> Result<Wire, Fault> {
        match &self.servers {
            Servers::Any(clients) => self.any(clients).await,
            #[cfg(feature = "redis-sentinel")]
            Servers::Sentinels(addresses, primary) => {
                let client = super::sentinel::primary(addresses, primary).await?;
                Ok(Wire::Server(open(&client).await?))
            }
            #[cfg(feature = "redis-cluster")]
            Servers::Cluster(client) => super::cluster::connect(client).await,
        }
    }

    async fn any(&self, clients: &[Client]) -> Result<Wire, Fault> {
        // An address where nobody answers must not cost the others their turn.
        let each = self.connect / u32::try_from(clients.len()).unwrap_or(1).max(1);
        let mut last = Fault::Refused("there is no address to connect to".into());
        for client in clients {
            let made = tokio::time::timeout(each, open(client));
            match made.await.unwrap_or(Err(Fault::Late("connection"))) {
                Ok(connection) => return Ok(Wire::Server(connection)),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }
}

async fn open(client: &Client) -> Result<MultiplexedConnection, Fault> {
    // The deadlines are the store's own.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut ask = redis::pipe();
    ask.cmd("INFO").arg("memory").cmd("INFO").arg("replication");
    let (memory, replication): (String, String) = ask.query_async(&mut connection).await?;
    examine(&memory, &replication)?;
    Ok(connection)
}

/// Whether a server that says this of itself keeps what it is given.
pub(super) fn examine(memory: &str, replication: &str) -> Result<(), Fault> {
    if field(replication, "role") != Some("master") {
        return Err(Fault::Refused(
            "the server is a replica; the store needs the primary".into(),
        ));
    }
    match field(memory, "maxmemory_policy") {
        Some("noeviction") => Ok(()),
        policy => Err(Fault::Refused(
            format!(
                "the server's maxmemory-policy is {}, under which it may forget who owns a session; \
                 set `maxmemory-policy noeviction`",
                policy.unwrap_or("not known")
            )
            .into(),
        )),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().map(str::trim_end);
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// A connection that many calls share.
#[derive(Clone)]
pub(super) enum Wire {
    Server(MultiplexedConnection),
    #[cfg(feature = "redis-cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(connection) => connection.req_packed_command(cmd),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(connection) => connection.req_packed_commands(pipeline, offset, count),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(connection) => connection.get_db(),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_primary_that_evicts_nothing_will_do() {
        let master = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";
        assert!(examine("maxmemory_policy:noeviction\r\n", master).is_ok());
        for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
            let refused = examine(&format!("maxmemory_policy:{policy}\r\n"), master).unwrap_err();
            let told = refused.to_string();
            assert!(
                told.contains(policy) && told.contains("noeviction"),
                "{told}"
            );
        }
        assert!(examine("maxmemory_policy:noeviction\r\n", "role:slave\r\n").is_err());
        // What is not said is not known.
        assert!(examine("", master).is_err());
        assert!(examine("maxmemory_policy:noeviction\r\n", "").is_err());
    }
}
