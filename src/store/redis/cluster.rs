//! A connection to a cluster, and whether each of its primaries may be used.

use redis::{
    Value,
    cluster::ClusterClient,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
};

use super::{
    fault::Fault,
    wire::{Wire, examine},
};

pub(super) async fn connect(client: &ClusterClient) -> Result<Wire, Fault> {
    let mut connection = client.get_async_connection().await?;
    let primaries = || RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let mut ask = redis::cmd("INFO");
    ask.arg("memory");
    for (_, memory) in told(connection.route_command(ask.clone(), primaries()).await?)? {
        examine(&memory, "role:master")?;
    }
    Ok(Wire::Cluster(connection))
}

fn told(value: Value) -> Result<Vec<(String, String)>, Fault> {
    Ok(redis::from_redis_value(value).map_err(redis::RedisError::from)?)
}
