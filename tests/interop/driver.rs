//! A client as a child process: told what to do by lines of JSON, and telling what its caller sees the same way.

use std::{process::Stdio, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    sync::Mutex,
    time::timeout,
};

use crate::{DEADLINE, client::Client};

pub struct Driver {
    client: Client,
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Everything it has said.
    said: Vec<Value>,
    stderr: Arc<Mutex<String>>,
}

impl Driver {
    /// Starts a client and waits until it has a session.
    pub async fn start(client: Client, url: &str) -> Self {
        let mut child = client
            .command()
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{client:?} does not start: {error}"));
        let stderr = Arc::<Mutex<String>>::default();
        let (kept, mut errors) = (Arc::clone(&stderr), child.stderr.take().expect("piped"));
        tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = errors.read(&mut piece).await {
                *kept.lock().await += &String::from_utf8_lossy(&piece[..read]);
            }
        });
        let mut driver = Self {
            client,
            stdin: child.stdin.take().expect("piped"),
            lines: BufReader::new(child.stdout.take().expect("piped")).lines(),
            child,
            said: Vec::new(),
            stderr,
        };
        driver.hear("ready").await;
        driver
    }

    async fn command(&mut self, command: &Value) {
        let line = format!("{command}\n");
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.expect("it listens");
    }

    /// Calls a tool, and does not wait for the answer. What is said of the call carries `key`.
    pub async fn call(&mut self, key: &str, tool: &str, arguments: Value) {
        let call = json!({"do": "call", "key": key, "tool": tool, "arguments": arguments});
        self.command(&call).await;
    }

    /// The next line of a kind.
    pub async fn hear(&mut self, kind: &str) -> Value {
        loop {
            let next = timeout(DEADLINE, self.lines.next_line()).await;
            let line = match next {
                Ok(Ok(Some(line))) => line,
                Ok(ended) => {
                    self.fail(&format!("ended, {ended:?}, before {kind:?}"))
                        .await
                }
                Err(_) => self.fail(&format!("hangs, and is to say {kind:?}")).await,
            };
            let Ok(line) = serde_json::from_str::<Value>(&line) else {
                self.fail(&format!("does not speak JSON: {line}")).await
            };
            let found = line["say"] == kind;
            self.said.push(line.clone());
            if found {
                return line;
            }
            if line["say"] == "error" || line["say"] == "transport_closed" {
                self.fail(&format!("fails, and is to say {kind:?}")).await;
            }
        }
    }

    /// The next step that its caller is told of.
    pub async fn hear_step(&mut self) -> u64 {
        step(&self.hear("progress").await["step"])
    }

    /// Every step that its caller was told of.
    pub fn steps(&self) -> Vec<u64> {
        self.said("progress", "step").iter().map(step).collect()
    }

    async fn fail(&self, how: &str) -> ! {
        let stderr = self.stderr.lock().await;
        panic!("{:?} {how}\n{:#?}\n{stderr}", self.client, self.said);
    }

    /// Everything of a kind that was said so far, as one of its fields.
    pub fn said(&self, kind: &str, field: &str) -> Vec<Value> {
        let lines = self.said.iter().filter(|line| line["say"] == kind);
        lines.map(|line| line[field].clone()).collect()
    }

    /// Has it close its session and end. What is left in its ears is heard first.
    pub async fn close(&mut self) {
        self.command(&json!({"do": "close"})).await;
        let closed = self.hear("closed").await;
        let ended = timeout(DEADLINE, self.child.wait()).await;
        assert!(ended.expect("it ends").expect("a status").success());
        // Beneath the caller, who would not be told that an answer came twice.
        let answers = closed["answers"].as_array().expect("a table");
        let once = answers.iter().all(|answer| answer[1] == 1);
        assert!(
            once && !answers.is_empty(),
            "{:?}: {answers:?}",
            self.client
        );
    }
}

/// Python has them as floats, JavaScript has no others.
fn step(number: &Value) -> u64 {
    number.as_f64().expect("a number") as u64
}
