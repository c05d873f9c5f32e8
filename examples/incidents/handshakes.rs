//! What rmcp shares between instances so that a session can go on elsewhere: the parameters of its handshake.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig,
    session::{SessionState, SessionStore, store::SessionStoreError},
};

#[derive(Debug, Default)]
pub(crate) struct Handshakes(Mutex<HashMap<String, SessionState>>);

impl Handshakes {
    pub(crate) fn config(self: &Arc<Self>) -> StreamableHttpServerConfig {
        let mut config = StreamableHttpServerConfig::default();
        config.session_store = Some(Arc::clone(self) as Arc<dyn SessionStore>);
        config
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, SessionState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl SessionStore for Handshakes {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.known().get(id).cloned())
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.known().insert(id.to_owned(), state.clone());
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.known().remove(id);
        Ok(())
    }
}
