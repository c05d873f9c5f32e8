//! What is measured: servers, and what is around them.

use std::{fmt, str::FromStr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// rmcp with sessions, which answers by SSE.
    Rmcp,
    /// tower-mcp with its own sessions; nothing of this crate is around it.
    TowerMcp,
    /// A handler that does no more than an answer takes.
    Bare,
}

impl Server {
    pub(crate) const ALL: [Self; 3] = [Self::Rmcp, Self::TowerMcp, Self::Bare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rmcp => "rmcp",
            Self::TowerMcp => "tower-mcp",
            Self::Bare => "bare",
        }
    }

    pub(crate) fn answer(self) -> &'static str {
        match self {
            Self::Rmcp => "sse",
            Self::TowerMcp | Self::Bare => "json",
        }
    }

    /// Whether the layers of this crate are measured around it.
    pub(crate) fn is_guarded(self) -> bool {
        self != Self::TowerMcp
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layers {
    None,
    Affinity,
    Drain,
    /// With affinity around it, without which it knows of no session and lets all streams pass.
    Resume,
    Idempotency,
    All,
}

impl Layers {
    pub(crate) const ALL: [Self; 6] = [
        Self::None,
        Self::Affinity,
        Self::Drain,
        Self::Resume,
        Self::Idempotency,
        Self::All,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Affinity => "affinity",
            Self::Drain => "drain",
            Self::Resume => "resume",
            Self::Idempotency => "idempotency",
            Self::All => "all",
        }
    }

    /// What a table calls it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Resume => "resume (in affinity)",
            other => other.name(),
        }
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|server| server.name() == name);
        named.ok_or_else(|| format!("there is no server '{name}'"))
    }
}

impl FromStr for Layers {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|layers| layers.name() == name);
        named.ok_or_else(|| format!("there are no layers '{name}'"))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
