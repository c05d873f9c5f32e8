//! Which clients there are, and how each is started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    TypeScript1,
    TypeScript2,
    Python1,
    Python2,
}

impl Client {
    /// What its folders are called.
    pub const fn name(self) -> &'static str {
        match self {
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

    /// Its driver, to be pointed at an address.
    pub fn command(self) -> Command {
        let installed = installed(self.name());
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/clients");
        let driver = clients.join(self.name());
        let mut command = match self {
            Self::TypeScript1 | Self::TypeScript2 => {
                let mut node = Command::new(installed_node());
                node.arg(driver.join("driver.mjs"));
                node
            }
            Self::Python1 | Self::Python2 => {
                let mut python = Command::new(installed.join("bin/python"));
                // No compiled modules beside the sources.
                python.arg("-B").arg(driver.join("driver.py"));
                python
            }
        };
        command
            .current_dir(installed)
            .env("NO_PROXY", "127.0.0.1")
            .kill_on_drop(true);
        command
    }
}

fn installed_node() -> PathBuf {
    installed("node").join("node_modules/.bin/node")
}

fn installed(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let installed = target.expect("a target folder").join("interop").join(name);
    assert!(
        installed.join(".stamp").exists(),
        "{name} is not installed: run tests/interop/setup"
    );
    installed
}
