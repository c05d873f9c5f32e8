//! The server of another crate, compiled as a package of its own.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Error;

const PACKAGE: &str = "load-tower-mcp";

/// Compiles it, beside this very program, and says where it is.
pub(crate) fn tower_mcp() -> Result<PathBuf, Error> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/load/tower-mcp/Cargo.toml");
    if !manifest.is_file() {
        let lacks = format!(
            "{} is not there: leave it out with --servers",
            manifest.display()
        );
        return Err(lacks.into());
    }
    // From target/release/examples/load.
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--manifest-path",
        ])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(target)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        let failed =
            "tower-mcp could not be compiled (it needs Rust 1.90): leave it out with --servers";
        return Err(failed.into());
    }
    Ok(target.join("release").join(PACKAGE))
}
