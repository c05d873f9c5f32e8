//! A server in a process of its own, so that what it costs can be told from what its clients cost.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::Error;

/// Ends with this value.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a server that says where it listens, in its first line, and that ends with its standard input.
    pub(crate) fn start(mut command: Command) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().parse() {
            Ok(address) => Ok(Self { child, address }),
            Err(_) => {
                let _ = child.kill();
                let status = child.wait()?;
                Err(format!("a server does not listen: {line:?}, {status}").into())
            }
        }
    }

    /// What all of its threads have run so far, where the system says so.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let ran = tasks.map(|task| {
            let stat = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            stat.split_whitespace().next()?.parse::<u64>().ok()
        });
        ran.sum::<Option<u64>>().map(Duration::from_nanos)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
