//! Servers on the SDKs of other languages, as child processes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};

use crate::{DEADLINE, port};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    TypeScript,
    Python,
}

pub struct Peer {
    pub address: SocketAddr,
    child: Child,
}

impl Peer {
    pub async fn start(kind: Kind) -> Self {
        let address = port::free();
        let mut command = command(kind, address.port());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).kill_on_drop(true);
        let spawned = command.spawn();
        let mut child = spawned.unwrap_or_else(|error| {
            panic!("{kind:?} is needed here, tests/peers/setup installs it: {error}")
        });
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            let ended = child.try_wait().expect("a child");
            assert_eq!(ended, None, "{kind:?} does not start");
            assert!(began.elapsed() < DEADLINE, "{kind:?} does not listen");
            sleep(std::time::Duration::from_millis(20)).await;
        }
        Self { address, child }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it is there");
    }
}

fn command(kind: Kind, port: u16) -> Command {
    let installed = installed();
    match kind {
        Kind::TypeScript => {
            let mut node = Command::new(installed.join("node/node_modules/.bin/node"));
            let module = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
            node.arg(installed.join("everything").join(module));
            node.arg("streamableHttp").env("PORT", port.to_string());
            node
        }
        Kind::Python => {
            let mut python = Command::new(installed.join("python/bin/python"));
            let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
            python.arg(tests.join("peers/python/server.py"));
            python.arg(port.to_string());
            python
        }
    }
}

/// Beside the folder that cargo gives to tests.
fn installed() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("a target folder").join("peers")
}
