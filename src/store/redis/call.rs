//! One call of a script, and its reply.

use std::time::Duration;

use redis::{Cmd, Script, ToRedisArgs, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::{fault::Fault, link::Links, wire::Wire};

/// Deadlines of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    pub(super) response: Duration,
    pub(super) overall: Duration,
}

/// A call that is being put together: keys first, then arguments.
pub(super) struct Call {
    script: Option<&'static Script>,
    echo: String,
    cmd: Cmd,
    /// What is asked right after it on the same connection: how many replicas have it.
    wait: Option<(usize, Cmd)>,
}

impl Call {
    /// Every reply begins with `echo`, which says what the call was about.
    pub(super) fn new<K: ToRedisArgs>(script: &'static Script, echo: &str, keys: &[K]) -> Self {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script.get_hash()).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        cmd.arg(echo);
        Self {
            script: Some(script),
            echo: echo.to_owned(),
            cmd,
            wait: None,
        }
    }

    /// A command, the reply to which must say by itself what it is about.
    pub(super) fn plain(cmd: Cmd) -> Self {
        Self {
            script: None,
            echo: String::new(),
            cmd,
            wait: None,
        }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// Has it count only when so many replicas have it.
    pub(super) fn on_replicas(mut self, replicas: Option<(usize, Duration)>) -> Self {
        self.wait = replicas.map(|(count, wait)| {
            let mut cmd = redis::cmd("WAIT");
            cmd.arg(count).arg(super::record::millis(wait).max(1));
            (count, cmd)
        });
        self
    }

    /// Sends it and waits for the reply, within the deadlines. A connection that broke is made again, once: it may have
    /// been broken long before, and each verb recognises what an attempt whose reply was lost has done.
    pub(super) async fn send(self, links: &Links, deadlines: Deadlines) -> Result<Reply, Fault> {
        // The server reads nothing more from a connection on which it waits for replicas.
        let link = links.here(self.wait.is_some());
        let limit = Instant::now() + deadlines.overall;
        let mut again = true;
        loop {
            let live = timeout_at(limit, link.live());
            let mut live = live.await.unwrap_or(Err(Fault::Late("connection")))?;
            let asked = Instant::now();
            let wait = deadlines
                .response
                .min(limit.saturating_duration_since(asked));
            let told = timeout(wait, self.ask(&mut live.wire)).await;
            let fault = match told.unwrap_or(Err(Fault::Late("reply"))) {
                Ok(reply) => {
                    link.heard(&live);
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            if fault.ends_connection() {
                link.discard(&live);
            } else if fault.is_a_reply() {
                link.heard(&live);
            }
            if !(fault.is_broken_connection() && std::mem::take(&mut again)) {
                return Err(fault);
            }
        }
    }

    async fn ask(&self, wire: &mut Wire) -> Result<Reply, Fault> {
        let told: Result<Value, Fault> = self.cmd.query_async(wire).await.map_err(Fault::from);
        let value = match (told, self.script) {
            (Err(fault), Some(script)) if fault.is_unknown_script() => {
                script.load_async(wire).await?;
                self.cmd.query_async(wire).await?
            }
            (told, _) => told?,
        };
        let reply = match self.script {
            Some(_) => Reply::to(value, &self.echo)?,
            None => Reply::of(value)?,
        };
        if let Some((needed, wait)) = &self.wait {
            let have: usize = wait.query_async(wire).await?;
            if have < *needed {
                let told = format!("{have} of {needed} replicas have what was written");
                return Err(Fault::Refused(told.into()));
            }
        }
        Ok(reply)
    }
}

/// The reply of a script, without its echo.
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    /// The reply to what was asked with this echo. Those of a connection that lost its place answer somebody else's
    /// question.
    fn to(value: Value, echo: &str) -> Result<Self, Fault> {
        let mut reply = Self::of(value)?;
        match reply.bytes()?.as_slice() == echo.as_bytes() {
            true => Ok(reply),
            false => Err(Fault::Misread("the reply to another question")),
        }
    }

    fn of(value: Value) -> Result<Self, Fault> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            _ => Err(Fault::Misread("no list")),
        }
    }

    /// Text, or nothing where there is none.
    pub(super) fn maybe(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        match self.0.next() {
            Some(Value::Nil) => Ok(None),
            Some(Value::BulkString(bytes)) => Ok(Some(bytes)),
            _ => Err(Fault::Misread("no text")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Fault> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            _ => Err(Fault::Misread("no text")),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Fault> {
        String::from_utf8(self.bytes()?).map_err(|_| Fault::Misread("no text"))
    }

    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        let read = match self.0.next() {
            Some(Value::Int(number)) => u64::try_from(number).ok(),
            Some(Value::BulkString(digits)) => std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| digits.parse().ok()),
            _ => None,
        };
        read.ok_or(Fault::Misread("no number"))
    }

    /// A list within it.
    pub(super) fn list(&mut self) -> Result<Self, Fault> {
        Self::of(self.0.next().unwrap_or(Value::Nil))
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(parts: &[&str]) -> Value {
        let text = |part: &&str| Value::BulkString(part.as_bytes().to_vec());
        Value::Array(parts.iter().map(text).collect())
    }

    #[test]
    fn the_reply_to_another_question_is_none() {
        let mut own = Reply::to(said(&["mine", "absent"]), "mine").ok().unwrap();
        assert_eq!(own.text().unwrap(), "absent");
        for strange in [
            said(&["other", "absent"]),
            said(&[]),
            Value::Nil,
            Value::Okay,
        ] {
            let fault = Reply::to(strange, "mine").err().unwrap();
            assert!(matches!(fault, Fault::Misread(_)));
            assert!(fault.ends_connection());
        }
    }
}
