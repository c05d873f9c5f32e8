//! The guards in front of any MCP server, as a process beside it:
//!
//! ```sh
//! cargo run --example sidecar --features forward -- --upstream http://127.0.0.1:3001/mcp --listen 127.0.0.1:8000
//! ```
//!
//! then connect to `http://127.0.0.1:8000/mcp`. The server beside it may be written in any language and needs to know nothing
//! of the guards. `GET /ready` is for probes; SIGTERM retires.

mod failure;
mod options;
mod serve;
mod unread;
mod upstream;

use std::process::ExitCode;

use mcp_session_guard::store::MemoryStore;
#[cfg(feature = "redis")]
use mcp_session_guard::store::{RedisConfig, RedisStore};
use tokio::net::TcpListener;

use options::{Options, Store};
use serve::{BoxError, serve};

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidecar: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), BoxError> {
    let listener = TcpListener::bind(&*options.listen).await?;
    println!(
        "guarding {} at http://{}{}",
        options.upstream,
        listener.local_addr()?,
        options.upstream.path()
    );
    match &options.store {
        Store::Memory => serve(listener, &options, MemoryStore::new(), terminated()).await,
        #[cfg(feature = "redis")]
        Store::Redis(url) => {
            let store = RedisStore::connect(RedisConfig::new(url)).await?;
            serve(listener, &options, store, terminated()).await
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn terminated() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupted => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if interrupted.await.is_err() {
        std::future::pending::<()>().await;
    }
}
