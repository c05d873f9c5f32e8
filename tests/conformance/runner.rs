//! The tests as a child process, and what they found.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::Deserialize;
use tokio::{process::Command, time::timeout};

const DEADLINE: Duration = Duration::from_secs(240);

/// By scenario and check.
pub type Checks = BTreeMap<(String, String), Status>;

/// From best to worst; of a check that was made more than once the worst counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Info,
    Skipped,
    Success,
    Warning,
    Failure,
}

#[derive(Deserialize)]
struct Check {
    id: String,
    status: Status,
}

pub async fn run(name: &str, url: &str, revision: &str) -> Checks {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("conformance-{name}-{revision}"));
    let _ = fs::remove_dir_all(&folder);
    let peers = peers();
    let module = "conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let mut tests = Command::new(peers.join("node/node_modules/.bin/node"));
    tests.arg(peers.join(module)).args(["server", "--url", url]);
    tests.args(["--suite", "all", "--spec-version", revision, "-o"]);
    tests.arg(&folder).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(DEADLINE, tests.output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("the tests hang against {name}"));
    let output = ended.unwrap_or_else(|error| {
        panic!("the conformance tests are needed here, tests/peers/setup installs them: {error}")
    });
    // Its own verdict is on every scenario, and this one on those that were lost.
    let said = String::from_utf8_lossy(&output.stdout);
    let mut checks = Checks::new();
    let written = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{error}: {said}"));
    for scenario in written {
        let path = scenario.expect("a folder").path();
        let text = fs::read_to_string(path.join("checks.json"));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let made: Vec<Check> = serde_json::from_str(&text).expect("checks");
        let scenario = scenario_of(&path);
        for Check { id, status } in made {
            let worst = checks.entry((scenario.clone(), id)).or_insert(status);
            *worst = status.max(*worst);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    checks
}

/// `server-ping-2026-01-31T12-00-00-000Z` is of `ping`.
fn scenario_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.and_then(|name| name.strip_prefix("server-"));
    let name = name.expect("a scenario");
    let date = name.len() - "-2026-01-31T12-00-00-000Z".len();
    name[..date].to_owned()
}

/// Beside the folder that cargo gives to tests.
fn peers() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("a target folder").join("peers")
}
