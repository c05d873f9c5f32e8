//! A client under way: told what to do by lines of JSON, and telling what its caller sees the same way. The clients of
//! other languages are child processes; the one of rmcp runs in this one.

use std::{process::Stdio, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, Lines},
    process::Child,
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};

use crate::{DEADLINE, client::Client, rmcp_client};

pub struct Driver {
    client: Client,
    child: Option<Child>,
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    lines: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
    /// Everything it has said.
    said: Vec<Value>,
    stderr: Arc<Mutex<String>>,
}

impl Driver {
    /// Starts a client, and waits until it has a session.
    pub async fn open(client: Client, url: &str) -> Self {
        let mut driver = Self::start(client, url);
        driver.hear("ready").await;
        driver
    }

    /// Starts a client.
    pub fn start(client: Client, url: &str) -> Self {
        let stderr = Arc::<Mutex<String>>::default();
        let Some(mut command) = client.command() else {
            let (receive, send) = rmcp_client::start(url.to_owned());
            return Self::over(client, None, Box::new(receive), Box::new(send), stderr);
        };
        let mut child = command
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{client:?} does not start: {error}"));
        let (kept, mut errors) = (Arc::clone(&stderr), child.stderr.take().expect("piped"));
        tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = errors.read(&mut piece).await {
                *kept.lock().await += &String::from_utf8_lossy(&piece[..read]);
            }
        });
        let stdout = Box::new(child.stdout.take().expect("piped"));
        let stdin = Box::new(child.stdin.take().expect("piped"));
        Self::over(client, Some(child), stdout, stdin, stderr)
    }

    fn over(
        client: Client,
        child: Option<Child>,
        receive: Box<dyn AsyncRead + Send + Unpin>,
        send: Box<dyn AsyncWrite + Send + Unpin>,
        stderr: Arc<Mutex<String>>,
    ) -> Self {
        Self {
            client,
            child,
            stdin: send,
            lines: BufReader::new(receive).lines(),
            said: Vec::new(),
            stderr,
        }
    }

    async fn command(&mut self, command: &Value) {
        let line = format!("{command}\n");
        // One that has ended says so when it is heard.
        let _ = self.stdin.write_all(line.as_bytes()).await;
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

    /// What becomes of a call: a result, an error, or the end of the client's whole transport. `None` if nothing does.
    pub async fn outcome(&mut self, key: &str, within: Duration) -> Option<Value> {
        let deadline = Instant::now() + within;
        loop {
            let line = timeout_at(deadline, self.lines.next_line()).await.ok()?;
            let Ok(Some(line)) = line else {
                return Some(json!({"say": "transport_closed", "message": "the client ended"}));
            };
            let line: Value = serde_json::from_str(&line).expect("JSON");
            self.said.push(line.clone());
            let of_the_call = line["key"] == key && line["say"] != "progress";
            if of_the_call || line["say"] == "transport_closed" {
                return Some(line);
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
        if let Some(child) = &mut self.child {
            let ended = timeout(DEADLINE, child.wait()).await;
            assert!(ended.expect("it ends").expect("a status").success());
        }
        // Beneath the caller, who would not be told that an answer came twice.
        let Some(answers) = closed["answers"].as_array() else {
            assert_eq!(self.client, Client::Rmcp, "{closed}");
            return;
        };
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
