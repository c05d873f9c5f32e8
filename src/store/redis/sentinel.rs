//! Where the primary is, according to Redis Sentinel.

use redis::{
    Client, IntoConnectionInfo,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};

use super::fault::Fault;

/// Asks anew each time: what was true when the last connection was made is why there is no connection now.
pub(super) async fn primary(addresses: &[String], name: &str) -> Result<Client, Fault> {
    let first = addresses.first().map(String::as_str).unwrap_or_default();
    let settings = first.into_connection_info()?.redis_settings().clone();
    let node = SentinelNodeConnectionInfo::default().set_redis_connection_info(settings);
    let mut sentinels = SentinelClient::build(
        addresses.to_vec(),
        name.to_owned(),
        Some(node),
        SentinelServerType::Master,
    )?;
    Ok(sentinels.async_get_client().await?)
}
