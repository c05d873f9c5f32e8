//! A real server that a test starts, stops, freezes and empties.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use mcp_session_guard::store::{RedisConfig, RedisStore};
use redis::{Client, Connection};

/// How long anything here may take that usually takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

const DIRECTORY: &str = "{mcp-session-guard}:marker";
const LEDGER: &str = "{mcp-session-guard:0}:marker";

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a time")
}

#[derive(Debug)]
pub struct Server {
    pub port: u16,
    folder: Folder,
    options: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// An empty server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let mut server = Self {
            port: free_port(),
            folder: Folder::new(),
            options: options.iter().map(ToString::to_string).collect(),
            process: None,
        };
        server.run();
        server
    }

    /// A Sentinel that watches over the primary of a name.
    pub fn sentinel(name: &str, primary: &Server) -> Self {
        let (port, folder) = (free_port(), Folder::new());
        let file = folder.0.join("sentinel.conf");
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {name} 1000\n\
             sentinel failover-timeout {name} 5000\n",
            primary.port
        );
        std::fs::write(&file, text).expect("a file");
        let mut server = Self {
            port,
            options: vec![
                file.to_str().expect("a path").to_owned(),
                "--sentinel".to_owned(),
            ],
            folder,
            process: None,
        };
        server.run();
        server
    }

    /// Starts the process and waits until it answers.
    pub fn run(&mut self) {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        // The name of a file comes first.
        let is_sentinel = self.options.iter().any(|option| option == "--sentinel");
        let (first, rest) = self.options.split_at(usize::from(is_sentinel));
        let lasts: &[&str] = match is_sentinel {
            true => &[],
            false => &["--save", "", "--appendonly", "no"],
        };
        let process = Command::new(&program)
            .args(first)
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .args(lasts)
            .args(["--dir", self.folder.0.to_str().expect("a path")])
            .args(rest)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        self.process = Some(process);
        wait_for("the server", || {
            let mut connection = self.client().get_connection_with_timeout(PATIENCE).ok()?;
            let pong = redis::cmd("PING").query::<String>(&mut connection);
            pong.is_ok().then_some(())
        });
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Kills it and starts another on the same port, with whatever is on disk.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Stops the process without ending it: connections stay, and nobody answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("an address")
    }

    /// A connection of the test's own.
    pub fn connection(&self) -> Connection {
        let connection = self.client().get_connection_with_timeout(PATIENCE);
        connection.expect("a connection")
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig::new(self.url())
            .with_connect_deadline(PATIENCE)
            .with_response_deadline(PATIENCE)
            .with_deadline(PATIENCE)
    }

    pub async fn store(&self) -> RedisStore {
        let store = RedisStore::connect(self.config()).await;
        store.expect("a store")
    }

    /// Lets the clock of the directory run on by `time`.
    pub fn pass(&self, time: Duration) {
        self.turn(DIRECTORY, "clock", millis(time));
        // Faster than any clock runs, so nobody may count on what was left of a lease.
        static PASSED: AtomicUsize = AtomicUsize::new(0);
        let passed = PASSED.fetch_add(1, Ordering::Relaxed).to_string();
        self.command(&["SET", "{mcp-session-guard}:generation", &passed]);
    }

    /// Has the server's wall clock jump, as far as the directory can see.
    pub fn jump(&self, millis: i64) {
        // What it compares the present with is as much less.
        self.turn(DIRECTORY, "raw", -millis);
    }

    /// Lets the clock of the ledger run on by `time`.
    pub fn pass_in_ledger(&self, time: Duration) {
        self.turn(LEDGER, "clock", millis(time));
    }

    fn turn(&self, marker: &str, field: &str, millis: i64) {
        let turned: i64 = redis::cmd("HINCRBY")
            .arg(marker)
            .arg(field)
            .arg(millis)
            .query(&mut self.connection())
            .expect("a marker");
        assert!(turned > millis);
    }

    /// Waits until the server's clock shows another millisecond.
    pub fn next_millisecond(&self) {
        let mut connection = self.connection();
        let mut now = || {
            let time: (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("the time");
            time.0 * 1000 + time.1 / 1000
        };
        let then = now();
        while now() == then {}
    }

    /// What the server says of itself. Nothing while it cannot be asked: it closes its
    /// connections when its role changes.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let mut connection = self.client().get_connection_with_timeout(PATIENCE).ok()?;
        let asked = redis::cmd("INFO").arg(section).query(&mut connection);
        let info: String = asked.ok()?;
        let mut lines = info.lines();
        let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Some(line.unwrap_or_else(|| panic!("no {field}")).to_owned())
    }

    pub fn text(&self, words: &[&str]) -> String {
        redis::from_redis_value(self.command(words)).expect("text")
    }

    pub fn command(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection()).expect("a command")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let limit = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < limit, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A folder that goes with the test.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "redis-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
