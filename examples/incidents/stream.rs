//! An event stream as a client sees it.

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::{Response, body::Incoming};
use serde_json::Value;
use tokio::time::timeout;

use crate::{Error, caller::PATIENCE, edge::SERVED_BY};

pub(crate) struct Stream {
    /// The instance that answered.
    pub(crate) served_by: String,
    /// The session that was opened.
    pub(crate) session: Option<String>,
    /// The last id that was heard.
    pub(crate) last_id: String,
    body: Incoming,
    text: BytesMut,
}

/// What a client hears next.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(Value),
    /// The stream ended as a finished one does.
    End,
    /// The connection broke.
    Break,
}

impl Stream {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        Self {
            served_by: header(SERVED_BY).unwrap_or_default(),
            session: header("mcp-session-id"),
            last_id: String::new(),
            body: response.into_body(),
            text: BytesMut::new(),
        }
    }

    pub(crate) async fn next(&mut self) -> Result<Heard, Error> {
        loop {
            while let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block = self.text.split_to(end + 2);
                let block = std::str::from_utf8(&block)?;
                let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
                if let Some(id) = field("id:") {
                    id.trim().clone_into(&mut self.last_id);
                }
                // An event without data comes first, to give the client an id.
                if let Some(data) = field("data:").filter(|data| !data.trim().is_empty()) {
                    return Ok(Heard::Message(serde_json::from_str(data)?));
                }
            }
            match timeout(PATIENCE, self.body.frame()).await? {
                None => return Ok(Heard::End),
                Some(Err(_)) => return Ok(Heard::Break),
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.text.extend_from_slice(&data);
                }
            }
        }
    }
}
