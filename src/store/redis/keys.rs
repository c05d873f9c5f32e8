//! The names of keys. What clients choose is hashed into them, so they are of one length and of harmless characters.
//!
//! The directory is one hash tag, and so one slot of a cluster: its verbs compare a session with the lease of its owner
//! and with the incarnation, and what happens at one moment has to be in one place. The logs of a session are one hash
//! tag each, so they spread.

use sha2::{Digest, Sha256};

use crate::{session::SessionId, store::StreamKey};

#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    directory: [String; DIRECTORY],
}

/// How many keys of the directory come before those of sessions.
pub(super) const DIRECTORY: usize = 6;

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let directory = ["marker", "until", "leases", "due", "tombs", "generation"];
        Self {
            prefix: prefix.to_owned(),
            directory: directory.map(|name| format!("{{{prefix}}}:{name}")),
        }
    }

    /// The keys of the directory and of these sessions in it.
    pub(super) fn directory<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
    ) -> Vec<String> {
        let mut keys = self.directory.to_vec();
        keys.extend(sessions.into_iter().map(|id| self.session(&hash(id))));
        keys
    }

    /// The key of a session in the directory, by its hash.
    pub(super) fn session(&self, hash: &str) -> String {
        format!("{{{}}}:s:{hash}", self.prefix)
    }

    /// What changes when a lease ends before its time.
    pub(super) fn generation(&self) -> &str {
        &self.directory[DIRECTORY - 1]
    }
}

/// The keys of a session's logs.
pub(super) struct LogKeys {
    /// What they have in common.
    pub(super) tag: String,
    pub(super) session: [String; 3],
}

/// The keys of one stream, those of its session first.
pub(super) struct StreamKeys {
    pub(super) tag: String,
    pub(super) reference: String,
    pub(super) all: [String; 6],
}

impl Keys {
    pub(super) fn log(&self, session: &SessionId) -> LogKeys {
        let tag = format!("{{{}:{}}}", self.prefix, hash(session));
        let session = ["x", "s", "o"].map(|name| format!("{tag}:{name}"));
        LogKeys { tag, session }
    }

    /// The keys of a keyed request, by the digits of its key: those of the ledger first.
    pub(super) fn request(&self, key: &str, partitions: usize) -> [String; 4] {
        let digits = key.get(..4).unwrap_or_default();
        let partition = usize::from_str_radix(digits, 16).unwrap_or_default() % partitions;
        let tag = format!("{{{}:{partition}}}", self.prefix);
        ["marker", "due", "kept", "k"].map(|name| match name {
            "k" => format!("{tag}:k:{key}"),
            name => format!("{tag}:{name}"),
        })
    }

    pub(super) fn stream(&self, key: &StreamKey) -> StreamKeys {
        let LogKeys { tag, session } = self.log(&key.session);
        let reference = format!("{}.{}", key.epoch, key.stream);
        let [m, i, d] = ["m", "i", "d"].map(|name| format!("{tag}:{name}:{reference}"));
        let [x, s, o] = session;
        StreamKeys {
            tag,
            reference,
            all: [x, s, o, m, i, d],
        }
    }
}

/// 160 bits, so that nobody finds two ids that meet.
pub(super) fn hash(id: &SessionId) -> String {
    let digest = Sha256::digest(id.as_str());
    hex(&digest[..20])
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
