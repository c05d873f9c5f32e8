//! What may run again: a table for methods, a register for tools.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use serde::Deserialize;

/// What running a request a second time does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// Changes nothing.
    ReadOnly,
    /// Changes something, but twice is the same as once.
    Idempotent,
    /// Twice is not once, or nobody said otherwise.
    Mutating,
}

impl Effect {
    /// Whether a request with an unknown outcome may simply be run again.
    #[must_use]
    pub fn may_run_again(self) -> bool {
        self != Self::Mutating
    }
}

/// The effect of an MCP method, all revisions to 2026-07-28. `tools/call` is [`Effect::Mutating`] unless its tool
/// is declared otherwise (see [`ToolEffects`]), and so is every method that is not in the table.
#[must_use]
pub fn method_effect(method: &str) -> Effect {
    match method {
        "ping"
        | "tools/list"
        | "prompts/list"
        | "prompts/get"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "roots/list"
        | "completion/complete"
        | "server/discover"
        | "tasks/list"
        | "tasks/get"
        | "tasks/result" => Effect::ReadOnly,
        "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => Effect::Idempotent,
        _ => Effect::Mutating,
    }
}

/// Effects of tools: declared by the user, or learned from the server's own `tools/list` answers.
///
/// A declaration wins over what is learned, and what is learned is dropped when a later answer says otherwise.
/// A tool of which nothing is known is [`Effect::Mutating`]. At most [`MAX_LEARNED`](Self::MAX_LEARNED) tools
/// are learned.
///
/// ```
/// use mcp_session_guard::mcp::{Effect, ToolEffects};
///
/// let effects = ToolEffects::new().declare("search", Effect::ReadOnly);
/// effects.learn(br#"{"tools":[{"name":"put","annotations":{"idempotentHint":true}}]}"#);
/// assert_eq!(effects.of("search"), Effect::ReadOnly);
/// assert_eq!(effects.of("put"), Effect::Idempotent);
/// assert_eq!(effects.of("drop_table"), Effect::Mutating);
/// ```
#[derive(Debug, Default)]
pub struct ToolEffects {
    declared: HashMap<String, Effect>,
    learned: RwLock<HashMap<String, Effect>>,
}

impl ToolEffects {
    /// How many tools are learned at most; the rest stay [`Effect::Mutating`].
    pub const MAX_LEARNED: usize = 4096;

    /// Nothing declared, nothing learned.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares the effect of a tool.
    #[must_use]
    pub fn declare(mut self, tool: impl Into<String>, effect: Effect) -> Self {
        self.declared.insert(tool.into(), effect);
        self
    }

    /// Learns from the `result` of a `tools/list` answer; returns how many tools it spoke of. Anything that is
    /// not such a result teaches nothing.
    pub fn learn(&self, result: &[u8]) -> usize {
        let Ok(list) = serde_json::from_slice::<ToolList>(result) else {
            return 0;
        };
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        for tool in &list.tools {
            match tool.effect() {
                Effect::Mutating => {
                    learned.remove(&tool.name);
                }
                effect if learned.len() < Self::MAX_LEARNED || learned.contains_key(&tool.name) => {
                    learned.insert(tool.name.clone(), effect);
                }
                _ => {}
            }
        }
        list.tools.len()
    }

    /// The effect of a tool.
    #[must_use]
    pub fn of(&self, tool: &str) -> Effect {
        if let Some(effect) = self.declared.get(tool) {
            return *effect;
        }
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        learned.get(tool).copied().unwrap_or(Effect::Mutating)
    }
}

#[derive(Deserialize)]
struct ToolList {
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(default)]
    annotations: Option<Annotations>,
}

impl Tool {
    fn effect(&self) -> Effect {
        match &self.annotations {
            Some(hints) if hints.read_only => Effect::ReadOnly,
            Some(hints) if hints.idempotent => Effect::Idempotent,
            _ => Effect::Mutating,
        }
    }
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default, rename = "readOnlyHint")]
    read_only: bool,
    #[serde(default, rename = "idempotentHint")]
    idempotent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_wins_and_a_later_answer_replaces_an_earlier_one() {
        let effects = ToolEffects::new().declare("a", Effect::Mutating);
        let list = br#"{"tools":[{"name":"a","annotations":{"readOnlyHint":true}},
            {"name":"b","annotations":{"readOnlyHint":true,"idempotentHint":true}}]}"#;
        assert_eq!(effects.learn(list), 2);
        assert_eq!(effects.of("a"), Effect::Mutating);
        assert_eq!(effects.of("b"), Effect::ReadOnly);
        effects.learn(br#"{"tools":[{"name":"b"}]}"#);
        assert_eq!(effects.of("b"), Effect::Mutating);
    }

    #[test]
    fn what_is_not_a_tool_list_teaches_nothing() {
        let effects = ToolEffects::new();
        for junk in [
            &b""[..],
            b"null",
            b"{}",
            b"[1]",
            br#"{"tools":[{"name":1}]}"#,
        ] {
            assert_eq!(effects.learn(junk), 0);
        }
    }

    #[test]
    fn learning_is_bounded() {
        let effects = ToolEffects::new();
        let tools: Vec<_> = (0..ToolEffects::MAX_LEARNED + 10)
            .map(|n| serde_json::json!({"name": format!("t{n}"), "annotations": {"readOnlyHint": true}}))
            .collect();
        effects.learn(serde_json::json!({ "tools": tools }).to_string().as_bytes());
        assert_eq!(
            effects.learned.read().unwrap().len(),
            ToolEffects::MAX_LEARNED
        );
    }

    #[test]
    fn methods_nobody_listed_are_mutating() {
        assert_eq!(method_effect("tools/list"), Effect::ReadOnly);
        assert_eq!(method_effect("logging/setLevel"), Effect::Idempotent);
        for method in [
            "initialize",
            "tools/call",
            "tasks/cancel",
            "tasks/update",
            "TOOLS/LIST",
            "",
        ] {
            assert_eq!(method_effect(method), Effect::Mutating, "{method}");
        }
    }
}
