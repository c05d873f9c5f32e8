//! The MCP server: tools that are not to run twice, one of them with a large answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
};

/// The size of a large answer.
pub(super) const LARGE: usize = 64 * 1024;

/// How often each operation ran.
#[derive(Debug, Clone, Default)]
pub(super) struct Runs(Arc<Mutex<HashMap<String, usize>>>);

impl Runs {
    fn count(&self, session: &str, operation: &str) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *runs.entry(format!("{session} {operation}")).or_default() += 1;
    }

    /// How many ran, and how many of these again.
    pub(super) fn totals(&self) -> (usize, usize) {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = runs.values().sum();
        (total, total - runs.len())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Operations {
    pub(super) session: String,
    pub(super) runs: Runs,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Operation {
    operation: String,
}

#[tool_router]
impl Operations {
    #[tool(description = "Carries an operation out")]
    fn append(&self, Parameters(Operation { operation }): Parameters<Operation>) -> String {
        self.runs.count(&self.session, &operation);
        "done".into()
    }

    #[tool(description = "Carries an operation out and says at length what came of it")]
    fn large(&self, Parameters(Operation { operation }): Parameters<Operation>) -> String {
        self.runs.count(&self.session, &operation);
        "x".repeat(LARGE)
    }
}

#[tool_handler]
impl ServerHandler for Operations {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
