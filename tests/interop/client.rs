//! Which clients there are, and how each is started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Rmcp,
    TypeScript1,
    TypeScript2,
    Python1,
    Python2,
}

impl Client {
    pub const ALL: [Self; 5] = [
        Self::Rmcp,
        Self::TypeScript1,
        Self::TypeScript2,
        Self::Python1,
        Self::Python2,
    ];

    /// What it is called in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rmcp => "rmcp",
            Self::TypeScript1 | Self::TypeScript2 => "typescript",
            Self::Python1 | Self::Python2 => "python",
        }
    }

    /// The version that is pinned, of which the tests run no other.
    pub fn version(self) -> &'static str {
        let (pins, before) = match self {
            Self::Rmcp => (
                include_str!("../../Cargo.lock"),
                "name = \"rmcp\"\nversion = \"",
            ),
            Self::TypeScript1 => (include_str!("clients/ts1/package.json"), "sdk\": \""),
            Self::TypeScript2 => (include_str!("clients/ts2/package.json"), "client\": \""),
            Self::Python1 => (include_str!("clients/py1/requirements.txt"), "\nmcp=="),
            Self::Python2 => (include_str!("clients/py2/requirements.txt"), "\nmcp=="),
        };
        let (_, after) = pins.split_once(before).expect("a pin");
        let end = after.find(['"', '\n']).expect("an end");
        &after[..end]
    }

    /// What its folders are called.
    const fn folder(self) -> &'static str {
        match self {
            Self::Rmcp => "rmcp",
            Self::TypeScript1 => "ts1",
            Self::TypeScript2 => "ts2",
            Self::Python1 => "py1",
            Self::Python2 => "py2",
        }
    }

    /// Both Python SDKs resume a stream that breaks while it is being resumed from where it broke the first time
    /// (`_handle_reconnection` passes the position on that it was called with). What came between comes again.
    pub const fn repeats_its_first_cursor(self) -> bool {
        matches!(self, Self::Python1 | Self::Python2)
    }

    /// Its driver, to be pointed at an address; `None` for the one that needs no process of its own.
    pub fn command(self) -> Option<Command> {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/clients");
        let driver = clients.join(self.folder());
        let mut command = match self {
            Self::Rmcp => return None,
            Self::TypeScript1 | Self::TypeScript2 => {
                let mut node = Command::new(installed_node());
                node.arg(driver.join("driver.mjs"));
                node
            }
            Self::Python1 | Self::Python2 => {
                let mut python = Command::new(installed(self.folder()).join("bin/python"));
                // No compiled modules beside the sources.
                python.arg("-B").arg(driver.join("driver.py"));
                python
            }
        };
        command
            .current_dir(installed(self.folder()))
            .env("NO_PROXY", "127.0.0.1")
            .kill_on_drop(true);
        Some(command)
    }
}

fn installed_node() -> PathBuf {
    installed("node").join("node_modules/.bin/node")
}

fn installed(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let installed = target.expect("a target folder").join("peers").join(name);
    assert!(
        installed.join(".stamp").exists(),
        "{name} is not installed: run tests/peers/setup"
    );
    installed
}
