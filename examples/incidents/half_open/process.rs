//! The server as a process of its own, and what its memory does.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::oneshot,
    task::JoinHandle,
    time::sleep,
};

use crate::{Error, report::Variant};

/// The option that makes this program the server.
pub(crate) const OPTION: &str = "--half-open-server";

pub(super) struct Server {
    child: Child,
    http: reqwest::Client,
    pub(super) address: SocketAddr,
    pub(super) url: String,
}

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) peak_events: usize,
    pub(super) peak_bytes: usize,
    pub(super) high_water_events: usize,
    pub(super) high_water_bytes: usize,
    pub(super) runs: usize,
    pub(super) duplicates: usize,
    pub(super) torn_down: bool,
    pub(super) stood_still: Duration,
    pub(super) allowance: Duration,
}

impl Server {
    pub(super) async fn start(variant: Variant) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([OPTION, &variant.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let first = BufReader::new(stdout).lines().next_line().await?;
        let address: SocketAddr = first.ok_or("the server did not start")?.parse()?;
        Ok(Self {
            child,
            http: reqwest::Client::builder().no_proxy().build()?,
            address,
            url: format!("http://{address}"),
        })
    }

    pub(super) async fn figures(&self, session: &str) -> Result<Figures, Error> {
        let url = format!("{}/figures?sessionId={session}", self.url);
        let figures: Value = self.http.get(url).send().await?.json().await?;
        let count = |name: &str| figures[name].as_u64().unwrap_or_default();
        let size = |name: &str| usize::try_from(count(name)).unwrap_or(usize::MAX);
        Ok(Figures {
            peak_events: size("peak_events"),
            peak_bytes: size("peak_bytes"),
            high_water_events: size("high_water_events"),
            high_water_bytes: size("high_water_bytes"),
            runs: size("runs"),
            duplicates: size("duplicates"),
            torn_down: figures["torn_down"] == true,
            stood_still: Duration::from_millis(count("stood_still_ms")),
            allowance: Duration::from_millis(count("allowance_ms")),
        })
    }

    /// Watches what the process has of the machine's memory from now on.
    pub(super) fn watch_memory(&self) -> Result<Growth, Error> {
        let process = self.child.id().ok_or("the server is gone")?;
        let before = resident(process)?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let watching = tokio::spawn(async move {
            let mut most = before;
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                most = most.max(resident(process)?);
                sleep(Duration::from_millis(20)).await;
            }
            Ok(most - before)
        });
        Ok(Growth { stop, watching })
    }
}

pub(super) struct Growth {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<Result<usize, Error>>,
}

impl Growth {
    /// By how much it grew at most.
    pub(super) async fn most(self) -> Result<usize, Error> {
        let _ = self.stop.send(());
        self.watching.await?
    }
}

/// Resident memory in bytes, as Linux tells it.
fn resident(process: u32) -> Result<usize, Error> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kilobytes
        .ok_or("no resident memory")?
        .trim()
        .parse::<usize>()?
        * 1024)
}
